/* The completions in packaging/ are what the command prints, and a shell accepts them. */
#include "cli_test.h"

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

/* Completes the last word in a bash that has read the file. */
static void complete(const char *words)
{
    static const char script[] =
        "source \"$1\"; COMP_WORDS=($2 ''); set -- ${2##* }; COMP_CWORD=$((${#COMP_WORDS[@]} - 2)); "
        "unset 'COMP_WORDS[-1]'; _mzcache; printf '%s\\n' \"${COMPREPLY[@]}\"";
    const char *argv[] = {"bash", "-c", script, "bash", MZ_SOURCE_DIR "/packaging/completion/mzcache.bash",
                          words,  NULL};

    run_program(&last, "bash", (char *const *)(uintptr_t)argv);
    expect_exit(0);
    assert_string_equal(last.err, "");
}

static void completes(void **state)
{
    (void)state;
    complete("mzcache st");
    assert_string_equal(last.out, "status\n");
    complete("mzcache evict --t");
    assert_string_equal(last.out, "--to\n");
    complete("mzcache run --kv q");
    assert_string_equal(last.out, "q8\n");
    complete("mzcache run --swap-fo");
    assert_non_null(strstr(last.out, "--swap-folder"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_packaged),
        cmocka_unit_test(completes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
