/* mzcache status: where the bytes of a model are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "control/settings.h"

static void print_kinds(const json_t *kinds)
{
    static const char *const columns[] = {"total",   "resident", "stack", "store",
                                          "dropped", "empty",    "lost",  "swapped"};
    const char *name;
    json_t *kind;
    char key[32], size[CLI_TEXT];

    (void)printf("  %-8s", "");
    for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
        (void)printf(" %9s", columns[i]);
    (void)printf("\n");
    json_object_foreach((json_t *)(uintptr_t)kinds, name, kind)
    {
        (void)printf("  %-8s", name);
        for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++) {
            (void)snprintf(key, sizeof(key), "%s_bytes", columns[i]);
            uint64_t bytes = cli_number(kind, key);
            (void)printf(" %9s", bytes ? cli_size(bytes, size) : "-");
        }
        (void)printf("\n");
    }
}

static void print_head(const struct cli_target *t, const json_t *s)
{
    char total[CLI_TEXT], remaining[CLI_TEXT], floor[CLI_TEXT], limit[CLI_TEXT], idle[CLI_TEXT];
    uint64_t limit_bytes = cli_number(s, "limit_bytes");

    (void)printf("%s (%ld), %s: %s of %s in memory (%.1f %%)\n", t->program, (long)t->pid, cli_model(s),
                 cli_size(cli_number(s, "remaining_bytes"), remaining),
                 cli_size(cli_number(s, "total_bytes"), total), cli_real(s, "remaining_percent"));
    (void)printf("  %s%s; cannot go below %s now; limit: %s\n", cli_activity(s, idle),
                 cli_true(s, "restoring") ? ", restoring" : "", cli_size(cli_number(s, "floor_bytes"), floor),
                 limit_bytes ? cli_size(limit_bytes, limit) : "none");
}

static void print_ledger(const json_t *s)
{
    char a[CLI_TEXT], b[CLI_TEXT], c[CLI_TEXT], d[CLI_TEXT];
    const json_t *process = json_object_get(s, "process"),
                 *kv = json_object_get(json_object_get(s, "kinds"), "kv");

    (void)printf("  held by mzCache: %s (at most so far %s), of it %s compressed and %s in reserve\n",
                 cli_size(cli_number(s, "ledger_bytes"), a), cli_size(cli_number(s, "ledger_peak_bytes"), b),
                 cli_size(cli_number(s, "stack_used_bytes"), c),
                 cli_size(cli_number(s, "stack_reserve_bytes"), d));
    (void)printf("  swap file: %s (%s written in all); model file in the page cache: %s\n",
                 cli_size(cli_number(s, "store_file_bytes"), a),
                 cli_size(cli_number(s, "store_written_bytes"), b),
                 cli_size(cli_number(s, "model_cached_bytes"), c));
    if (cli_number(s, "store_packed_bytes") > 0)
        (void)printf("  of it packed weights: %s\n", cli_size(cli_number(s, "store_packed_bytes"), a));
    (void)printf("  not ours: %s anonymous memory, %s mapped files\n",
                 cli_size(cli_number(process, "outside_bytes"), a),
                 cli_size(cli_number(process, "rss_file_bytes"), b));
    (void)printf("  evictions %" PRIu64 ", restores %" PRIu64 " (read %s, decoded %s)\n",
                 cli_number(s, "evictions"), cli_number(s, "restores"),
                 cli_size(cli_number(s, "read_bytes"), a), cli_size(cli_number(s, "decoded_bytes"), b));
    if (cli_number(kv, "lossy_bytes") > 0)
        (void)printf("  passed through a lossy codec: %s of the conversation\n",
                     cli_size(cli_number(kv, "lossy_bytes"), a));
}

static void print_pressure(const json_t *pressure)
{
    char available[CLI_TEXT];
    size_t i;
    json_t *source;

    if (!json_is_object(pressure)) {
        (void)printf("  memory pressure: not watched\n");
        return;
    }
    (void)printf("  memory pressure: %s, watched by %s", cli_text(pressure, "level"),
                 cli_text(pressure, "source"));
    if (json_is_integer(json_object_get(pressure, "available_bytes")))
        (void)printf("; available: %s", cli_size(cli_number(pressure, "available_bytes"), available));
    (void)printf("\n");
    json_array_foreach(json_object_get(pressure, "sources"), i, source)(void)
        printf("    %-14s %-4s %s\n", cli_text(source, "name"), cli_true(source, "live") ? "live" : "off",
               cli_text(source, "detail"));
}

/* Those that differ from what they are at first. */
static void print_options(const json_t *options)
{
    struct mz_setting setting;
    bool any = false;

    for (uint32_t i = 0; mz_setting_row(i, &setting); i++) {
        const char *value = cli_text(options, setting.name);
        if (!json_object_get(options, setting.name) || strcmp(value, setting.initial) == 0)
            continue;
        (void)printf("%s %s=%s", any ? "" : "  options, where not the default:", setting.name, value);
        any = true;
    }
    if (any)
        (void)printf("\n");
}

static int status_one(const struct cli_input *input, const struct cli_target *t)
{
    int rc = CLI_OK;
    json_t *s = cli_ask(t, json_pack("{s:s}", "cmd", "status"), CLI_ASK_MS, &rc);

    if (!s)
        return rc;
    if (cli_value(input, "json")) {
        cli_print_json(t, s);
    } else {
        print_head(t, s);
        print_kinds(json_object_get(s, "kinds"));
        print_ledger(s);
        print_pressure(json_object_get(s, "pressure"));
        print_options(json_object_get(s, "options"));
    }
    json_decref(s);
    return CLI_OK;
}

static int run(const struct cli_input *input)
{
    struct cli_target *targets;
    size_t n;
    int rc = cli_targets(input, &targets, &n);

    return rc == CLI_OK ? cli_each(input, targets, n, status_one) : rc;
}

static const struct cli_option options[] = {
    {"pid", 'p', "PID", "this process; without it all that hold a model"},
    {"json", 'j', NULL, "one JSON object a line"},
    {0},
};

const struct cli_command cli_status = {
    .name = "status",
    .operands = "",
    .summary = "Show where the bytes of a model are",
    .help = "resident: in memory, ready.\n"
            "stack:    compressed in memory.\n"
            "store:    in the swap file.\n"
            "dropped:  in the model file, where it came from.\n"
            "empty:    never written, takes no memory.\n"
            "lost:     could not be read back; mzcache log names it.\n"
            "swapped:  put into the system's own swap.\n\n"
            "Scratch is what computing needs; it is reserved whole and takes memory as far as it was used.\n",
    .options = options,
    .run = run,
};
