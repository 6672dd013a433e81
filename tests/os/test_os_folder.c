/* Our own folders and files: where the cache lies, folders made for the owner only, files replaced whole. */
#include "os_test.h"

#include <dirent.h>

#include "os/fault.h"
#include "os/folder.h"

static void check_cache(const char *xdg, const char *home, int result, const char *expected)
{
    char path[64] = "";
    if (xdg)
        setenv("XDG_CACHE_HOME", xdg, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    if (home)
        setenv("HOME", home, 1);
    else
        unsetenv("HOME");
    assert_int_equal(mz_folder_cache(path, sizeof path), result);
    if (!result)
        assert_string_equal(path, expected);
}

static void test_cache(void **state)
{
    (void)state;
    check_cache("/x", "/home/me", 0, "/x/mzcache");
    check_cache(NULL, "/home/me", 0, "/home/me/.cache/mzcache");
    check_cache("", "/home/me", 0, "/home/me/.cache/mzcache");
    check_cache("relative", "/home/me", 0, "/home/me/.cache/mzcache");
    check_cache(NULL, NULL, -ENOENT, NULL);
    check_cache(NULL, "", -ENOENT, NULL);
    check_cache("/a-very-long-name/a-very-long-name/a-very-long-name/a-very-long-name", NULL, -ENAMETOOLONG,
                NULL);
}

static void test_make(void **state)
{
    (void)state;
    char deep[512];
    struct stat st;
    made(in_folder("a"));
    made(in_folder("a/b"));
    made(in_folder("a/b/c"));
    snprintf(deep, sizeof deep, "%s", in_folder("a/b/c"));
    assert_int_equal(mz_folder_make(deep), 0);
    assert_int_equal(stat(deep, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(mz_folder_make(deep), 0);
    assert_int_equal(mz_folder_make(make_text("file", "x")), -ENOTDIR);
    assert_int_equal(mz_folder_make(""), -ENOENT);
    assert_true(mz_folder_make(in_folder("file/below")) < 0);
}

static void expect_text(const char *path, const char *expected)
{
    char text[64] = "";
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    assert_int_equal(n, strlen(expected));
    assert_string_equal(text, expected);
}

static unsigned names_in_folder(void)
{
    unsigned n = 0;
    DIR *d = opendir(test_folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static void test_put_file(void **state)
{
    (void)state;
    char path[512];
    struct stat st;
    snprintf(path, sizeof path, "%s", in_folder("profile"));
    made(path);
    assert_int_equal(mz_folder_put_file(path, "first\n"), 0);
    expect_text(path, "first\n");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(mz_folder_put_file(path, "second and longer\n"), 0);
    expect_text(path, "second and longer\n");
    assert_int_equal(mz_folder_put_file(in_folder("none/file"), "x"), -ENOENT);
    mz_fault_plan(MZ_FAULT_WRITE, 1, MZ_FAULT_SHORT, true);
    assert_int_equal(mz_folder_put_file(path, "in pieces\n"), 0);
    expect_text(path, "in pieces\n");
    assert_int_equal(names_in_folder(), 1);
}

/* Whatever fails, the old file stays and nothing is left beside it. */
static void test_put_file_fails(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", make_text("profile", "old\n"));
    uint64_t n = 0;
    for (;;) {
        mz_fault_plan(MZ_FAULT_ANY, ++n, ENOSPC, false);
        int r = mz_folder_put_file(path, "new\n");
        if (!mz_fault_hits())
            break;
        assert_int_equal(r, -ENOSPC);
        expect_text(path, "old\n");
        assert_int_equal(names_in_folder(), 1);
    }
    assert_true(n > 2);
    expect_text(path, "new\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_folder, tear_down_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_cache),
        TEST(test_make),
        TEST(test_put_file),
        TEST(test_put_file_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
