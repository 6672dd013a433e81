/* mzcache run: what it sets, what it leaves alone, how it ends. The program that it starts is env(1). */
#include "cli_test.h"

static char folder[64], plugin[128];

static int setup(void **state)
{
    (void)state;
    make_folder(folder, sizeof(folder));
    (void)snprintf(plugin, sizeof(plugin), "%s/libggml-mz.so", folder);
    assert_int_equal(close(open(plugin, O_CREAT | O_WRONLY, 0600)), 0);
    (void)setenv("MZ_PLUGIN", plugin, 1);
    static const char *const clear[] = {"GGML_BACKEND_PATH",
                                        "LLAMA_ARG_DEVICE",
                                        "LLAMA_ARG_CACHE_RAM",
                                        "LLAMA_ARG_SWA_FULL",
                                        "LLAMA_ARG_CTX_CHECKPOINTS",
                                        "GOMP_SPINCOUNT",
                                        "OMP_WAIT_POLICY",
                                        "MZ_LIMIT",
                                        "MZ_KV"};
    for (size_t i = 0; i < sizeof(clear) / sizeof(*clear); i++)
        (void)unsetenv(clear[i]);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static bool has_line(const char *text, const char *name, const char *value)
{
    char line[256];

    (void)snprintf(line, sizeof(line), "%s=%s\n", name, value);
    const char *at = strstr(text, line);
    return at && (at == text || at[-1] == '\n');
}

static void sets_its_list(void **state)
{
    (void)state;
    mzcache("run", "--", "env");
    expect_exit(0);
    assert_true(has_line(last.out, "GGML_BACKEND_PATH", plugin));
    assert_true(has_line(last.out, "LLAMA_ARG_DEVICE", "MZ0"));
    assert_true(has_line(last.out, "LLAMA_ARG_CACHE_RAM", "0"));
    assert_true(has_line(last.out, "LLAMA_ARG_SWA_FULL", "1"));
    assert_true(has_line(last.out, "LLAMA_ARG_CTX_CHECKPOINTS", "2"));
    assert_true(has_line(last.out, "GOMP_SPINCOUNT", "20000"));
    assert_non_null(strstr(last.err, "LLAMA_ARG_CACHE_RAM")); /* shown */
    mzcache("run", "-q", "env");
    expect_exit(0);
    assert_true(has_line(last.out, "LLAMA_ARG_DEVICE", "MZ0"));
    assert_string_equal(last.err, "");
}

static void leaves_the_environment(void **state)
{
    (void)state;
    (void)setenv("LLAMA_ARG_DEVICE", "none", 1);
    (void)setenv("LLAMA_ARG_CACHE_RAM", "100", 1);
    mzcache("run", "env");
    expect_exit(0);
    assert_true(has_line(last.out, "LLAMA_ARG_DEVICE", "none"));
    assert_true(has_line(last.out, "LLAMA_ARG_CACHE_RAM", "100"));
    assert_true(has_line(last.out, "LLAMA_ARG_SWA_FULL", "1"));
    (void)unsetenv("LLAMA_ARG_DEVICE");
    (void)unsetenv("LLAMA_ARG_CACHE_RAM");
    (void)setenv("OMP_WAIT_POLICY", "ACTIVE", 1);
    mzcache("run", "env");
    expect_exit(0);
    assert_null(strstr(last.out, "GOMP_SPINCOUNT"));
    (void)unsetenv("OMP_WAIT_POLICY");
}

/* The program's arguments come first here: env(1) takes "-u NAME", so a shell prints the environment in its
 * place. */
static void leaves_the_arguments(void **state)
{
    (void)state;
    mzcache("run", "sh", "-c", "env", "--device", "X", "--cache-ram=5", "--ctx-checkpoints", "9");
    expect_exit(0);
    assert_null(strstr(last.out, "LLAMA_ARG_DEVICE"));
    assert_null(strstr(last.out, "LLAMA_ARG_CACHE_RAM"));
    assert_null(strstr(last.out, "LLAMA_ARG_SWA_FULL"));
    assert_null(strstr(last.out, "LLAMA_ARG_CTX_CHECKPOINTS"));
    assert_non_null(strstr(last.err, "cannot be evicted"));
    mzcache("run", "sh", "-c", "env", "-nkvo", "--cpu-moe");
    expect_exit(0);
    assert_non_null(strstr(last.err, "-nkvo"));
    assert_non_null(strstr(last.err, "--cpu-moe"));
    mzcache("run", "sh", "-c", "env", "--sleep-idle-seconds", "60");
    assert_non_null(strstr(last.err, "mzcache run --idle"));
    mzcache("run", "sh", "-c", "env", "-ngl", "20");
    assert_non_null(strstr(last.err, "note: -ngl"));
    mzcache("run", "sh", "-c", "env", "--load-mode", "none");
    assert_non_null(strstr(last.err, "written to the swap file once"));
    mzcache("run", "sh", "-c", "env", "-ngl", "99", "--n-gpu-layers=all", "-lm", "mmap+mlock");
    assert_null(strstr(last.err, "note:"));
}

static void hands_options_over(void **state)
{
    (void)state;
    mzcache("run", "--limit", "2G", "--kv=q8", "--idle", "5m:50%", "--swap-folder", folder, "--", "env");
    expect_exit(0);
    assert_true(has_line(last.out, "MZ_LIMIT", "2G"));
    assert_true(has_line(last.out, "MZ_KV", "q8"));
    assert_true(has_line(last.out, "MZ_IDLE", "5m:50%"));
    assert_true(has_line(last.out, "MZ_SWAP_FOLDER", folder));
    mzcache("run", "--kv", "best", "env");
    expect_exit(2);
    mzcache("run", "--pressure", "maybe", "env");
    expect_exit(2);
    mzcache("run", "--limit", "", "env");
    expect_exit(2);
    /* What the library would not take is said here, before anything is started. */
    mzcache("run", "--idle", "5x", "env");
    expect_exit(2);
    assert_string_equal(last.err,
                        "mzcache: idle: \"5x\" is not TIME[:PERCENT]|off (see mzcache run --help)\n");
    mzcache("run", "--headroom", "10%", "env");
    expect_exit(2);
    mzcache("run", "--floor=much", "env");
    expect_exit(2);
    mzcache("run", "-q", "--idle=off", "--step=10%", "--floor=1G", "--headroom=own", "--hold=0",
            "--request=64K", "--workers=2", "--limit=30%", "true");
    expect_exit(0);
    /* Behind the program, options are the program's own. */
    mzcache("run", "echo", "--limit", "--help");
    expect_exit(0);
    assert_string_equal(last.out, "--limit --help\n");
}

static void ends_as_the_program_does(void **state)
{
    (void)state;
    mzcache("run", "-q", "sh", "-c", "exit 7");
    expect_exit(7);
    mzcache("run", "-q", "/no/such/program");
    expect_exit(127);
    mzcache("run", "-q", "no-such-program");
    expect_exit(127);
    assert_non_null(strstr(last.err, "no-such-program is in none of the folders of PATH"));
    mzcache("run", "-q", folder);
    expect_exit(126);
}

/* Its output is a file of variables. */
static void dry_run_prints_variables(void **state)
{
    (void)state;
    mzcache("run", "--dry-run", "--idle", "5m", "/no/such/program");
    expect_exit(0);
    assert_true(has_line(last.out, "GGML_BACKEND_PATH", plugin));
    assert_true(has_line(last.out, "LLAMA_ARG_DEVICE", "MZ0"));
    assert_true(has_line(last.out, "MZ_IDLE", "5m"));
    assert_string_equal(last.err, "");
    mzcache("run", "--dry-run", "sh", "--device", "X");
    assert_null(strstr(last.out, "LLAMA_ARG_DEVICE"));
}

static void needs_the_plugin(void **state)
{
    (void)state;
    (void)setenv("MZ_PLUGIN", "/no/such/plugin.so", 1);
    mzcache("run", "env");
    expect_exit(1);
    assert_non_null(strstr(last.err, "/no/such/plugin.so"));
    (void)setenv("MZ_PLUGIN", plugin, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_its_list),
        cmocka_unit_test(leaves_the_environment),
        cmocka_unit_test(leaves_the_arguments),
        cmocka_unit_test(hands_options_over),
        cmocka_unit_test(ends_as_the_program_does),
        cmocka_unit_test(dry_run_prints_variables),
        cmocka_unit_test(needs_the_plugin),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
