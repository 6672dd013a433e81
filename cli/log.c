/* mzcache log: what happened, as JSON lines. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"

/* Prints the events above *since, and moves it. */
static int print_new(const struct cli_target *t, uint64_t *since)
{
    for (;;) {
        int rc = CLI_OK;
        size_t i;
        json_t *event, *request = json_pack("{s:s, s:I}", "cmd", "events", "since", (json_int_t)*since);
        json_t *reply = cli_ask(t, request, CLI_ASK_MS, &rc);
        if (!reply)
            return rc;
        json_t *events = json_object_get(reply, "events");
        json_array_foreach(events, i, event) cli_print_json(t, event);
        size_t n = json_array_size(events);
        *since = cli_number(reply, "last");
        json_decref(reply);
        if (n == 0)
            return CLI_OK;
    }
}

/* Connections that lie idle may be closed by the other end, so each look has its own. */
static int follow(pid_t pid, uint64_t since)
{
    char text[24];
    struct cli_input input = {.command = &cli_log, .n_options = 1, .options = {{"pid", 'p', "PID", ""}}};

    (void)snprintf(text, sizeof(text), "%ld", (long)pid);
    input.values[0] = text;
    for (;;) {
        struct cli_target *target;
        size_t n;
        (void)fflush(stdout);
        (void)sleep(1);
        int rc = cli_targets(&input, &target, &n);
        if (rc != CLI_OK)
            return rc == CLI_NO_PROCESS ? CLI_OK : rc; /* it ended, and so does its log */
        rc = print_new(target, &since);
        cli_targets_free(target, n);
        if (rc == CLI_NO_PROCESS)
            return CLI_OK;
        if (rc != CLI_OK || ferror(stdout))
            return rc;
    }
}

static int run(const struct cli_input *input)
{
    struct cli_target *targets;
    size_t n;
    int rc =
        cli_value(input, "follow") ? cli_targets_one(input, &targets, &n) : cli_targets(input, &targets, &n);
    uint64_t since = 0;

    for (size_t i = 0; rc == CLI_OK && i < n; i++) {
        since = 0;
        rc = print_new(&targets[i], &since);
    }
    if (rc == CLI_OK && cli_value(input, "follow")) {
        pid_t pid = targets[0].pid;
        cli_targets_free(targets, n);
        return follow(pid, since);
    }
    if (rc == CLI_OK)
        cli_targets_free(targets, n);
    return rc;
}

static const struct cli_option options[] = {
    {"follow", 'f', NULL, "go on as events happen, until the process ends"},
    {"pid", 'p', "PID", "this process; needed to follow when several hold a model"},
    {0},
};

const struct cli_command cli_log = {
    .name = "log",
    .operands = "",
    .summary = "Print what happened (evictions, restores, refusals) as JSON lines",
    .options = options,
    .run = run,
};
