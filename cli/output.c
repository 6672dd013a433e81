/* Reading replies and printing them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "control/size.h"

uint64_t cli_number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

double cli_real(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

bool cli_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

const char *cli_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

void cli_print_json(const struct cli_target *target, const json_t *object)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)object);

    (void)json_object_del(copy, "ok");
    (void)json_object_set_new(copy, "pid", json_integer(target->pid));
    (void)json_object_set_new(copy, "program", json_string(target->program));
    char *text = json_dumps(copy, JSON_COMPACT | JSON_REAL_PRECISION(15)); /* 0.1 stays 0.1 */
    if (text)
        (void)puts(text);
    free(text);
    json_decref(copy);
}

const char *cli_size(uint64_t bytes, char *buf)
{
    return mz_size_text(bytes, buf);
}

const char *cli_idle(const json_t *brief, char *buf)
{
    const json_t *idle = json_object_get(brief, "idle_ms");
    uint64_t s = cli_number(brief, "idle_ms") / 1000;

    if (cli_true(brief, "computing"))
        (void)snprintf(buf, CLI_TEXT, "computing");
    else if (!json_is_integer(idle))
        (void)snprintf(buf, CLI_TEXT, "never used");
    else if (s < 120)
        (void)snprintf(buf, CLI_TEXT, "%" PRIu64 " s", s);
    else if (s < 7200)
        (void)snprintf(buf, CLI_TEXT, "%" PRIu64 " min", s / 60);
    else
        (void)snprintf(buf, CLI_TEXT, "%" PRIu64 " h", s / 3600);
    return buf;
}

const char *cli_activity(const json_t *brief, char *buf)
{
    char idle[CLI_TEXT];

    (void)cli_idle(brief, idle);
    (void)snprintf(buf, CLI_TEXT, "%s%.20s", *idle >= '0' && *idle <= '9' ? "idle " : "", idle);
    return buf;
}

const char *cli_event(const json_t *event, char *buf)
{
    char size[CLI_TEXT];
    const char *what = cli_text(event, "what");
    uint64_t bytes = cli_number(event, "bytes");
    bool lifted = bytes == 0 && strcmp(what, "limit") == 0;

    (void)snprintf(buf, CLI_EVENT, "%-8s %9s %7.0f ms  %s", what, lifted ? "-" : cli_size(bytes, size),
                   cli_real(event, "ms"), cli_text(event, "why"));
    return buf;
}

const char *cli_clock(double time_s, const char *format, char *buf)
{
    time_t when = time_s > 0 && time_s < 1e12 ? (time_t)time_s : 0;
    struct tm tm;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (!localtime_r(&when, &tm) || strftime(buf, CLI_TEXT, format, &tm) == 0)
        *buf = '\0';
#pragma GCC diagnostic pop
    return buf;
}

const char *cli_model(const json_t *brief)
{
    const char *name = cli_text(brief, "model");

    return *name ? name : "-";
}
