/* mzcache ps: the processes that mzCache is in. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

static void print_row(const struct cli_target *t)
{
    char total[CLI_TEXT], remaining[CLI_TEXT], limit[CLI_TEXT], idle[CLI_TEXT];
    uint64_t limit_bytes = cli_number(t->brief, "limit_bytes");

    (void)printf("%7ld  %-15s %9s %9s %4.0f%% %9s  %-10s  %s\n", (long)t->pid, t->program,
                 cli_size(cli_number(t->brief, "total_bytes"), total),
                 cli_size(cli_number(t->brief, "remaining_bytes"), remaining),
                 cli_real(t->brief, "remaining_percent"), limit_bytes ? cli_size(limit_bytes, limit) : "-",
                 cli_idle(t->brief, idle), cli_model(t->brief));
}

static int run(const struct cli_input *input)
{
    struct cli_target *targets;
    size_t n, shown = 0;
    bool json = cli_value(input, "json"), all = cli_value(input, "all");
    int rc = cli_targets_all(&targets, &n);

    if (rc != CLI_OK)
        return rc;
    if (!json)
        (void)printf("%7s  %-15s %9s %9s %5s %9s  %-10s  %s\n", "PID", "PROGRAM", "TOTAL", "IN MEMORY", "",
                     "LIMIT", "IDLE", "MODEL");
    for (size_t i = 0; i < n; i++) {
        if (!all && cli_number(targets[i].brief, "total_bytes") == 0)
            continue;
        shown++;
        if (json)
            cli_print_json(&targets[i], targets[i].brief);
        else
            print_row(&targets[i]);
    }
    cli_targets_free(targets, n);
    if (shown == 0 && !json)
        cli_error(n ? "no process has a model yet (--all shows those without)"
                    : "no process found; start one with: mzcache run -- llama-server ...");
    return CLI_OK;
}

static const struct cli_option options[] = {
    {"all", 'a', NULL, "also those that have no model (a router, a program that still loads)"},
    {"json", 'j', NULL, "one JSON object a line"},
    {0},
};

const struct cli_command cli_ps = {
    .name = "ps",
    .operands = "",
    .summary = "List the processes that hold a model, the one idle longest first",
    .options = options,
    .run = run,
};
