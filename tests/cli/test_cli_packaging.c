/* What comes with the command says the same as the command: the options and variables in the man pages, the
 * variables in the drop-in. The units are accepted by systemd. */
#include "cli_test.h"

#include <ctype.h>
#include <ftw.h>

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

/* A man page as it is read: without the backslashes before hyphens. */
static char *read_page(const char *path)
{
    char *page = read_file(path), *to = page;

    for (const char *from = page; *from; from++)
        if (from[0] != '\\' || from[1] != '-')
            *to++ = *from;
    *to = '\0';
    return page;
}

static bool goes_on(int c)
{
    return isalnum(c) || c == '_' || c == '-';
}

/* Whether the text has this word, and not only a longer one. */
static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length)
        if ((at == text || !goes_on(at[-1])) && !goes_on(at[length]))
            return true;
    return false;
}

/* The next word from `at` on that begins with `start` and goes on with some of `more`: copied. NULL: there is
 * none. */
static const char *next_word(const char *at, const char *start, const char *more, char *buf, size_t size)
{
    for (const char *text = at; (at = strstr(at, start)) != NULL; at++) {
        size_t length = strlen(start), rest = strspn(at + length, more);
        if (rest == 0 || (at > text && goes_on(at[-1])))
            continue;
        (void)snprintf(buf, size, "%.*s", (int)(length + rest), at);
        return at + length + rest;
    }
    return NULL;
}

/* Whether any command has this option. */
static bool is_flag(const char *name)
{
    struct cli_option flags[CLI_OPTIONS];

    for (const struct cli_command *const *c = cli_commands; *c; c++)
        for (size_t i = cli_options(*c, flags); i-- > 0;)
            if (strcmp(flags[i].name, name) == 0)
                return true;
    return false;
}

static void man_page_has_all_flags(void **state)
{
    char *page = read_page(MZ_SOURCE_DIR "/docs/man/mzcache.1"), word[64];
    struct cli_option flags[CLI_OPTIONS];

    (void)state;
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        for (size_t i = cli_options(*c, flags); i-- > 0;) {
            (void)snprintf(word, sizeof(word), "--%s", flags[i].name);
            if (!has_word(page, word))
                print_error("mzcache.1 does not have %s of mzcache %s\n", word, (*c)->name);
            assert_true(has_word(page, word));
        }
    free(page);
}

static void man_page_has_no_other_flags(void **state)
{
    static const char *const foreign[] = {"--list-devices", "--ctx-checkpoints"}; /* llama.cpp's */
    char *page = read_page(MZ_SOURCE_DIR "/docs/man/mzcache.1"), word[64];

    (void)state;
    for (const char *at = page;
         (at = next_word(at, "--", "abcdefghijklmnopqrstuvwxyz-", word, sizeof(word)));) {
        bool known = is_flag(word + 2);
        for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++)
            known = known || strcmp(word, foreign[i]) == 0;
        if (!known)
            print_error("mzcache.1 has %s, which no command takes\n", word);
        assert_true(known);
    }
    free(page);
}

/* ------------------------------------------------------------------------------------------- variables */

#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"

static char variables[8192]; /* those that library and command know, with spaces between */

/* Collects what stands between quotes in a source file: no macro does. */
static int collect(const char *path, const struct stat *stat, int type, struct FTW *place)
{
    size_t length = strlen(path);
    char word[64];

    (void)stat, (void)place;
    if (type != FTW_F || length < 2 || strcmp(path + length - 2, ".c") != 0)
        return 0;
    char *text = read_file(path);
    for (const char *at = text; (at = next_word(at, "\"MZ_", CAPITALS, word, sizeof(word)));) {
        if (*at != '"' || has_word(variables, word + 1))
            continue;
        size_t used = strlen(variables);
        assert_true(snprintf(variables + used, sizeof(variables) - used, "%s ", word + 1) <
                    (int)(sizeof(variables) - used));
    }
    free(text);
    return 0;
}

/* Users' variables are in the man pages, those for finding errors in CONTRIBUTING.md. */
static void every_variable_is_documented(void **state)
{
    char *plugin = read_page(MZ_SOURCE_DIR "/docs/man/libggml-mz.7"),
         *command = read_page(MZ_SOURCE_DIR "/docs/man/mzcache.1"),
         *developers = read_file(MZ_SOURCE_DIR "/CONTRIBUTING.md"), word[64];
    struct mz_setting setting;

    (void)state;
    assert_int_equal(nftw(MZ_SOURCE_DIR "/src", collect, 16, FTW_PHYS), 0);
    assert_int_equal(nftw(MZ_SOURCE_DIR "/cli", collect, 16, FTW_PHYS), 0);
    for (uint32_t i = 0; mz_setting_row(i, &setting); i++) {
        if (!has_word(plugin, setting.env))
            print_error("libggml-mz.7 does not have %s\n", setting.env);
        assert_true(has_word(plugin, setting.env) && has_word(variables, setting.env));
    }
    for (const char *at = variables; (at = next_word(at, "MZ_", CAPITALS, word, sizeof(word)));) {
        bool there = has_word(plugin, word) || has_word(command, word) || has_word(developers, word);
        if (!there)
            print_error("%s is documented nowhere\n", word);
        assert_true(there);
    }
    for (const char *at = plugin; (at = next_word(at, "MZ_", CAPITALS, word, sizeof(word)));) {
        if (!has_word(variables, word))
            print_error("libggml-mz.7 has %s, which nothing reads\n", word);
        assert_true(has_word(variables, word));
    }
    free(developers);
    free(command);
    free(plugin);
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

/* The bench starts its programs itself. Of the list it needs what is not about llama.cpp's options. */
static void bench_sets_what_run_sets(void **state)
{
    char *text = read_file(MZ_SOURCE_DIR "/bench/jobs.py"), wanted[256];

    (void)state;
    for (const struct run_set *set = run_sets; set->name; set++) {
        if (!set->value || strncmp(set->name, "LLAMA_ARG_", 10) == 0)
            continue;
        (void)snprintf(wanted, sizeof(wanted), "\"%s\": \"%s\"", set->name, set->value);
        assert_non_null(strstr(text, wanted));
    }
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
        cmocka_unit_test(man_page_has_all_options),     cmocka_unit_test(man_page_has_all_commands),
        cmocka_unit_test(man_page_has_all_flags),       cmocka_unit_test(man_page_has_no_other_flags),
        cmocka_unit_test(every_variable_is_documented), cmocka_unit_test(drop_in_sets_what_run_sets),
        cmocka_unit_test(bench_sets_what_run_sets),     cmocka_unit_test(units_are_accepted),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
