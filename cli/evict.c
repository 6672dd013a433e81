/* mzcache evict: takes memory from models. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

static void print_report(const struct cli_input *input, const struct cli_target *t, const json_t *report)
{
    char freed[CLI_TEXT], remaining[CLI_TEXT], total[CLI_TEXT];
    uint64_t asked = cli_number(report, "asked_bytes"), freed_bytes = cli_number(report, "freed_bytes");

    if (cli_value(input, "json")) {
        cli_print_json(t, report);
        return;
    }
    (void)printf("%s (%ld): freed %s in %.0f ms; %s of %s remain\n", t->program, (long)t->pid,
                 cli_size(freed_bytes, freed), cli_real(report, "ms"),
                 cli_size(cli_number(report, "remaining_bytes"), remaining),
                 cli_size(cli_number(report, "total_bytes"), total));
    if (*cli_text(report, "write_error"))
        (void)printf("  the rest stays, since the swap file cannot be written: %s\n"
                     "  (--swap-folder of mzcache run names another folder)\n",
                     cli_text(report, "write_error"));
    else if (cli_true(t->brief, "computing"))
        (void)printf("  (it computes, and brings back what it needs)\n");
    else if (freed_bytes < asked)
        (void)printf("  that is all that can be freed now\n");
}

/* Sends one eviction; adds what was freed to *freed. */
static int evict_one(const struct cli_input *input, const struct cli_target *t, json_t *request,
                     uint64_t *freed)
{
    int rc = CLI_OK;
    json_t *report;

    (void)json_object_set_new(request, "why", json_string("mzcache evict"));
    report = cli_ask(t, request, 0, &rc);
    if (!report)
        return rc;
    *freed += cli_number(report, "freed_bytes");
    print_report(input, t, report);
    json_decref(report);
    return CLI_OK;
}

static json_t *percent_request(const char *command, uint32_t permyriad)
{
    return json_pack("{s:s, s:f}", "cmd", command, "percent", (double)permyriad / 100);
}

static int each(const struct cli_input *input, const struct cli_target *targets, size_t n,
                const char *command, uint32_t permyriad)
{
    uint64_t freed = 0;
    int rc = CLI_OK;

    for (size_t i = 0; i < n; i++) {
        int one = evict_one(input, &targets[i], percent_request(command, permyriad), &freed);
        rc = one == CLI_OK ? rc : one;
    }
    return rc;
}

/* A size is taken from the process idle longest first, and from the next only what is still missing. */
static int in_turn(const struct cli_input *input, const struct cli_target *targets, size_t n, uint64_t bytes)
{
    uint64_t freed = 0;
    int rc = CLI_OK;

    for (size_t i = 0; i < n && (freed < bytes || i == 0); i++) {
        json_t *request = json_pack("{s:s, s:I}", "cmd", "evict", "bytes", (json_int_t)(bytes - freed));
        int one = evict_one(input, &targets[i], request, &freed);
        rc = one == CLI_OK ? rc : one;
    }
    return rc;
}

static int run(const struct cli_input *input)
{
    const char *to = cli_value(input, "to"), *text = to ? to : input->operands[0];
    struct mz_amount amount;
    struct cli_target *targets;
    size_t n;

    if (!to == !input->n_operands)
        return cli_usage(input, to ? "give either an amount or --to" : "SIZE|PERCENT is missing");
    if (!cli_amount(input, to ? "a percentage" : "a size or a percentage", text, &amount))
        return CLI_USAGE;
    if (to && !amount.is_share)
        return cli_usage(input, "--to: \"%s\" is not a percentage", text);
    int rc = cli_targets(input, &targets, &n);
    if (rc != CLI_OK)
        return rc;
    if (amount.is_share)
        rc = each(input, targets, n, to ? "evict_to" : "evict", amount.permyriad);
    else
        rc = in_turn(input, targets, n, amount.bytes);
    cli_targets_free(targets, n);
    return rc;
}

static const struct cli_option options[] = {
    {"to", 't', "PERCENT", "down to this share of the total, in place of that much more"},
    {"pid", 'p', "PID", "this process; without it all that hold a model"},
    {"json", 'j', NULL, "one JSON object a line"},
    {0},
};

const struct cli_command cli_evict = {
    .name = "evict",
    .operands = "[SIZE|PERCENT]",
    .summary = "Take that much more memory from a model",
    .help =
        "A percentage is one of the model's total. Of several processes each gives its percentage; a size is "
        "taken from the one idle longest first. Asking for more than there is frees what there is and is no "
        "error. What the next token needs last goes first. Conversations survive, and computing brings back "
        "what it needs by itself.\n",
    .options = options,
    .max_operands = 1,
    .run = run,
};
