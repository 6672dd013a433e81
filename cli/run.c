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

enum show { QUIET, EXPLAIN, PLAIN };

/* Tells people what is set and why, or prints it as it stands in a file of variables. */
static void show_variable(enum show show, const char *name, const char *value, const char *why)
{
    if (show == EXPLAIN)
        (void)fprintf(stderr, "  %s=%-*s  %s\n", name, *why ? (int)(30 - strlen(name)) : 0, value, why);
    else if (show == PLAIN)
        (void)printf("%s=%s\n", name, value);
}

static int check_options(const struct cli_input *input)
{
    struct mz_setting setting;

    for (uint32_t i = 0; mz_setting_row(i, &setting); i++) {
        const char *value = cli_value(input, setting.name);
        if (value && !cli_setting(input, &setting, value))
            return CLI_USAGE;
    }
    return CLI_OK;
}

/* Hands the options over as variables. */
static int set_options(const struct cli_input *input, enum show show)
{
    struct mz_setting setting;

    for (uint32_t i = 0; mz_setting_row(i, &setting); i++) {
        const char *value = cli_value(input, setting.name);
        if (!value)
            continue;
        if (setenv(setting.env, value, 1) < 0)
            return CLI_FAILED;
        show_variable(show, setting.env, value, "");
    }
    return CLI_OK;
}

static int set_program(const char *plugin, char *const *argv, enum show show)
{
    for (const struct run_set *set = run_sets; set->name; set++) {
        const char *value = set->value ? set->value : plugin;
        bool given = run_is_given(set, argv);
        if (!given && setenv(set->name, value, 1) < 0)
            return CLI_FAILED;
        if (!given)
            show_variable(show, set->name, value, set->why);
        else if (show == EXPLAIN)
            (void)fprintf(stderr, "  %-31s  left as you gave it\n", set->name);
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

/* execvp() failed. */
static int not_started(const char *program, int err)
{
    if (err == ENOENT && !strchr(program, '/'))
        cli_error("%s is in none of the folders of PATH: name it with its folder", program);
    else
        cli_error("%s cannot be started: %s", program, strerror(err));
    return err == ENOENT ? CLI_NOT_FOUND : CLI_CANNOT_RUN;
}

static int run(const struct cli_input *input)
{
    char plugin[PATH_MAX];
    bool dry = cli_value(input, "dry-run");
    enum show show = dry ? PLAIN : cli_value(input, "quiet") ? QUIET : EXPLAIN;

    if (run_find_plugin(plugin, sizeof(plugin)) < 0) {
        const char *named = getenv("MZ_PLUGIN");
        cli_error("libggml-mz.so was not found %s%s",
                  named ? "at MZ_PLUGIN=" : "beside the command or in its lib folder",
                  named ? named : "; name it with MZ_PLUGIN");
        return CLI_FAILED;
    }
    int rc = check_options(input);
    if (rc == CLI_OK && show == EXPLAIN)
        cli_error("starting %s with", input->operands[0]);
    if (rc == CLI_OK)
        rc = set_options(input, show);
    if (rc == CLI_OK) {
        warn_foreign_plugin(plugin);
        rc = set_program(plugin, input->operands + 1, show);
    }
    if (rc != CLI_OK)
        return rc;
    (void)run_warn(input->operands + 1);
    if (strstr(input->operands[0], "llama-bench"))
        cli_error("note: llama-bench reads no variable that begins with LLAMA_ARG: give it -dev MZ0");
    if (dry)
        return CLI_OK;
    (void)execvp(input->operands[0], input->operands);
    return not_started(input->operands[0], errno);
}

static const struct cli_option options[] = {
    {"quiet", 'q', NULL, "do not show what is set"},
    {"dry-run", 'n', NULL, "start nothing; print the variables as NAME=VALUE, for others to start it with"},
    {0},
};

const struct cli_command cli_run = {
    .name = "run",
    .operands = "[--] PROGRAM [ARGUMENT]...",
    .summary = "Start a llama.cpp program with mzCache in it",
    .help = "Sets environment variables and becomes the program. What the program's own arguments or the "
            "environment say already is left alone: the device (MZ0), --cache-ram (0), --swa-full (on), "
            "--ctx-checkpoints (2), how long waiting threads spin (GOMP_SPINCOUNT). The options below reach "
            "mzCache as variables; most of them can be changed later by mzcache option.\n",
    .options = options,
    .settings = true,
    .min_operands = 1,
    .max_operands = -1,
    .run = run,
};
