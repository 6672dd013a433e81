/* The completions in packaging/ are what the command prints, and real shells complete by them. */
#include "cli_test.h"

#include <libgen.h>

static void compare(const char *shell, const char *path)
{
    static char file[OUTPUT_BYTES];
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0);
    ssize_t n = read(fd, file, sizeof(file) - 1);
    assert_true(n > 0);
    file[n] = '\0';
    (void)close(fd);
    mzcache("completion", shell);
    expect_exit(0);
    if (strcmp(last.out, file) != 0)
        print_error("%s is out of date: mzcache completion %s > %s\n", path, shell, path);
    assert_string_equal(last.out, file);
}

static void same_as_packaged(void **state)
{
    (void)state;
    compare("bash", MZ_SOURCE_DIR "/packaging/completion/mzcache.bash");
    compare("zsh", MZ_SOURCE_DIR "/packaging/completion/_mzcache");
}

/* The commands are found by name, as a shell finds them. */
static int setup(void **state)
{
    char command[] = MZ_COMMAND, path[4096];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s:%s", dirname(command), getenv("PATH"));
    return setenv("PATH", path, 1);
}

/* Types the line into that shell; with all completions of its last word it becomes `wanted`. */
static void complete(const char *shell, const char *line, const char *wanted)
{
    const char *where = strcmp(shell, "zsh") == 0 ? MZ_SOURCE_DIR "/packaging/completion"
                                                  : MZ_SOURCE_DIR "/packaging/completion/mzcache.bash";
    const char *argv[] = {"zsh", MZ_SOURCE_DIR "/tests/cli/complete.zsh", shell, where, line, NULL};

    run_program(&last, "zsh", (char *const *)(uintptr_t)argv);
    expect_exit(0);
    last.out[strcspn(last.out, "\n")] = '\0';
    if (strcmp(last.out, wanted) != 0)
        print_error("%s completes \"%s\"\n", shell, line);
    assert_string_equal(last.out, wanted);
}

static void need_zsh(void)
{
    const char *argv[] = {"zsh", "--version", NULL};

    run_program(&last, "zsh", (char *const *)(uintptr_t)argv);
    if (last.exit != 0) {
        print_message("skipped: zsh, which types into the shells, is not installed\n");
        skip();
    }
}

static void completes_in(const char *shell)
{
    need_zsh();
    complete(shell, "mzcache st", "mzcache status ");
    complete(shell, "mzcache p", "mzcache pack profile ps ");
    complete(shell, "mzcache log --",
             strcmp(shell, "zsh") == 0 ? "mzcache log --follow --help --json --pid="
                                       : "mzcache log --follow --help --json --pid ");
    complete(shell, "mzcache run --kv ", "mzcache run --kv exact q8 ");
    complete(shell, "mzcache run --kv=e", "mzcache run --kv=exact ");
    complete(shell, "mzcache run --swap-folder /usr/bin/basenam",
             "mzcache run --swap-folder /usr/bin/basename ");
    complete(shell, "mzcache run --quiet --kv=q8 basenam", "mzcache run --quiet --kv=q8 basename ");
    complete(shell, "mzcache run --kv q8 -- cat /usr/bin/basenam",
             "mzcache run --kv q8 -- cat /usr/bin/basename ");
    complete(shell, "mzcache option swap-fol", "mzcache option swap-folder ");
    complete(shell, "mzcache option order b", "mzcache option order backward ");
    complete(shell, "mzcache limit ", "mzcache limit off ");
    complete(shell, "mzcache pack /usr/bin/basenam", "mzcache pack /usr/bin/basename ");
    complete(shell, "mzcache doctor basenam", "mzcache doctor basename ");
}

static void processes_complete(void **state)
{
    char folder[64], one[64];
    struct fake fake;

    (void)state;
    need_zsh();
    live_in_folder(folder, sizeof(folder));
    fake_start(&fake, "model");
    (void)snprintf(one, sizeof(one), "mzcache evict --pid %s ", fake.pid_text);
    complete("bash", "mzcache evict --pid ", one);
    complete("zsh", "mzcache evict --pid ", one);
    fake_end(&fake);
    remove_folder(folder);
}

static void bash_completes(void **state)
{
    (void)state;
    completes_in("bash");
}

static void zsh_completes(void **state)
{
    (void)state;
    completes_in("zsh");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_packaged),
        cmocka_unit_test(bash_completes),
        cmocka_unit_test(zsh_completes),
        cmocka_unit_test(processes_complete),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
