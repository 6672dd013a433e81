/* The lines that mzcache top shows. No state. */
#include "top_view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli.h"

#define LINE   512
#define EVENTS 5

static const struct part {
    const char *key;
    char mark;
} parts[] = {
    {"resident_bytes", '#'}, {"moving_bytes", '~'}, {"stack_bytes", '='}, {"store_bytes", '-'},
    {"dropped_bytes", '.'},  {"lost_bytes", '!'},   {"empty_bytes", ' '},
};

#define PARTS (sizeof(parts) / sizeof(*parts))

/* In floating point: replies come from outside, and seven sizes may not fit into one. */
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
        if (bytes && end <= at && at < width && parts[i].mark != ' ')
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

    say(out, "%s (%" PRIu64 ")  %s of %s in memory, %.1f %%  idle: %s%s", cli_text(s, "program"),
        cli_number(s, "pid"), cli_size(cli_number(s, "remaining_bytes"), a),
        cli_size(cli_number(s, "total_bytes"), b), cli_real(s, "remaining_percent"), cli_idle(s, c),
        cli_true(s, "restoring") ? "  restoring" : "");
    say(out, "  held %s, limit %s, swap file %s", cli_size(cli_number(s, "ledger_bytes"), a),
        limit ? cli_size(limit, b) : "none", cli_size(cli_number(s, "store_file_bytes"), c));
    if (json_is_object(p))
        say(out, "  pressure %s (%s), available %s", cli_text(p, "level"), cli_text(p, "source"),
            cli_size(cli_number(p, "available_bytes"), a));
}

static void bars(const struct out *out, const json_t *layers)
{
    char bar[LINE], size[CLI_TEXT];
    int width = out->width - 24;
    size_t i;
    json_t *layer;

    if (width > 100)
        width = 100;
    if (width < 10)
        width = 10;
    json_array_foreach(json_object_get(layers, "layers"), i, layer)
    {
        json_int_t number = json_integer_value(json_object_get(layer, "layer"));
        double bytes = sum_of(layer);
        if (bytes <= 0 || bytes >= 9e18)
            continue;
        top_bar(layer, width, bar);
        if (number < 0)
            say(out, "  others [%s] %s", bar, cli_size((uint64_t)bytes, size));
        else
            say(out, "  %6d [%s] %s", (int)number, bar, cli_size((uint64_t)bytes, size));
    }
    say(out, "  # memory  = compressed  - swap file  . model file  ~ moving  ! lost");
}

static void last_events(const struct out *out, const json_t *events)
{
    const json_t *list = json_object_get(events, "events");
    size_t n = json_array_size(list);
    char size[CLI_TEXT], clock[32];

    for (size_t i = n > EVENTS ? n - EVENTS : 0; i < n; i++) {
        const json_t *e = json_array_get(list, i);
        double time_s = cli_real(e, "time_s");
        time_t when = time_s > 0 && time_s < 1e12 ? (time_t)time_s : 0;
        struct tm tm;
        if (!localtime_r(&when, &tm) || strftime(clock, sizeof(clock), "%H:%M:%S", &tm) == 0)
            clock[0] = '\0';
        say(out, "  %s %-8s %10s %8.0f ms  %s", clock, cli_text(e, "what"),
            cli_size(cli_number(e, "bytes"), size), cli_real(e, "ms"), cli_text(e, "why"));
    }
}

void top_view(const json_t *status, const json_t *layers, const json_t *events, int width,
              void (*line)(void *user, const char *text), void *user)
{
    struct out out = {.line = line, .user = user, .width = width};

    head(&out, status);
    if (layers)
        bars(&out, layers);
    if (events)
        last_events(&out, events);
}
