/* The table of options: each default is what the table says, every value allowed can be set and read back,
 * everything else is refused and changes nothing, and the environment is read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/options.h"
#include "os/log.h"

static struct mz_options options;

static void expect(const char *name, const char *value)
{
    char buf[4096];
    assert_int_equal(mz_options_get(&options, name, buf, sizeof buf), 0);
    assert_string_equal(buf, value);
}

static void test_table(void **state)
{
    (void)state;
    const struct mz_option_info *row;
    uint32_t n = 0;
    mz_options_init(&options);
    for (; (row = mz_options_row(n)); n++) {
        assert_true(*row->name && *row->values && *row->meaning);
        assert_memory_equal(row->env, "MZ_", 3);
        expect(row->name, row->initial);
        assert_int_equal(mz_options_set(&options, row->name, row->initial), 0);
        for (uint32_t i = 0; i < n; i++) {
            assert_string_not_equal(mz_options_row(i)->name, row->name);
            assert_string_not_equal(mz_options_row(i)->env, row->env);
        }
    }
    assert_true(n >= 12);
    assert_null(mz_options_row(UINT32_MAX));
}

/* Each word between the bars of a choice. */
static void test_choices(void **state)
{
    (void)state;
    const struct mz_option_info *row;
    for (uint32_t i = 0; (row = mz_options_row(i)); i++) {
        char words[256], *at = words, *word;
        if (!strchr(row->values, '|'))
            continue;
        snprintf(words, sizeof words, "%s", row->values);
        while ((word = strsep(&at, "|"))) {
            assert_int_equal(mz_options_set(&options, row->name, word), 0);
            expect(row->name, word);
            for (unsigned j = 0; j < 4; j++) {
                char bad[64];
                snprintf(bad, sizeof bad, j == 0 ? "%s " : j == 1 ? "%s|" : j == 2 ? "%s|x" : "x%s", word);
                assert_int_equal(mz_options_set(&options, row->name, bad), -EINVAL);
            }
            assert_int_equal(mz_options_set(&options, row->name, ""), -EINVAL);
            expect(row->name, word);
        }
    }
}

static void test_numbers_mean_the_enums(void **state)
{
    (void)state;
    mz_options_init(&options);
    assert_int_equal(options.kv, MZ_KV_EXACT);
    assert_int_equal(options.order, MZ_ORDER_BACKWARD);
    assert_int_equal(options.overlap, MZ_OVERLAP_FULL);
    assert_int_equal(options.paths, MZ_PATHS_PARALLEL);
    assert_int_equal(options.rule, MZ_RULE_EXACT);
    assert_int_equal(options.repacked, 0);
    assert_int_equal(options.uring, 1);
    assert_int_equal(options.swap_force, 0);
    assert_int_equal(mz_options_set(&options, "kv", "q8"), 0);
    assert_int_equal(options.kv, MZ_KV_Q8);
    assert_int_equal(mz_options_set(&options, "order", "random"), 0);
    assert_int_equal(options.order, MZ_ORDER_RANDOM);
    assert_int_equal(mz_options_set(&options, "overlap", "none"), 0);
    assert_int_equal(options.overlap, MZ_OVERLAP_NONE);
    assert_int_equal(mz_options_set(&options, "overlap", "alloc-reload"), 0);
    assert_int_equal(options.overlap, MZ_OVERLAP_ALLOC_RELOAD);
    assert_int_equal(mz_options_set(&options, "overlap", "reload-prefill"), 0);
    assert_int_equal(options.overlap, MZ_OVERLAP_RELOAD_PREFILL);
    assert_int_equal(mz_options_set(&options, "paths", "sequential"), 0);
    assert_int_equal(options.paths, MZ_PATHS_SEQUENTIAL);
    assert_int_equal(mz_options_set(&options, "rule", "published"), 0);
    assert_int_equal(options.rule, MZ_RULE_PUBLISHED);
    assert_int_equal(mz_options_set(&options, "repacked", "on"), 0);
    assert_int_equal(options.repacked, 1);
}

