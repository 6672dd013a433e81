/* mzcache limit: bounds the memory of a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static int limit_one(const struct cli_input *input, const struct cli_target *t)
{
    const char *value = input->operands[0];
    int rc = CLI_OK;
    char size[CLI_TEXT];
    json_t *reply = cli_ask(t, json_pack("{s:s, s:s}", "cmd", "limit", "value", value), 0, &rc);

    if (!reply)
        return rc;
    uint64_t bytes = cli_number(reply, "limit_bytes");
    if (cli_value(input, "json"))
        cli_print_json(t, reply);
    else
        (void)printf("%s (%ld): limit %s\n", t->program, (long)t->pid, bytes ? cli_size(bytes, size) : "off");
    json_decref(reply);
    return CLI_OK;
}

static int run(const struct cli_input *input)
{
    const char *value = input->operands[0];
    struct mz_amount amount;
    struct cli_target *targets;
    size_t n;

    if (strcmp(value, "off") != 0 && !cli_amount(input, "a size, a percentage or \"off\"", value, &amount))
        return CLI_USAGE;
    int rc = cli_targets_one(input, &targets, &n);
    return rc == CLI_OK ? cli_each(input, targets, n, limit_one) : rc;
}

static const struct cli_option options[] = {
    {"pid", 'p', "PID", "this process; needed when several hold a model"},
    {"all", 'a', NULL, "every process that holds a model, each for itself"},
    {"json", 'j', NULL, "one JSON object a line"},
    {0},
};

const struct cli_command cli_limit = {
    .name = "limit",
    .operands = "SIZE|PERCENT|off",
    .summary = "Bound all memory that mzCache holds in a process, at every moment",
    .help =
        "Evicts down to the limit first. A model larger than its limit goes on by reading layers as it needs "
        "them, which is slow: the disk sets the pace. A limit below what computing needs at least is "
        "refused, "
        "with that number (exit code 4). A percentage is one of the model's total at this moment.\n",
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
