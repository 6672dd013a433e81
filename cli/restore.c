/* mzcache restore: brings models back ahead of use. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

static int restore_one(const struct cli_input *input, const struct cli_target *t)
{
    bool wait = cli_value(input, "wait"), stop = cli_value(input, "stop");
    json_t *request = json_pack("{s:s, s:b}", "cmd", stop ? "restore_stop" : "restore", "wait", (int)wait);
    int rc = CLI_OK;
    json_t *reply = cli_ask(t, request, wait ? 0 : CLI_ASK_MS, &rc);

    if (!reply)
        return rc;
    if (cli_value(input, "json"))
        cli_print_json(t, reply);
    else if (wait)
        (void)printf("%s (%ld): %.1f %% in memory\n", t->program, (long)t->pid,
                     cli_real(reply, "remaining_percent"));
    json_decref(reply);
    return CLI_OK;
}

static int run(const struct cli_input *input)
{
    struct cli_target *targets;
    size_t n;
    int rc;

    if (cli_value(input, "wait") && cli_value(input, "stop"))
        return cli_usage(input, "give either --wait or --stop");
    rc = cli_targets(input, &targets, &n);
    return rc == CLI_OK ? cli_each(input, targets, n, restore_one) : rc;
}

static const struct cli_option options[] = {
    {"wait", 'w', NULL, "until everything is back that can be"},
    {"stop", 's', NULL, "stop a restore that was asked for"},
    {"pid", 'p', "PID", "this process; without it all that hold a model"},
    {"json", 'j', NULL, "one JSON object a line"},
    {0},
};

const struct cli_command cli_restore = {
    .name = "restore",
    .operands = "",
    .summary = "Bring a model back ahead of use, in the order in which it will be needed",
    .help =
        "Returns once that was asked for. Cheap and safe to call often: bind it to a hotkey, or call it when "
        "the window of your program opens. Never needed: computing brings back what it needs by itself.\n",
    .options = options,
    .run = run,
};