static void test_sizes_and_counts(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        int result;
        const char *reads;
    } cases[] = {
        {"workers", "64", 0, "64"},        {"workers", "0", 0, "0"},
        {"workers", "65", -EINVAL, "0"},   {"workers", "-1", -EINVAL, "0"},
        {"workers", "", -EINVAL, "0"},     {"workers", "2K", -EINVAL, "0"},
        {"workers", " 2", -EINVAL, "0"},   {"workers", "99999999999999999999", -EINVAL, "0"},
        {"request", "65536", 0, "65536"},  {"request", "64K", 0, "65536"},
        {"request", "1MiB", 0, "1048576"}, {"request", "16m", 0, "16777216"},
        {"request", "0", 0, "0"},          {"request", "65535", -EINVAL, "0"},
        {"request", "17M", -EINVAL, "0"},  {"request", "9999999999G", -EINVAL, "0"},
        {"request", "1Mi", -EINVAL, "0"},  {"request", "K", -EINVAL, "0"},
        {"nothing", "1", -ENOENT, NULL},   {"", "1", -ENOENT, NULL},
    };
    mz_options_init(&options);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(mz_options_set(&options, cases[i].name, cases[i].value), cases[i].result);
        if (cases[i].reads)
            expect(cases[i].name, cases[i].reads);
    }
}

static void test_paths(void **state)
{
    (void)state;
    char long_path[4097], buf[8] = "same";
    mz_options_init(&options);
    memset(long_path, 'x', 4096);
    long_path[4096] = 0;
    assert_int_equal(mz_options_set(&options, "swap-folder", "/a b"), 0);
    assert_int_equal(mz_options_set(&options, "swap-folder", long_path), -ENAMETOOLONG);
    expect("swap-folder", "/a b");
    assert_int_equal(mz_options_set(&options, "swap-folder", options.swap_folder), 0);
    assert_int_equal(mz_options_set(&options, "swap-folder", long_path + 1), 0);
    expect("swap-folder", long_path + 1);
    assert_int_equal(mz_options_get(&options, "swap-folder", buf, sizeof buf), -ENOSPC);
    assert_int_equal(mz_options_get(&options, "none", buf, sizeof buf), -ENOENT);
    assert_string_equal(buf, "same");
    assert_int_equal(mz_options_get(&options, "rule", buf, 5), -ENOSPC); /* "exact" and its end */
    assert_int_equal(mz_options_get(&options, "rule", buf, 6), 0);
    assert_int_equal(mz_options_set(&options, "swap-folder", ""), 0);
    expect("swap-folder", "");
}

static char logged[8192];

static void keep(enum mz_log_level level, const char *text, void *user)
{
    (void)level;
    (void)user;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", text);
}

static void test_environment(void **state)
{
    (void)state;
    const struct mz_option_info *row;
    for (uint32_t i = 0; (row = mz_options_row(i)); i++)
        unsetenv(row->env);
    assert_int_equal(mz_options_from_env(&options), 0);
    for (uint32_t i = 0; (row = mz_options_row(i)); i++)
        expect(row->name, row->initial);
    setenv("MZ_KV", "q8", 1);
    setenv("MZ_WORKERS", "many", 1);
    setenv("MZ_RULE", "", 1);
    setenv("MZ_SWAP_FOLDER", "/some/where", 1);
    mz_log_sink(keep, NULL);
    int r = mz_options_from_env(&options);
    mz_log_sink(NULL, NULL);
    assert_int_equal(r, -EINVAL);
    assert_non_null(strstr(logged, "MZ_WORKERS=many"));
    assert_non_null(strstr(logged, "MZ_RULE= "));
    assert_null(strstr(logged, "MZ_KV"));
    expect("kv", "q8");
    expect("workers", "0");
    expect("rule", "exact");
    expect("swap-folder", "/some/where");
}

static void test_log(void **state)
{
    (void)state;
    mz_options_init(&options);
    assert_int_equal(mz_options_set(&options, "kv", "q8"), 0);
    logged[0] = 0;
    mz_log_sink(keep, NULL);
    mz_options_log(&options);
    mz_log_sink(NULL, NULL);
    assert_non_null(strstr(logged, "option kv = q8 (changed)"));
    assert_non_null(strstr(logged, "option rule = exact\n"));
    assert_non_null(strstr(logged, "option swap-folder = (default)\n"));
}

int main(void)
{
    setenv("MZ_LOG", "debug", 1); /* before the log looks */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_numbers_mean_the_enums),
        cmocka_unit_test(test_sizes_and_counts),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
