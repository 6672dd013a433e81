/* The adapter to the memory watch: options as text, levels that end in evictions, its figures. */
#include "control_test.h"

#include "control/values.h"
#include "control/watch.h"
#include "fake_engine.h"
#include "small_model.h"

static char folder[64];
static struct small_model model;
static struct mz_core *core;
static struct mz_watch *watch;

static int setup(void **state)
{
    struct mz_core_config config = {.engine = fake_engine(), .swap_folder = folder, .workers = 2};

    (void)state;
    make_folder(folder, sizeof(folder));
    assert_int_equal(mz_core_create(&config, &core), 0);
    assert_int_equal(mz_watch_start(core, false, &watch), 0);
    assert_int_equal(small_model_make(&model, core), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mz_watch_stop(watch);
    small_model_free(&model);
    mz_core_destroy(core);
    remove_folder(folder);
    return 0;
}

static const struct {
    const char *name, *value, *back; /* back NULL: refused */
} table[] = {
    {"idle", "off", "off"},
    {"idle", "5m", "300s:100%"},
    {"idle", "90s:25%", "90s:25%"},
    {"idle", "soon", NULL},
    {"step", "15", "15%"},
    {"step", "25%", "25%"},
    {"step", "own", "own"},
    {"step", "0", NULL},
    {"floor", "0", "0"},
    {"floor", "1M", "1048576"},
    {"floor", "25%", "25.00%"},
    {"floor", "x", NULL},
    {"headroom", "1G", "1073741824"},
    {"headroom", "own", "own"},
    {"headroom", "10%", NULL},
    {"hold", "10s", "10s"},
    {"hold", "0", "0s"},
    {"hold", "2m", "120s"},
    {"hold", "1m:50%", NULL},
    {"clean-on-battery", "on", "on"},
    {"clean-on-battery", "off", "off"},
    {"clean-on-battery", "yes", NULL},
};

static void options(void **state)
{
    char value[64], before[64];

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        assert_int_equal(mz_watch_option_get(watch, table[i].name, before, sizeof(before)), 0);
        int rc = mz_watch_option_set(watch, table[i].name, table[i].value);
        if ((rc == 0) != (table[i].back != NULL))
            print_error("%s=%s: %d\n", table[i].name, table[i].value, rc);
        assert_int_equal(rc == 0, table[i].back != NULL);
        assert_int_equal(mz_watch_option_get(watch, table[i].name, value, sizeof(value)), 0);
        assert_string_equal(value, table[i].back ? table[i].back : before);
        /* What is printed can be set again. */
        assert_int_equal(mz_watch_option_set(watch, table[i].name, value), 0);
    }
    assert_int_equal(mz_watch_option_set(watch, "nothing", "1"), -ENOENT);
    assert_int_equal(mz_watch_option_get(watch, "nothing", value, sizeof(value)), -ENOENT);
    assert_int_equal(mz_watch_option_get(watch, "hold", value, 1), -ENOSPC);
}

static uint64_t remaining(void)
{
    struct mz_core_status status;

    mz_core_status(core, &status);
    return status.remaining_bytes;
}

static void background_evicts(void **state)
{
    uint64_t before = remaining();

    (void)state;
    assert_int_equal(mz_watch_trim(watch, 7), -EINVAL);
    assert_int_equal(mz_watch_option_set(watch, "hold", "0"), 0);
    assert_int_equal(small_model_use(&model), 0);
    assert_int_equal(mz_watch_trim(watch, 40), 0);
    eventually(remaining() < before / 4);
    assert_int_equal(small_model_use(&model), 0);
}

static void a_floor_is_kept(void **state)
{
    uint64_t before = remaining();

    (void)state;
    assert_int_equal(mz_watch_option_set(watch, "hold", "0"), 0);
    assert_int_equal(mz_watch_option_set(watch, "floor", "50%"), 0);
    assert_int_equal(mz_watch_trim(watch, 255), 0);
    eventually(remaining() < before);
    pause_ms(50);
    assert_true(remaining() >= before / 2 - (UINT64_C(4) << 20)); /* one unit or 2 MiB below at most */
}

static void figures(void **state)
{
    json_t *json = mz_watch_json(watch);

    (void)state;
    assert_non_null(json);
    assert_true(json_is_string(json_object_get(json, "source")));
    assert_true(json_is_string(json_object_get(json, "level")));
    assert_true(json_is_integer(json_object_get(json, "wakeups")));
    assert_true(json_is_array(json_object_get(json, "sources")));
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(options, setup, teardown),
        cmocka_unit_test_setup_teardown(background_evicts, setup, teardown),
        cmocka_unit_test_setup_teardown(a_floor_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(figures, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
