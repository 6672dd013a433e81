/* mzcache log: what happened. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static void print_event(const struct cli_target *t, const json_t *event)
{
    double time_s = cli_real(event, "time_s");
    time_t when = time_s > 0 && time_s < 1e12 ? (time_t)time_s : 0;
    char size[CLI_TEXT], clock[32] = "";
    struct tm tm;

    if (localtime_r(&when, &tm))
        (void)strftime(clock, sizeof(clock), "%F %T", &tm);
    (void)printf("%s %s (%ld) %-8s %9s %7.0f ms  %s\n", clock, t->program, (long)t->pid,
                 cli_text(event, "what"), cli_size(cli_number(event, "bytes"), size), cli_real(event, "ms"),
                 cli_text(event, "why"));
}

/* Prints the events above *since, and moves it. */
static int print_new(const struct cli_target *t, bool json, uint64_t *since)
{
    for (;;) {
        int rc = CLI_OK;
        size_t i;
        json_t *event, *request = json_pack("{s:s, s:I}", "cmd", "events", "since", (json_int_t)*since);
        json_t *reply = cli_ask(t, request, CLI_ASK_MS, &rc);
        if (!reply)
            return rc;
        json_t *events = json_object_get(reply, "events");
        json_array_foreach(events, i, event)
        {
            if (json)
                cli_print_json(t, event);
            else
                print_event(t, event);
        }
        size_t n = json_array_size(events);
        *since = cli_number(reply, "last");
        json_decref(reply);
        if (n == 0)
            return CLI_OK;
    }
}

/* Connections that lie idle may be closed by the other end, so each look has its own. */
static int follow(pid_t pid, bool json, uint64_t since)
{
    for (;;) {
        struct cli_target target;
        (void)fflush(stdout);
        (void)sleep(1);
        int rc = cli_target_open(pid, &target);
        if (rc == -ENOENT || rc == -ECONNRESET)
            return CLI_OK; /* it ended, and so does its log */
        if (rc < 0) {
            cli_error("process %ld does not answer: %s", (long)pid, strerror(-rc));
            return CLI_FAILED;
        }
        rc = print_new(&target, json, &since);
        cli_target_close(&target);
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
    bool json = cli_value(input, "json");
    uint64_t since = 0;

    for (size_t i = 0; rc == CLI_OK && i < n; i++) {
        since = 0;
        rc = print_new(&targets[i], json, &since);
    }
    if (rc == CLI_OK && cli_value(input, "follow")) {
        pid_t pid = targets[0].pid;
        cli_targets_free(targets, n);
        return follow(pid, json, since);
    }
    if (rc == CLI_OK)
        cli_targets_free(targets, n);
    return rc;
}

static const struct cli_option options[] = {
    {"follow", 'f', NULL, "go on as events happen, until the process ends"},
    {"pid", 'p', "PID", "this process; needed to follow when several hold a model"},
    {"json", 'j', NULL, "one JSON object a line"},
    {0},
};

const struct cli_command cli_log = {
    .name = "log",
    .operands = "",
    .summary = "Print what happened: evictions, restores, limits, refusals",
    .help =
        "When, who, what, how much, how long it took, and why: \"mzcache evict\", \"idle\", or which source "
        "of "
        "memory pressure asked. Restores are those that were asked for; what computing brings back by itself "
        "is only counted (mzcache status). The last 256 events are kept.\n",
    .options = options,
    .run = run,
};
