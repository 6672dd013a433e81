/* Every command's --help, and exit codes for wrong usage and without a process. */
#include "cli_test.h"

#include "cli.h"
#include "control/settings.h"
#include "core/store.h"

static char folder[64];

static int setup(void **state)
{
    (void)state;
    make_folder(folder, sizeof(folder));
    (void)setenv("MZ_RUNTIME_DIR", folder, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static void help(void **state)
{
    char usage[64];

    (void)state;
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        (void)snprintf(usage, sizeof(usage), "Usage: mzcache %s", (*c)->name);
        mzcache((*c)->name, "--help");
        expect_exit(0);
        assert_ptr_equal(strstr(last.out, usage), last.out);
        assert_non_null(strstr(last.out, "Exit codes:"));
        assert_string_equal(last.err, "");
        mzcache((*c)->name, "-h");
        expect_exit(0);
    }
    mzcache("help", "evict"); /* the same as evict --help */
    expect_exit(0);
    assert_ptr_equal(strstr(last.out, "Usage: mzcache evict"), last.out);
    mzcache("--help");
    expect_exit(0);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        (void)snprintf(usage, sizeof(usage), "\n  %s ", (*c)->name);
        assert_int_equal(strstr(last.out, usage) != NULL, !(*c)->hidden);
    }
    mzcache("--version");
    expect_exit(0);
    assert_string_equal(last.out, "mzcache " MZ_VERSION "\n");
}

/* No line is longer than a terminal is wide, and every option of run is there. */
static void help_is_folded(void **state)
{
    struct mz_setting setting;
    char name[64];

    (void)state;
    mzcache("run", "--help");
    for (uint32_t i = 0; mz_setting_row(i, &setting); i++) {
        (void)snprintf(name, sizeof(name), "\n      --%s ", setting.name);
        assert_non_null(strstr(last.out, name));
        assert_non_null(strstr(last.out, setting.env));
    }
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        mzcache((*c)->name, "--help");
        for (char *line = strtok(strstr(last.out, "\n\n"), "\n"); line; line = strtok(NULL, "\n")) {
            if (strlen(line) > 80)
                print_error("%s\n", line);
            assert_true(strlen(line) <= 80);
        }
    }
}

/* Says what is wrong on standard error, and nothing on standard output. */
static void wrong(void)
{
    expect_exit(2);
    assert_string_equal(last.out, "");
    assert_ptr_equal(strstr(last.err, "mzcache: "), last.err);
}

static void wrong_usage(void **state)
{
    const char *alone[] = {"mzcache", NULL};

    (void)state;
    run_program(&last, MZ_COMMAND, (char *const *)(uintptr_t)alone);
    wrong();
    mzcache("nothing");
    wrong();
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        mzcache((*c)->name, "--nothing");
        wrong();
        mzcache((*c)->name, "-Z");
        wrong();
    }
    mzcache("evict");
    wrong();
    mzcache("evict", "much");
    wrong();
    mzcache("evict", "50%", "50%");
    wrong();
    mzcache("evict", "--to", "50M");
    wrong();
    mzcache("evict", "--to", "50%", "50%");
    wrong();
    mzcache("evict", "--to");
    wrong();
    mzcache("evict", "101%");
    wrong();
    assert_non_null(strstr(last.err, "at most 100"));
    mzcache("limit");
    wrong();
    mzcache("limit", "much");
    wrong();
    mzcache("option", "nothing");
    wrong();
    mzcache("status", "--pid", "x");
    wrong();
    mzcache("status", "--pid", "0");
    wrong();
    mzcache("status", "--json=yes");
    wrong();
    mzcache("restore", "--wait", "--stop");
    wrong();
    mzcache("run");
    wrong();
    assert_non_null(strstr(last.err, "PROGRAM is missing"));
    mzcache("top", "--interval", "0");
    wrong();
    mzcache("pack", "one");
    wrong();
    assert_non_null(strstr(last.err, "OUT.gguf is missing"));
    mzcache("completion", "fish");
    wrong();
}

static void without_a_process(void **state)
{
    (void)state;
    mzcache("ps");
    expect_exit(0);
    assert_non_null(strstr(last.err, "mzcache run"));
    mzcache("ps", "--json");
    expect_exit(0);
    assert_string_equal(last.out, "");
    mzcache("status");
    expect_exit(3);
    mzcache("evict", "1G");
    expect_exit(3);
    mzcache("evict", "--to=0%", "--pid=1");
    expect_exit(3);
    mzcache("restore", "--wait");
    expect_exit(3);
    mzcache("limit", "off");
    expect_exit(3);
    mzcache("option");
    expect_exit(3);
    mzcache("log");
    expect_exit(3);
    mzcache("top", "--count", "1");
    expect_exit(3);
}

