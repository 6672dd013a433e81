/* The lines that mzcache top shows. No state. */
#include "top_view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

#define LINE   512
#define EVENTS 5

static const struct part {
    const char *key;
    char mark;
} parts[] = {
    {"resident_bytes", '#'}, {"moving_bytes", '~'},  {"stack_bytes", '='},
    {"store_bytes", '-'},    {"dropped_bytes", '.'}, {"lost_bytes", '!'},
};

#define PARTS (sizeof(parts) / sizeof(*parts))

/* In floating point: replies come from outside, and six sizes may not fit into one. */
static double sum_of(const json_t *layer)
{
    double sum = 0;

    for (size_t i = 0; i < PARTS; i++)
        sum += (double)cli_number(layer, parts[i].key);
    return sum;
}

void top_bar(const json_t *layer, int width, char *buf)
{
    double sum = sum_of(layer), done = 0;
    int at = 0;

    for (size_t i = 0; i < PARTS && sum > 0; i++) {
        uint64_t bytes = cli_number(layer, parts[i].key);
        done += (double)bytes;
        int end = (int)(done / sum * width + 0.5);
        /* What is there at all is seen, as long as there is room. */
        if (bytes && end <= at && at < width)
            end = at + 1;
        while (at < end && at < width)
            buf[at++] = parts[i].mark;
    }
    while (at < width)
        buf[at++] = ' ';
    buf[width] = '\0';
}

struct out {
    void (*line)(void *user, const char *text);
    void *user;
    int width;
};

static void say(const struct out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct out *out, const char *format, ...)
{
    char text[LINE];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (out->width > 0 && out->width < LINE)
        text[out->width] = '\0';
    out->line(out->user, text);
}

static void head(const struct out *out, const json_t *s)
{
    char a[CLI_TEXT], b[CLI_TEXT], c[CLI_TEXT];
    const json_t *p = json_object_get(s, "pressure");
    uint64_t limit = cli_number(s, "limit_bytes");

    say(out, "%s (%" PRIu64 ")  %s%s  %s", cli_text(s, "program"), cli_number(s, "pid"), cli_activity(s, a),
        cli_true(s, "restoring") ? ", restoring" : "", cli_text(s, "model"));
    say(out, "  %s of %s in memory (%.1f %%), held %s", cli_size(cli_number(s, "remaining_bytes"), a),
        cli_size(cli_number(s, "total_bytes"), b), cli_real(s, "remaining_percent"),
        cli_size(cli_number(s, "ledger_bytes"), c));
    (void)cli_size(limit, a);
    (void)cli_size(cli_number(s, "store_file_bytes"), b);
    (void)cli_size(cli_number(p, "available_bytes"), c);
    say(out, "  limit %s, swap %s, pressure %s%s%s", limit ? a : "none", b,
        json_is_object(p) ? cli_text(p, "level") : "not watched",
        json_is_integer(json_object_get(p, "available_bytes")) ? ", free " : "",
        json_is_integer(json_object_get(p, "available_bytes")) ? c : "");
}

static bool is_shown(const json_t *layer)
{
    double bytes = sum_of(layer);

    return bytes > 0 && bytes < 9e18;
}

static int shown_layers(const json_t *list)
{
    int n = 0;
    size_t i;
    json_t *layer;

    json_array_foreach(list, i, layer)
    {
        n += is_shown(layer) && json_integer_value(json_object_get(layer, "layer")) >= 0;
    }
    return n;
}

/* Adds one layer's parts to the sum; what does not fit is no size of this world. */
static void add_layer(json_t *sum, const json_t *layer)
{
    for (size_t i = 0; i < PARTS; i++) {
        uint64_t bytes = cli_number(sum, parts[i].key), more = cli_number(layer, parts[i].key);
        json_int_t both = more > (uint64_t)INT64_MAX - bytes ? INT64_MAX : (json_int_t)(bytes + more);
        (void)json_object_set_new(sum, parts[i].key, json_integer(both));
    }
}

static void say_bar(const struct out *out, const char *label, const json_t *layer)
{
    char bar[LINE], size[CLI_TEXT];
    int width = out->width - 24;

    width = width > 100 ? 100 : width < 10 ? 10 : width;
    top_bar(layer, width, bar);
    say(out, "  %6s [%s] %s", label, bar, cli_size((uint64_t)sum_of(layer), size));
}

/* `per`: layers in one bar. */
static void bars(const struct out *out, const json_t *list, int per)
{
    json_t *layer, *sum = json_object();
    json_int_t first = -1;
    char label[48];
    size_t i;
    int n = 0;

    json_array_foreach(list, i, layer)
    {
        json_int_t number = json_integer_value(json_object_get(layer, "layer"));
        if (!is_shown(layer))
            continue;
        if (number >= 0) {
            first = n++ == 0 ? number : first;
            add_layer(sum, layer);
        }
        if (n > 0 && (n == per || number < 0 || i + 1 == json_array_size(list))) {
            json_int_t last = first + n - 1;
            if (first == last)
                (void)snprintf(label, sizeof(label), "%d", (int)first);
            else
                (void)snprintf(label, sizeof(label), "%d-%d", (int)first, (int)last);
            say_bar(out, label, sum);
            (void)json_object_clear(sum);
            n = 0;
        }
        if (number < 0)
            say_bar(out, "others", layer);
    }
    json_decref(sum);
    say(out, "  # memory  = compressed  - swap  . file  ~ moving  ! lost"); /* 60 columns hold it */
}

static void last_events(const struct out *out, const json_t *events)
{
    const json_t *list = json_object_get(events, "events");
    size_t n = json_array_size(list);
    char text[CLI_EVENT], clock[CLI_TEXT];

    for (size_t i = n > EVENTS ? n - EVENTS : 0; i < n; i++) {
        const json_t *e = json_array_get(list, i);
        say(out, "  %s %s", cli_clock(cli_real(e, "time_s"), "%H:%M:%S", clock), cli_event(e, text));
    }
}

/* How many layers share a bar, so that head (3), bars, legend and events fit into the rows. */
static int layers_per_bar(const json_t *list, const json_t *events, int rows)
{
    int n = shown_layers(list), n_events = (int)json_array_size(json_object_get(events, "events"));
    int bars = rows - 3 - 1 - 1 - (n_events < EVENTS ? n_events : EVENTS); /* one bar is that of the others */

    if (rows <= 0 || bars >= n)
        return 1;
    return bars < 1 ? n : (n + bars - 1) / bars;
}

void top_view(const json_t *status, const json_t *layers, const json_t *events, int width, int rows,
              void (*line)(void *user, const char *text), void *user)
{
    struct out out = {.line = line, .user = user, .width = width};
    const json_t *list = json_object_get(layers, "layers");

    head(&out, status);
    if (layers)
        bars(&out, list, layers_per_bar(list, events, rows));
    if (events)
        last_events(&out, events);
}
