/* Small files and the numbers in them; MZ_SYSROOT replaces the root. */
#include "os_test.h"

#include "os/fault.h"
#include "os/text.h"

static void test_rooted(void **state)
{
    (void)state;
    char path[100], expected[100];
    setenv("MZ_SYSROOT", "/fake", 1);
    assert_int_equal(mz_os_rooted("/proc/x", path, sizeof path), 0);
    assert_string_equal(path, "/fake/proc/x");
    assert_int_equal(mz_os_rooted(path, expected, sizeof expected), 0);
    assert_string_equal(expected, "/fake/proc/x"); /* not twice */
    assert_int_equal(mz_os_rooted("/faker/x", path, sizeof path), 0);
    assert_string_equal(path, "/fake/faker/x");
    assert_int_equal(mz_os_rooted("relative", path, sizeof path), 0);
    assert_string_equal(path, "relative");
    assert_int_equal(mz_os_rooted("/proc/x", path, 12), -ENAMETOOLONG);
    unsetenv("MZ_SYSROOT");
    assert_int_equal(mz_os_rooted("/proc/x", path, sizeof path), 0);
    assert_string_equal(path, "/proc/x");
}

static void test_read_and_write(void **state)
{
    (void)state;
    char text[16];
    make_text("sys/value", "12345\n");
    assert_int_equal(mz_os_read_text("/sys/value", text, sizeof text), 6);
    assert_string_equal(text, "12345\n");
    assert_int_equal(mz_os_read_text("/sys/value", text, 4), 3);
    assert_string_equal(text, "123");
    assert_int_equal(mz_os_read_text("/sys/none", text, sizeof text), -ENOENT);
    assert_int_equal(mz_os_write_text("/sys/value", "77"), 0);
    assert_int_equal(mz_os_read_text("/sys/value", text, sizeof text), 6);
    assert_string_equal(text, "77345\n"); /* in place, as in /proc and /sys */
    assert_int_equal(mz_os_write_text("/sys/none", "1"), -ENOENT);
}

static void test_faults(void **state)
{
    (void)state;
    char text[16];
    make_text("sys/value", "12345\n");
    mz_fault_plan(MZ_FAULT_READ, 1, MZ_FAULT_SHORT, true);
    assert_int_equal(mz_os_read_text("/sys/value", text, sizeof text), 6);
    assert_string_equal(text, "12345\n");
    mz_fault_plan(MZ_FAULT_READ, 1, EIO, false);
    assert_int_equal(mz_os_read_text("/sys/value", text, sizeof text), -EIO);
    mz_fault_plan(MZ_FAULT_OPEN, 1, EMFILE, true);
    assert_int_equal(mz_os_read_text("/sys/value", text, sizeof text), -EMFILE);
    assert_int_equal(mz_os_write_text("/sys/value", "1"), -EMFILE);
    mz_fault_plan(MZ_FAULT_WRITE, 1, MZ_FAULT_SHORT, false);
    assert_int_equal(mz_os_write_text("/sys/value", "1"), -EIO);
}

static void test_find_number(void **state)
{
    (void)state;
    uint64_t n = 99;
    const char *text =
        "low 1\nhigh_x 2\nhigh 3\nMemTotal:  100 kB\nbad: x\nneg: -1\nbig: 18446744073709551616\n"
        "most: 18446744073709551615\nover: 18446744073709551615 kB\nunit: 5 MB\nlast 8";
    assert_int_equal(mz_os_find_number(text, "high", &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(mz_os_find_number(text, "MemTotal:", &n), 0);
    assert_int_equal(n, 102400);
    assert_int_equal(mz_os_find_number(text, "most:", &n), 0);
    assert_true(n == UINT64_MAX);
    assert_int_equal(mz_os_find_number(text, "last", &n), 0);
    assert_int_equal(n, 8);
    assert_int_equal(mz_os_find_number(text, "none", &n), -ENOENT);
    static const char *const bad[] = {"bad:", "neg:", "big:", "over:", "unit:"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(mz_os_find_number(text, bad[i], &n), -EBADMSG);
    assert_int_equal(n, 8); /* written only on success */
    assert_int_equal(mz_os_find_number("", "x", &n), -ENOENT);
}

static void test_parse_number(void **state)
{
    (void)state;
    uint64_t n = 0;
    assert_int_equal(mz_os_parse_number("42\n", &n), 0);
    assert_int_equal(n, 42);
    assert_int_equal(mz_os_parse_number("max\n", &n), 0);
    assert_true(n == UINT64_MAX);
    static const char *const bad[] = {"", "-1", "x", "12x", "1 2", "maximum", "18446744073709551616", "\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(mz_os_parse_number(bad[i], &n), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rooted, set_up_root, tear_down_folder),
        cmocka_unit_test_setup_teardown(test_read_and_write, set_up_root, tear_down_folder),
        cmocka_unit_test_setup_teardown(test_faults, set_up_root, tear_down_folder),
        cmocka_unit_test_setup_teardown(test_find_number, set_up_root, tear_down_folder),
        cmocka_unit_test_setup_teardown(test_parse_number, set_up_root, tear_down_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
