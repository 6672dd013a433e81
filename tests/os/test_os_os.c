/* Clocks go forward, there is a CPU, and what the power supplies say. */
#include "os_test.h"

#include "os/os.h"

static void test_clocks(void **state)
{
    (void)state;
    uint64_t now = mz_os_now_ns(), boot = mz_os_boottime_ns();
    assert_true(now > 0 && mz_os_now_ns() >= now);
    assert_true(boot > 0 && mz_os_boottime_ns() >= boot);
    assert_true(mz_os_wall_ns() > UINT64_C(1600000000) * 1000000000);
    assert_true(mz_os_cpus() >= 1);
}

#define SUPPLY "sys/class/power_supply/"

static void test_battery(void **state)
{
    (void)state;
    setenv("MZ_SYSROOT", make_test_folder(), 1);
    assert_false(mz_os_on_battery()); /* no such folder */
    make_text(SUPPLY "hid/type", "Battery\n");
    make_text(SUPPLY "hid/scope", "Device\n");
    make_text(SUPPLY "hid/status", "Discharging\n");
    assert_false(mz_os_on_battery());
    make_text(SUPPLY "BAT0/type", "Battery\n");
    make_text(SUPPLY "BAT0/status", "Charging\n");
    assert_false(mz_os_on_battery());
    make_text(SUPPLY "BAT0/status", "Discharging\n");
    assert_true(mz_os_on_battery());
    make_text(SUPPLY "AC/type", "Mains\n");
    make_text(SUPPLY "AC/online", "0\n");
    assert_true(mz_os_on_battery());
    make_text(SUPPLY "AC/online", "1\n"); /* a weak charger: drained, but fed */
    assert_false(mz_os_on_battery());
    unsetenv("MZ_SYSROOT");
    remove_made();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_battery),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
