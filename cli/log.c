/* mzcache log: what happened. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static void print_event(const struct cli_target *t, const json_t *event, bool json)
{
    char clock[CLI_TEXT], text[CLI_EVENT];

    if (json)
        cli_print_json(t, event);
    else
        (void)printf("%s %s (%ld) %s\n", cli_clock(cli_real(event, "time_s"), "%F %T", clock), t->program,
                     (long)t->pid, cli_event(event, text));
}

/* Adds the events above *since to the list, and moves it. */
static int get_new(const struct cli_target *t, uint64_t *since, json_t *list)
{
    for (;;) {
        int rc = CLI_OK;
        json_t *reply = cli_ask(t, json_pack("{s:s, s:I}", "cmd", "events", "since", (json_int_t)*since),
                                CLI_ASK_MS, &rc);
        if (!reply)
            return rc;
        json_t *events = json_object_get(reply, "events");
        size_t n = json_array_size(events);
        (void)json_array_extend(list, events);
        *since = cli_number(reply, "last");
        json_decref(reply);
        if (n == 0)
            return CLI_OK;
    }
}

/* The place of the target whose next event is the oldest; n when there are no more. */
static size_t oldest(json_t *const *lists, const size_t *at, size_t n)
{
    size_t found = n;
    double first = 0;

    for (size_t i = 0; i < n; i++) {
        const json_t *event = json_array_get(lists[i], at[i]);
        if (event && (found == n || cli_real(event, "time_s") < first)) {
            found = i;
            first = cli_real(event, "time_s");
        }
    }
    return found;
}

/* Prints what is new of each in the order in which it happened; since[i] is moved. */
static int print_new(const struct cli_target *targets, size_t n, bool json, uint64_t *since)
{
    json_t **lists = calloc(n, sizeof(*lists));
    size_t *at = calloc(n, sizeof(*at));
    int rc = lists && at ? CLI_OK : CLI_FAILED;

    for (size_t i = 0; rc == CLI_OK && i < n; i++)
        rc = get_new(&targets[i], &since[i], lists[i] = json_array());
    for (size_t i; rc == CLI_OK && (i = oldest(lists, at, n)) < n;)
        print_event(&targets[i], json_array_get(lists[i], at[i]++), json);
    for (size_t i = 0; lists && i < n; i++)
        json_decref(lists[i]);
    free(lists);
    free(at);
    return rc;
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
        rc = print_new(&target, 1, json, &since);
        cli_target_close(&target);
        if (rc == CLI_NO_PROCESS)
            return CLI_OK;
        if (rc != CLI_OK || ferror(stdout))
            return rc;
    }
}

static int run(const struct cli_input *input)
{
    bool json = cli_value(input, "json"), follows = cli_value(input, "follow");
    struct cli_target *targets;
    size_t n;
    int rc = follows ? cli_targets_one(input, &targets, &n) : cli_targets(input, &targets, &n);

    if (rc != CLI_OK)
        return rc;
    pid_t pid = targets[0].pid;
    uint64_t *since = calloc(n, sizeof(*since)), last = 0;
    rc = since ? print_new(targets, n, json, since) : CLI_FAILED;
    last = since ? since[0] : 0;
    free(since);
    cli_targets_free(targets, n);
    return rc == CLI_OK && follows ? follow(pid, json, last) : rc;
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
