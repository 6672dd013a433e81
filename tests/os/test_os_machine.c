/* Memory of the machine and of this process, from the real /proc and from broken ones. */
#include "os_test.h"

#include "os/fault.h"
#include "os/machine.h"

static void test_real(void **state)
{
    (void)state;
    struct mz_machine_memory m;
    assert_int_equal(mz_machine_memory(&m), 0);
    assert_true(m.total_bytes > 0 && m.available_bytes <= m.total_bytes && m.free_bytes <= m.total_bytes);
    struct mz_process_memory p;
    assert_int_equal(mz_machine_process(&p), 0);
    assert_true(p.rss_anon_bytes + p.swap_bytes > 0 && p.rss_file_bytes > 0);
    uint64_t headroom, limit, current, together;
    assert_int_equal(mz_machine_cgroup_headroom(&headroom), 0);
    assert_int_equal(mz_machine_cgroup_limit(&limit, &current, &together), 0);
    assert_true(limit == UINT64_MAX || current > 0);
}

#define GOOD                                                                                                 \
    "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\nBuffers:   1 kB\n"        \
    "SwapCached:        5 kB\nSwapTotal:       500 kB\nSwapFree:        400 kB\n"

static void test_good(void **state)
{
    (void)state;
    struct mz_machine_memory m;
    setenv("MZ_SYSROOT", make_test_folder(), 1);
    make_text("proc/meminfo", GOOD);
    assert_int_equal(mz_machine_memory(&m), 0);
    assert_int_equal(m.total_bytes, 16000 * 1024);
    assert_int_equal(m.available_bytes, 8000 * 1024);
    assert_int_equal(m.free_bytes, 1000 * 1024);
    assert_int_equal(m.swap_total_bytes, 500 * 1024);
    assert_int_equal(m.swap_free_bytes, 400 * 1024);
    make_text("proc/meminfo",
              "MemTotal: 5 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n"); /* no swap compiled in */
    assert_int_equal(mz_machine_memory(&m), 0);
    assert_int_equal(m.swap_total_bytes, 0);
    mz_fault_plan(MZ_FAULT_READ, 1, MZ_FAULT_SHORT, true);
    assert_int_equal(mz_machine_memory(&m), 0);
    assert_int_equal(m.total_bytes, 5 * 1024);
}

static void test_malformed(void **state)
{
    (void)state;
    struct mz_machine_memory m = {.total_bytes = 99};
    setenv("MZ_SYSROOT", make_test_folder(), 1);
    assert_int_equal(mz_machine_memory(&m), -EIO); /* missing */
    static const char *const texts[] = {
        "",
        "MemTotal:\n",
        "MemTotal: 16000 kB\nMemFree: 1000 kB\n", /* before Linux 3.14 */
        "MemTotal: x kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n",
        "MemTotal: -16 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n",
        "MemTotal: 0 kB\nMemFree: 0 kB\nMemAvailable: 0 kB\n",
        "MemTotal: 10 kB\nMemFree: 1 kB\nMemAvailable: 11 kB\n",
        "MemTotal: 10 kB\nMemFree: 11 kB\nMemAvailable: 1 kB\n",
        "MemTotal: 99999999999999999999 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n",
        "MemTotal: 10 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\nSwapTotal: many kB\n",
        "XMemTotal: 10 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        make_text("proc/meminfo", texts[i]);
        assert_int_equal(mz_machine_memory(&m), -EBADMSG);
    }
    mz_fault_plan(MZ_FAULT_READ, 1, EIO, false);
    assert_int_equal(mz_machine_memory(&m), -EIO);
    assert_int_equal(m.total_bytes, 99); /* written only on success */
}

static void test_process(void **state)
{
    (void)state;
    struct mz_process_memory p;
    setenv("MZ_SYSROOT", make_test_folder(), 1);
    assert_int_equal(mz_machine_process(&p), 0); /* no fake one: the real one */
    assert_true(p.rss_file_bytes > 0);
    make_text("proc/self/status",
              "Name:\tx\nVmRSS:\t  9 kB\nRssAnon:\t     5 kB\nRssFile:\t  6 kB\nVmSwap:\t 7 kB\n");
    assert_int_equal(mz_machine_process(&p), 0);
    assert_int_equal(p.rss_anon_bytes, 5 * 1024);
    assert_int_equal(p.rss_file_bytes, 6 * 1024);
    assert_int_equal(p.swap_bytes, 7 * 1024);
    make_text("proc/self/status", "Name:\tx\nRssAnon:\t5 kB\nRssFile:\tmany kB\nVmSwap:\t7 kB\n");
    assert_int_equal(mz_machine_process(&p), -EBADMSG);
    make_text("proc/self/status", "Name:\tx\n");
    assert_int_equal(mz_machine_process(&p), -EBADMSG);
    mz_fault_plan(MZ_FAULT_OPEN, 1, EMFILE, true);
    assert_int_equal(mz_machine_process(&p), -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_real, tear_down_folder),
        cmocka_unit_test_teardown(test_good, tear_down_folder),
        cmocka_unit_test_teardown(test_malformed, tear_down_folder),
        cmocka_unit_test_teardown(test_process, tear_down_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