static void doctor_names_the_option_repacked(void **state)
{
    (void)state;
    (void)setenv("MZ_SWAP_FOLDER", folder, 1);
    mzcache("doctor");
    assert_non_null(strstr(last.out, "--repacked on reads them, for disk of their size"));
    (void)setenv("MZ_REPACKED", "on", 1);
    mzcache("doctor");
    assert_non_null(strstr(last.out, "MZ_REPACKED=on"));
    (void)unsetenv("MZ_REPACKED");
    (void)unsetenv("MZ_SWAP_FOLDER");
}

static void doctor(void **state)
{
    size_t findings = 0;

    (void)state;
    (void)setenv("MZ_SWAP_FOLDER", folder, 1);
    mzcache("doctor", "--json");
    assert_true(last.exit == 0 || last.exit == 1);
    for (char *line = strtok(last.out, "\n"); line; line = strtok(NULL, "\n"), findings++) {
        json_t *finding = json_loads(line, 0, NULL);
        assert_true(json_is_object(finding));
        const char *grade = json_string_value(json_object_get(finding, "grade"));
        /* What is not good says what to do, or that it cannot be told. */
        assert_true(strcmp(grade, "good") == 0 || strcmp(grade, "note") == 0 || strcmp(grade, "bad") == 0);
        if (strcmp(grade, "bad") == 0)
            assert_true(json_string_length(json_object_get(finding, "advice")) > 0);
        json_decref(finding);
    }
    assert_true(findings >= 8);
    (void)setenv("MZ_SWAP_FOLDER", "/dev/shm", 1);
    mzcache("doctor");
    expect_exit(1);
    assert_non_null(strstr(last.out, "\nNot ready: "));
    (void)unsetenv("MZ_SWAP_FOLDER");
}

/* Where the cache folder cannot be used the library takes another one, and so does the doctor. */
static void doctor_knows_the_last_folder(void **state)
{
    (void)state;
    (void)setenv("XDG_CACHE_HOME", "/proc/no-folder", 1);
    mzcache("doctor");
    assert_non_null(strstr(last.out, "note  cache folder"));
    assert_non_null(strstr(last.out, "swap folder     " MZ_STORE_LAST_FOLDER "\n"));
    (void)unsetenv("XDG_CACHE_HOME");
}

/* The line on the program, behind its grade. */
static void expect_program(const char *program, const char *found)
{
    mzcache("doctor", program);
    expect_exit(1);
    char *line = strstr(last.out, "bad   program");
    assert_non_null(line);
    line[strcspn(line, "\n")] = '\0';
    if (!strstr(line, found))
        print_error("%s\n", line);
    assert_non_null(strstr(line, found));
}

static void doctor_names_the_program(void **state)
{
    char plugin[128];

    (void)state;
    (void)snprintf(plugin, sizeof(plugin), "%s/libggml-mz.so", folder);
    assert_int_equal(close(open(plugin, O_CREAT | O_WRONLY, 0600)), 0);
    (void)setenv("MZ_PLUGIN", plugin, 1);
    expect_program("no-such-server", "no-such-server is in none of the folders of PATH");
    expect_program("/no/such/server", "/no/such/server was not found");
    expect_program(folder, "could not be started");
    expect_program("true", "true --list-devices says nothing");
    expect_program("echo", "echo --list-devices says: --list-devices");
    (void)unsetenv("MZ_PLUGIN");
}

static void profile(void **state)
{
    (void)state;
    (void)setenv("XDG_CACHE_HOME", folder, 1);
    mzcache("profile", "--quick", "--force", "--swap-folder", folder, "--json");
    expect_exit(0);
    json_t *profile = output_json();
    assert_true(json_number_value(json_object_get(profile, "read_gbps")) > 0);
    json_decref(profile);
    mzcache("profile", "--quick", "--swap-folder", "/dev/shm");
    expect_exit(1);
    assert_non_null(strstr(last.err, "lies in memory"));
    mzcache("profile", "--swap-folder", "/dev/null/nowhere");
    expect_exit(1);
    mzcache("profile", "--workers", "65");
    wrong();
    mzcache("profile", "--workers", "none");
    wrong();
}

static void full_output(void **state)
{
    const char *argv[] = {"sh", "-c", "exec \"$0\" --help > /dev/full", MZ_COMMAND, NULL};

    (void)state;
    run_program(&last, "sh", (char *const *)(uintptr_t)argv);
    expect_exit(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help),
        cmocka_unit_test(help_is_folded),
        cmocka_unit_test(wrong_usage),
        cmocka_unit_test(without_a_process),
        cmocka_unit_test(doctor),
        cmocka_unit_test(doctor_knows_the_last_folder),
        cmocka_unit_test(doctor_names_the_program),
        cmocka_unit_test(doctor_names_the_option_repacked),
        cmocka_unit_test(profile),
        cmocka_unit_test(full_output),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
