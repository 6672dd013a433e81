/* mzcache run: starts a llama.cpp program with mzCache in it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "control/settings.h"
#include "run_env.h"

/* A value that the library would refuse is refused here, where somebody reads it. */
static bool check_setting(const struct mz_setting *setting, const char *value)
{
    const char *word = setting->values;

    if (strpbrk(setting->values, "ABCDEFGHIJKLMNOPQRSTUVWXYZ.") || !strchr(setting->values, '|'))
        return *value != '\0'; /* not a list of words: the library reads it */
    for (size_t length = strlen(value); *word; word += strcspn(word, "|"), word += *word == '|')
        if (strcspn(word, "|") == length && strncmp(word, value, length) == 0)
            return true;
    return false;
}

/* Hands the options over as variables. */
static int set_options(const struct cli_input *input, bool show)
{
    struct mz_setting setting;

    for (uint32_t i = 0; mz_setting_row(i, &setting); i++) {
        const char *value = cli_value(input, setting.name);
        if (!value)
            continue;
        if (!check_setting(&setting, value))
            return cli_usage(input, "--%s: \"%s\" is not %s", setting.name, value, setting.values);
        if (setenv(setting.env, value, 1) < 0)
            return CLI_FAILED;
        if (show)
            (void)fprintf(stderr, "  %-26s %s\n", setting.env, value);
    }
    return CLI_OK;
}

static int set_program(const char *plugin, char *const *argv, bool show)
{
    for (const struct run_set *set = run_sets; set->name; set++) {
        const char *value = set->value ? set->value : plugin;
        bool given = run_is_given(set, argv);
        if (!given && setenv(set->name, value, 1) < 0)
            return CLI_FAILED;
        if (show && given)
            (void)fprintf(stderr, "  %-26s (left as you gave it)\n", set->name);
        else if (show)
            (void)fprintf(stderr, "  %-26s %-8s %s\n", set->name, value, set->why);
    }
    return CLI_OK;
}

/* The loader takes one plugin from the variable: somebody else's stays, and then mzCache is not loaded. */
static void warn_foreign_plugin(const char *plugin)
{
    const char *given = getenv("GGML_BACKEND_PATH");

    if (given && strcmp(given, plugin) != 0)
        cli_error("note: GGML_BACKEND_PATH is %s: mzCache is loaded only if that is its plugin", given);
}

static int run(const struct cli_input *input)
{
    char plugin[PATH_MAX];
    bool show = !cli_value(input, "quiet");

    if (run_find_plugin(plugin, sizeof(plugin)) < 0) {
        const char *named = getenv("MZ_PLUGIN");
        cli_error("libggml-mz.so was not found %s%s",
                  named ? "at MZ_PLUGIN=" : "beside the command or in its lib folder",
                  named ? named : "; name it with MZ_PLUGIN");
        return CLI_FAILED;
    }
    if (show)
        cli_error("starting %s with:", input->operands[0]);
    int rc = set_options(input, show);
    if (rc == CLI_OK) {
        warn_foreign_plugin(plugin);
        rc = set_program(plugin, input->operands + 1, show);
    }
    if (rc != CLI_OK)
        return rc;
    (void)run_warn(input->operands + 1);
    if (strstr(input->operands[0], "llama-bench"))
        cli_error("note: llama-bench reads no variable that begins with LLAMA_ARG: give it -dev MZ0");
    if (cli_value(input, "dry-run"))
        return CLI_OK;
    (void)execvp(input->operands[0], input->operands);
    rc = errno == ENOENT ? CLI_NOT_FOUND : CLI_CANNOT_RUN;
    cli_error("%s: %s", input->operands[0], strerror(errno));
    return rc;
}

static const struct cli_option options[] = {
    {"quiet", 'q', NULL, "do not show what is set"},
    {"dry-run", 'n', NULL, "show what would be set, start nothing"},
    {0},
};

const struct cli_command cli_run = {
    .name = "run",
    .operands = "[--] PROGRAM [ARGUMENT]...",
    .summary = "Start a llama.cpp program with mzCache in it",
    .help = "Sets environment variables and becomes the program. What the program's own arguments or the "
            "environment\n"
            "say already is left alone: the device (MZ0), --cache-ram (0), --swa-full (on), "
            "--ctx-checkpoints (2), how long waiting threads spin (GOMP_SPINCOUNT).\n"
            "The options below reach mzCache as variables; most of them can be changed later by mzcache "
            "option.\n",
    .options = options,
    .settings = true,
    .min_operands = 1,
    .max_operands = -1,
    .run = run,
};
