/* mzcache option: shows and sets what a running process does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "control/settings.h"

static void print_all(const json_t *options)
{
    struct mz_setting setting;

    for (uint32_t i = 0; mz_setting_row(i, &setting); i++)
        if (json_object_get(options, setting.name))
            (void)printf("%-16s %-24s %s\n", setting.name, cli_text(options, setting.name), setting.help);
}

static json_t *request_of(const struct cli_input *input)
{
    char **words = input->operands;

    switch (input->n_operands) {
    case 0:
        return json_pack("{s:s}", "cmd", "options");
    case 1:
        return json_pack("{s:s, s:s}", "cmd", "option_get", "name", words[0]);
    default:
        return json_pack("{s:s, s:s, s:s}", "cmd", "option_set", "name", words[0], "value", words[1]);
    }
}

static int option_one(const struct cli_input *input, const struct cli_target *t)
{
    int rc = CLI_OK;
    json_t *reply = cli_ask(t, request_of(input), 0, &rc);

    if (!reply)
        return rc;
    if (cli_value(input, "json"))
        cli_print_json(t, input->n_operands ? reply : json_object_get(reply, "options"));
    else if (input->n_operands == 0)
        print_all(json_object_get(reply, "options"));
    else if (input->n_operands == 1)
        (void)puts(cli_text(reply, "value"));
    json_decref(reply);
    return CLI_OK;
}

static int run(const struct cli_input *input)
{
    struct mz_setting setting;
    struct cli_target *targets;
    size_t n;

    if (input->n_operands > 0 && !mz_setting_find(input->operands[0], &setting))
        return cli_usage(input, "there is no option \"%s\"", input->operands[0]);
    if (input->n_operands == 2 && !cli_setting(input, &setting, input->operands[1]))
        return CLI_USAGE;
    int rc = cli_targets_one(input, &targets, &n);
    return rc == CLI_OK ? cli_each(input, targets, n, option_one) : rc;
}

static const struct cli_option options[] = {
    {"pid", 'p', "PID", "this process; needed when several hold a model"},
    {"all", 'a', NULL, "every process that holds a model"},
    {"json", 'j', NULL, "one JSON object a line"},
    {0},
};

const struct cli_command cli_option = {
    .name = "option",
    .operands = "[NAME [VALUE]]",
    .summary = "Show the options of a running process, or set one",
    .help =
        "Without operands shows all, with what each of them means. The names are those of mzcache run. What "
        "counts at start only (pressure, control, log, ...) is refused.\n",
    .options = options,
    .max_operands = 2,
    .run = run,
};
