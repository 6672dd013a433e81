/* What the lines on the control socket mean. A table of commands; no state, no locks. */
#include "control/protocol.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/client.h"
#include "control/dump.h"
#include "control/size.h"
#include "control/watch.h"
#include "core/core.h"
#include "os/log.h"

#define UNITS_A_REPLY  200 /* of at most 290 bytes each */
#define EVENTS_A_REPLY 200

/* One request under way. */
struct call {
    const struct mz_homes *homes;
    const json_t *request;
    const char *message; /* of an error; NULL: the errno's text */
};

/* 0 and an object (or NULL: out of memory), or negative errno. */
typedef int (*handler)(struct call *call, json_t **ret);

static json_t *field(const struct call *call, const char *name)
{
    return json_object_get(call->request, name);
}

static int fail(struct call *call, int err, const char *message)
{
    call->message = message;
    return err;
}

/* A whole number that is not negative; `missing` when it is not there. */
static int get_number(struct call *call, const char *name, uint64_t missing, uint64_t *ret)
{
    json_t *value = field(call, name);

    if (!value) {
        *ret = missing;
        return 0;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return fail(call, -EINVAL, "a number in the request is not a whole number from 0");
    *ret = (uint64_t)json_integer_value(value);
    return 0;
}

static int get_permyriad(struct call *call, uint32_t *ret)
{
    json_t *value = field(call, "percent");
    double percent = json_number_value(value);

    if (!json_is_number(value) || !isfinite(percent) || percent < 0 || percent > 100)
        return fail(call, -EINVAL, "\"percent\" is not a number in 0..100");
    *ret = (uint32_t)lround(percent * 100);
    return 0;
}

static int get_text(struct call *call, const char *name, const char **ret)
{
    const char *text = json_string_value(field(call, name));

    if (!text)
        return fail(call, -EINVAL, "a text that the command needs is missing");
    *ret = text;
    return 0;
}

/* The reason for the event log: the client's own word, or that it came over the socket. Core copies and cuts
 * it. */
static const char *why(const struct call *call)
{
    const char *text = json_string_value(field(call, "why"));

    return text && *text ? text : "control socket";
}

/* ---- commands */

static int do_hello(struct call *call, json_t **ret)
{
    (void)call;
    *ret = json_object();
    return 0;
}

static int do_status(struct call *call, json_t **ret)
{
    *ret = mz_dump_status(call->homes);
    return 0;
}

static int do_brief(struct call *call, json_t **ret)
{
    *ret = mz_dump_brief(call->homes->core);
    return 0;
}

static int do_layers(struct call *call, json_t **ret)
{
    *ret = mz_dump_layers(call->homes->core);
    return 0;
}

static int do_units(struct call *call, json_t **ret)
{
    uint64_t from, count;
    int rc = get_number(call, "from", 0, &from);

    if (rc == 0)
        rc = get_number(call, "count", UNITS_A_REPLY, &count);
    if (rc < 0)
        return rc;
    *ret =
        mz_dump_units(call->homes->core, from, count == 0 || count > UNITS_A_REPLY ? UNITS_A_REPLY : count);
    return 0;
}

static int do_events(struct call *call, json_t **ret)
{
    uint64_t since;
    int rc = get_number(call, "since", 0, &since);

    if (rc < 0)
        return rc;
    *ret = mz_dump_events(call->homes->core, since, EVENTS_A_REPLY);
    return 0;
}

/* An eviction's end: it fails where nothing could be freed because writing failed, or memory is locked. */
static int evicted(struct call *call, int rc, const struct mz_evict_report *report, json_t **ret)
{
    static _Thread_local char text[160];

    if (rc == 0) {
        *ret = mz_dump_report(report);
        return 0;
    }
    if (rc == -EINVAL)
        return fail(call, rc, "the model's memory is locked: start the program without --mlock");
    (void)snprintf(text, sizeof(text), "the swap file cannot be written: %s", mz_log_errno(rc));
    return fail(call, rc, text);
}

static int evict(struct call *call, uint64_t bytes, json_t **ret)
{
    struct mz_evict_report report = {0};
    int rc = mz_core_evict(call->homes->core, bytes, why(call), &report);

    return evicted(call, rc, &report, ret);
}

static int do_evict(struct call *call, json_t **ret)
{
    struct mz_core_brief brief;
    struct mz_amount amount = {.is_share = true};
    uint64_t bytes;

    if (!field(call, "percent")) {
        if (!field(call, "bytes"))
            return fail(call, -EINVAL, "evict needs \"bytes\" or \"percent\"");
        int rc = get_number(call, "bytes", 0, &bytes);
        return rc < 0 ? rc : evict(call, bytes, ret);
    }
    int rc = get_permyriad(call, &amount.permyriad);
    if (rc < 0)
        return rc;
    mz_core_brief(call->homes->core, &brief);
    return evict(call, mz_amount_of(&amount, brief.total_bytes), ret);
}

static int do_evict_to(struct call *call, json_t **ret)
{
    struct mz_evict_report report = {0};
    uint32_t permyriad;
    int rc = get_permyriad(call, &permyriad);

    if (rc < 0)
        return rc;
    rc = mz_core_evict_to(call->homes->core, permyriad, why(call), &report);
    return evicted(call, rc, &report, ret);
}

static int do_restore(struct call *call, json_t **ret)
{
    int rc = mz_core_restore(call->homes->core, json_is_true(field(call, "wait")));

    if (rc == 0)
        *ret = mz_dump_brief(call->homes->core);
    return rc;
}

static int do_restore_stop(struct call *call, json_t **ret)
{
    mz_core_restore_stop(call->homes->core);
    *ret = json_object();
    return 0;
}

static int do_limit(struct call *call, json_t **ret)
{
    const char *value;
    uint64_t bytes, floor = 0;
    int rc = get_text(call, "value", &value);

    if (rc < 0)
        return rc;
    rc = mz_value_limit(call->homes->core, value, &bytes, &floor);
    if (rc == -EAGAIN)
        return fail(call, rc, "a percentage needs a loaded model");
    if (rc < 0 && rc != -ERANGE)
        return rc;
    /* A refused limit comes with the floor: the reply is made here, and marked as an error by the caller. */
    *ret = json_object();
    if (rc == 0)
        (void)json_object_set_new(*ret, "limit_bytes", json_integer((json_int_t)bytes));
    (void)json_object_set_new(*ret, "floor_bytes", json_integer((json_int_t)floor));
    return rc < 0 ? fail(call, rc, "the limit is below what computing needs at least") : 0;
}

static int do_options(struct call *call, json_t **ret)
{
    json_t *all = mz_values_json(call->homes);

    *ret = all ? json_pack("{s:o}", "options", all) : NULL;
    return 0;
}

static int do_option_get(struct call *call, json_t **ret)
{
    const char *name;
    char value[4096];
    int rc = get_text(call, "name", &name);

    if (rc == 0)
        rc = mz_value_get(call->homes, name, value, sizeof(value));
    if (rc == 0)
        *ret = json_pack("{s:s, s:s}", "name", name, "value", value);
    return rc == -ENOENT ? fail(call, rc, "no such option") : rc;
}

static int do_option_set(struct call *call, json_t **ret)
{
    const char *name, *value;
    int rc = get_text(call, "name", &name);

    if (rc == 0)
        rc = get_text(call, "value", &value);
    if (rc < 0)
        return rc;
    rc = mz_value_set(call->homes, name, value);
    if (rc == -ENOENT)
        return fail(call, rc, "no such option");
    if (rc == -EBUSY)
        return fail(call, rc, "this option can be set at start only, by its environment variable");
    return rc < 0 ? rc : do_option_get(call, ret);
}

static int do_trim(struct call *call, json_t **ret)
{
    json_t *level = field(call, "level");
    json_int_t value = json_integer_value(level);

    if (!json_is_integer(level) || value < 0 || value > 255)
        return fail(call, -EINVAL, "\"level\" is not a level of onTrimMemory or GMemoryMonitor");
    if (!call->homes->watch)
        return fail(call, -ENOTSUP, "the memory watch is not running");
    int rc = mz_watch_trim(call->homes->watch, (int)value);
    if (rc == 0)
        *ret = json_object();
    return rc;
}

static int do_clean(struct call *call, json_t **ret)
{
    uint64_t bytes, written = 0;
    int rc = get_number(call, "bytes", UINT64_MAX, &bytes);

    if (rc == 0)
        rc = mz_core_clean(call->homes->core, bytes, &written);
    if (rc == 0)
        *ret = json_pack("{s:I}", "written_bytes", (json_int_t)written);
    return rc;
}

static const struct command {
    const char *name;
    enum mz_lane lane;
    handler run;
} commands[] = {
    {"hello", MZ_LANE_VIEW, do_hello},
    {"status", MZ_LANE_VIEW, do_status},
    {"brief", MZ_LANE_VIEW, do_brief},
    {"layers", MZ_LANE_VIEW, do_layers},
    {"units", MZ_LANE_VIEW, do_units},
    {"events", MZ_LANE_VIEW, do_events},
    {"options", MZ_LANE_VIEW, do_options},
    {"option_get", MZ_LANE_VIEW, do_option_get},
    {"option_set", MZ_LANE_ACT, do_option_set},
    {"evict", MZ_LANE_ACT, do_evict},
    {"evict_to", MZ_LANE_ACT, do_evict_to},
    {"limit", MZ_LANE_ACT, do_limit},
    {"restore", MZ_LANE_WAIT, do_restore},
    {"restore_stop", MZ_LANE_VIEW, do_restore_stop},
    {"trim", MZ_LANE_VIEW, do_trim},
    {"clean", MZ_LANE_WAIT, do_clean},
};

static const struct command *find(const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "cmd"));

    for (size_t i = 0; name && i < sizeof(commands) / sizeof(*commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* ---- lines */

/* Takes the object. */
static char *to_line(json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

    json_decref(object);
    if (!text)
        return NULL;
    size_t bytes = strlen(text);
    char *line = realloc(text, bytes + 2);
    if (!line) {
        free(text);
        return NULL;
    }
    memcpy(line + bytes, "\n", 2);
    return line;
}

static const char *errno_name(int err)
{
    const char *name = strerrorname_np(err < 0 ? -err : err);

    return name ? name : "EIO";
}

/* Adds to `reply` (NULL: an empty one) that it failed, and why. */
static json_t *failed(json_t *reply, int err, const char *message)
{
    char text[128];

    if (!reply)
        reply = json_object();
    (void)json_object_set_new(reply, "ok", json_false());
    (void)json_object_set_new(reply, "error", json_string(errno_name(err)));
    if (!message)
        message = strerror_r(err < 0 ? -err : err, text, sizeof(text));
    (void)json_object_set_new(reply, "message", json_string(message));
    return reply;
}

char *mz_protocol_refusal(int err)
{
    return to_line(
        failed(NULL, err, err == -EMSGSIZE ? "a request is one line of at most 65536 bytes" : NULL));
}

char *mz_protocol_greeting(void)
{
    return to_line(json_pack("{s:s, s:i, s:I, s:o}", "mzcache", MZ_VERSION, "protocol", MZ_PROTOCOL, "pid",
                             (json_int_t)getpid(), "program", mz_dump_program()));
}

static json_t *parse(const char *line, size_t bytes)
{
    return json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
}

enum mz_lane mz_protocol_lane(const char *line, size_t bytes)
{
    json_t *request = parse(line, bytes);
    const struct command *command = find(request);

    /* Asking for a restore returns at once: it need not queue behind those who wait for theirs. */
    bool quick = command && command->run == do_restore && !json_is_true(json_object_get(request, "wait"));
    enum mz_lane lane = !command || quick ? MZ_LANE_VIEW : command->lane;
    json_decref(request);
    return lane;
}

static json_t *run(const struct mz_homes *homes, const json_t *request)
{
    const struct command *command = find(request);
    struct call call = {.homes = homes, .request = request};
    json_t *reply = NULL;

    if (!json_is_object(request))
        return failed(NULL, -EBADMSG, "the line is no JSON object");
    if (!command)
        return failed(NULL, -EOPNOTSUPP, "no such command");
    int rc = command->run(&call, &reply);
    if (rc < 0)
        return failed(reply, rc, call.message);
    (void)json_object_set_new(reply, "ok", json_true());
    return reply;
}

char *mz_protocol_answer(const struct mz_homes *homes, const char *line, size_t bytes)
{
    json_t *request = parse(line, bytes), *reply = run(homes, request), *id = json_object_get(request, "id");

    if (id)
        (void)json_object_set(reply, "id", id);
    char *text = to_line(reply);
    json_decref(request);
    if (text && strlen(text) > MZ_LINE_BYTES) {
        free(text);
        text = to_line(failed(NULL, -EMSGSIZE, "the reply would be longer than 65536 bytes"));
    }
    return text;
}
