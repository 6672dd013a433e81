/* What comes with the command says the same as the command: the options in the man page, the variables in the
 * drop-in. The units are accepted by systemd. */
#include "cli_test.h"

#include "cli.h"
#include "control/settings.h"
#include "run_env.h"

static char folder[64];

static int setup(void **state)
{
    (void)state;
    make_folder(folder, sizeof(folder));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

/* The whole file, ended by NUL. */
static char *read_file(const char *path)
{
    char *text = calloc(1, OUTPUT_BYTES);
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0 && text);
    assert_true(read(fd, text, OUTPUT_BYTES - 1) > 0);
    (void)close(fd);
    return text;
}

/* "clean-on-battery" as it stands in a man page. */
static void escape(const char *name, char *buf)
{
    for (; *name; name++) {
        if (*name == '-')
            *buf++ = '\\';
        *buf++ = *name;
    }
    *buf = '\0';
}

static void man_page_has_all_options(void **state)
{
    char *page = read_file(MZ_SOURCE_DIR "/docs/man/mzcache.1"), name[128], wanted[160];
    struct mz_setting setting;

    (void)state;
    for (uint32_t i = 0; mz_setting_row(i, &setting); i++) {
        escape(setting.name, name);
        (void)snprintf(wanted, sizeof(wanted), "\\-\\-%s \"", name);
        char *at = strstr(page, wanted);
        (void)snprintf(wanted, sizeof(wanted), "\\-\\-%s \"", name);
        if (!at) { /* in the other order of fonts */
            (void)snprintf(wanted, sizeof(wanted), "\\-\\-%s\" ", name);
            at = strstr(page, wanted);
        }
        if (!at)
            print_error("mzcache.1 does not have --%s\n", setting.name);
        assert_non_null(at);
    }
    free(page);
}

static void man_page_has_all_commands(void **state)
{
    char *page = read_file(MZ_SOURCE_DIR "/docs/man/mzcache.1"), wanted[64];

    (void)state;
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        (void)snprintf(wanted, sizeof(wanted), ".B mzcache %s", (*c)->name);
        assert_int_equal(strstr(page, wanted) != NULL, !(*c)->hidden);
    }
    free(page);
}

static void drop_in_sets_what_run_sets(void **state)
{
    char *text = read_file(MZ_BINARY_DIR "/packaging/mzcache.conf"), wanted[256];

    (void)state;
    for (const struct run_set *set = run_sets; set->name; set++) {
        (void)snprintf(wanted, sizeof(wanted), "Environment=%s=%s", set->name, set->value ? set->value : "/");
        if (!strstr(text, wanted))
            print_error("the drop-in does not have %s\n", wanted);
        assert_non_null(strstr(text, wanted));
    }
    assert_null(strstr(text, "@CMAKE"));
    free(text);
}

/* 0 when there is none. */
static int systemd_version(void)
{
    const char *argv[] = {"systemd-analyze", "--version", NULL};
    int version = 0;

    run_program(&last, "systemd-analyze", (char *const *)(uintptr_t)argv);
    return last.exit == 0 && sscanf(last.out, "systemd %d", &version) == 1 ? version : 0;
}

/* A copy of the file: what is not installed here is replaced by what was built, and what this systemd is too
 * old for (it would ignore it with a warning) left out. */
static void copy_unit(const char *from, const char *to, const char *prefix)
{
    char *text = read_file(from), path[256];
    bool old = systemd_version() < 254;
    FILE *out;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, to);
    out = fopen(path, "w");
    assert_non_null(out);
    (void)fputs(prefix, out);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "ExecStart=", 10) == 0)
            (void)fprintf(out, "ExecStart=%s%s\n", MZ_COMMAND, strchr(line, ' '));
        else if (!old || strncmp(line, "MemoryPressure", 14) != 0)
            (void)fprintf(out, "%s\n", line);
    }
    assert_int_equal(fclose(out), 0);
    free(text);
}

static void verify(const char *scope, const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    const char *argv[] = {"systemd-analyze",       scope, "verify", "--man=no",
                          "--recursive-errors=no", path,  NULL};
    run_program(&last, "systemd-analyze", (char *const *)(uintptr_t)argv);
    expect_exit(0);
    assert_null(strstr(last.err, "Unknown"));
    assert_null(strstr(last.err, "nvalid"));
}

static void units_are_accepted(void **state)
{
    (void)state;
    if (systemd_version() == 0) {
        print_message("skipped: systemd-analyze is not installed\n");
        skip();
    }
    (void)setenv("XDG_RUNTIME_DIR", folder, 1);
    copy_unit(MZ_SOURCE_DIR "/packaging/systemd/mzcache-llama@.service", "mzcache-llama@x.service", "");
    verify("--user", "mzcache-llama@x.service");
    /* The drop-in, as part of a unit. */
    copy_unit(MZ_BINARY_DIR "/packaging/mzcache.conf", "mz-dropin.service",
              "[Service]\nExecStart=/bin/true\n");
    verify("--system", "mz-dropin.service");
    (void)unsetenv("XDG_RUNTIME_DIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(man_page_has_all_options),
        cmocka_unit_test(man_page_has_all_commands),
        cmocka_unit_test(drop_in_sets_what_run_sets),
        cmocka_unit_test(units_are_accepted),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
