/* The memory watch of this process: the adapter between core and src/pressure.
 *
 * The pressure thread calls the functions of `host` below; they call core, which has its own locks. The
 * figures for the evicting speed belong to the pressure thread alone. Options are read, changed and written
 * back under `lock`, so that two settings at once do not undo each other. */
#include "control/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/client.h"
#include "control/dump.h"
#include "control/size.h"
#include "core/core.h"
#include "os/log.h"
#include "os/os.h"
#include "pressure/pressure.h"

#define PEER_MS 300 /* a peer that does not answer within that time has nothing to give */

struct mz_watch {
    struct mz_core *core;
    struct mz_pressure *pressure; /* written once, before anyone else sees the watch */
    pthread_mutex_t lock;         /* options */
    uint64_t evict_bytes_per_s;   /* the pressure thread's; 0: not measured */
};

/* ---- what pressure asks */

static int facts(void *user, struct mz_policy_facts *ret)
{
    struct mz_watch *watch = user;
    struct mz_core_brief brief;

    mz_core_brief(watch->core, &brief);
    *ret = (struct mz_policy_facts){
        .total_bytes = brief.total_bytes,
        .remaining_bytes = brief.remaining_bytes,
        .floor_bytes = brief.floor_bytes,
        .dirty_bytes = brief.dirty_bytes,
        .limit_bytes = brief.limit_bytes,
        .last_use_ns = brief.last_use_ns,
        .evict_bytes_per_s = watch->evict_bytes_per_s,
        .computing = brief.computing,
    };
    return 0;
}

static void learn(struct mz_watch *watch, const struct mz_evict_report *report)
{
    if (report->freed_bytes >= UINT64_C(16) << 20 && report->ms > 0)
        watch->evict_bytes_per_s = (uint64_t)((double)report->freed_bytes / report->ms * 1000.0);
}

static int evict(void *user, uint64_t bytes, const char *why)
{
    struct mz_watch *watch = user;
    struct mz_evict_report report = {0};
    int rc = mz_core_evict(watch->core, bytes, why, &report);

    if (rc == 0)
        learn(watch, &report);
    return rc;
}

static int evict_to(void *user, uint32_t remaining_permyriad, const char *why)
{
    struct mz_watch *watch = user;
    struct mz_evict_report report = {0};
    int rc = mz_core_evict_to(watch->core, remaining_permyriad, why, &report);

    if (rc == 0)
        learn(watch, &report);
    return rc;
}

static int clean(void *user, uint64_t budget_bytes, uint64_t *ret_written)
{
    struct mz_watch *watch = user;

    return mz_core_clean(watch->core, budget_bytes, ret_written);
}

static void cancel_restore(void *user)
{
    struct mz_watch *watch = user;

    mz_core_restore_stop(watch->core);
}

static void keep(void *user, uint64_t bytes)
{
    struct mz_watch *watch = user;

    mz_core_keep(watch->core, bytes);
}

static uint64_t number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

/* What one other process could give, if it was idle for longer than we were. */
static uint64_t peer_bytes(pid_t pid, uint64_t own_idle_ms)
{
    struct mz_client *client;
    json_t *request, *reply = NULL;
    uint64_t bytes = 0;

    if (mz_client_open(pid, PEER_MS, &client) < 0)
        return 0;
    request = json_pack("{s:s}", "cmd", "brief");
    if (request && mz_client_ask(client, request, PEER_MS, &reply) == 0) {
        uint64_t remaining = number(reply, "remaining_bytes"), floor = number(reply, "floor_bytes");
        const json_t *idle = json_object_get(reply, "idle_ms");
        bool never_used = json_is_null(idle);
        if ((never_used || number(reply, "idle_ms") > own_idle_ms) && remaining > floor)
            bytes = remaining - floor;
        json_decref(reply);
    }
    json_decref(request);
    mz_client_close(client);
    return bytes;
}

static uint64_t peers_idle_longer_bytes(void *user)
{
    struct mz_watch *watch = user;
    struct mz_core_brief brief;
    pid_t *pids;
    size_t n;
    uint64_t sum = 0;

    mz_core_brief(watch->core, &brief);
    uint64_t idle_ms = mz_core_idle_ms(brief.last_use_ns, brief.computing);
    if (mz_client_list(&pids, &n) < 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (pids[i] != getpid())
            sum += peer_bytes(pids[i], idle_ms);
    free(pids);
    return sum;
}

/* ---- life */

int mz_watch_start(struct mz_core *core, bool sources, struct mz_watch **ret)
{
    struct mz_watch *watch = calloc(1, sizeof(*watch));
    struct mz_pressure_options options;

    if (!watch)
        return -ENOMEM;
    watch->core = core;
    (void)pthread_mutex_init(&watch->lock, NULL);
    const struct mz_pressure_host host = {
        .user = watch,
        .facts = facts,
        .evict = evict,
        .evict_to = evict_to,
        .clean = clean,
        .cancel_restore = cancel_restore,
        .keep = keep,
        .peers_idle_longer_bytes = peers_idle_longer_bytes,
    };
    mz_pressure_defaults(&options);
    options.sources = sources;
    int rc = mz_pressure_start(&options, &host, &watch->pressure);
    if (rc < 0) {
        (void)pthread_mutex_destroy(&watch->lock);
        free(watch);
        return rc;
    }
    *ret = watch;
    return 0;
}

void mz_watch_stop(struct mz_watch *watch)
{
    if (!watch)
        return;
    mz_pressure_stop(watch->pressure);
    (void)pthread_mutex_destroy(&watch->lock);
    free(watch);
}

int mz_watch_trim(struct mz_watch *watch, int level)
{
    return mz_pressure_trim(watch->pressure, level);
}

/* ---- options */

static int set_idle(struct mz_policy_options *policy, const char *value)
{
    uint64_t ms;
    uint32_t permyriad;
    int rc = mz_policy_parse_idle(value, &ms, &permyriad);

    if (rc == 0) {
        policy->idle_ms = ms;
        policy->idle_permyriad = permyriad;
    }
    return rc;
}

static int set_floor(struct mz_policy_options *policy, const char *value)
{
    struct mz_amount amount;
    int rc = mz_amount_parse(value, &amount);

    if (rc == 0) {
        policy->floor_bytes = amount.bytes;
        policy->floor_permyriad = amount.permyriad;
    }
    return rc;
}

static int set_headroom(struct mz_policy_options *policy, const char *value)
{
    struct mz_amount amount = {0};
    int rc = strcmp(value, "own") == 0 ? 0 : mz_amount_parse(value, &amount);

    if (rc == 0 && amount.is_share)
        rc = -EINVAL;
    if (rc == 0)
        policy->headroom_bytes = amount.bytes;
    return rc;
}

/* A time in the words of "idle", without its share. "off" and "0" are no hold at all. */
static int set_hold(struct mz_policy_options *policy, const char *value)
{
    uint64_t ms = 0;
    uint32_t permyriad;
    bool none = strcmp(value, "0") == 0 || strcmp(value, "0s") == 0;
    int rc = none ? 0 : strchr(value, ':') ? -EINVAL : mz_policy_parse_idle(value, &ms, &permyriad);

    if (rc == 0 && ms > UINT32_MAX)
        rc = -ERANGE;
    if (rc == 0)
        policy->hold_ms = (uint32_t)ms;
    return rc;
}

static int set_battery(struct mz_policy_options *policy, const char *value)
{
    if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
        return -EINVAL;
    policy->clean_on_battery = strcmp(value, "on") == 0;
    return 0;
}

static int set_step(struct mz_policy_options *policy, const char *value)
{
    return mz_policy_parse_step(value, &policy->step_permyriad);
}

static int text(char *buf, size_t size, const char *format, uint64_t a, uint64_t b)
    __attribute__((format(printf, 3, 0)));

static int text(char *buf, size_t size, const char *format, uint64_t a, uint64_t b)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int length = snprintf(buf, size, format, (unsigned long long)a, (unsigned long long)b);
#pragma GCC diagnostic pop
    return length < 0 || (size_t)length >= size ? -ENOSPC : 0;
}

static int word(char *buf, size_t size, const char *value)
{
    int length = snprintf(buf, size, "%s", value);

    return length < 0 || (size_t)length >= size ? -ENOSPC : 0;
}

static int get_idle(const struct mz_policy_options *policy, char *buf, size_t size)
{
    if (policy->idle_ms == 0)
        return word(buf, size, "off");
    return text(buf, size, "%llus:%llu%%", policy->idle_ms / 1000, policy->idle_permyriad / 100);
}

static int get_floor(const struct mz_policy_options *policy, char *buf, size_t size)
{
    if (policy->floor_permyriad)
        return text(buf, size, "%llu.%02llu%%", policy->floor_permyriad / 100, policy->floor_permyriad % 100);
    return text(buf, size, "%llu", policy->floor_bytes, 0);
}

static int get_headroom(const struct mz_policy_options *policy, char *buf, size_t size)
{
    return policy->headroom_bytes ? text(buf, size, "%llu", policy->headroom_bytes, 0)
                                  : word(buf, size, "own");
}

static int get_hold(const struct mz_policy_options *policy, char *buf, size_t size)
{
    return text(buf, size, "%llus", policy->hold_ms / 1000, 0);
}

static int get_battery(const struct mz_policy_options *policy, char *buf, size_t size)
{
    return word(buf, size, policy->clean_on_battery ? "on" : "off");
}

static int get_step(const struct mz_policy_options *policy, char *buf, size_t size)
{
    return policy->step_permyriad ? text(buf, size, "%llu%%", policy->step_permyriad / 100, 0)
                                  : word(buf, size, "own");
}

static const struct row {
    const char *name;
    int (*set)(struct mz_policy_options *policy, const char *value);
    int (*get)(const struct mz_policy_options *policy, char *buf, size_t size);
} rows[] = {
    {"idle", set_idle, get_idle},    {"step", set_step, get_step},
    {"floor", set_floor, get_floor}, {"headroom", set_headroom, get_headroom},
    {"hold", set_hold, get_hold},    {"clean-on-battery", set_battery, get_battery},
};

static const struct row *find(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

int mz_watch_option_set(struct mz_watch *watch, const char *name, const char *value)
{
    const struct row *row = find(name);
    struct mz_pressure_options options;

    if (!row)
        return -ENOENT;
    (void)pthread_mutex_lock(&watch->lock);
    mz_pressure_options_get(watch->pressure, &options);
    int rc = row->set(&options.policy, value);
    if (rc == 0)
        mz_pressure_options_set(watch->pressure, &options);
    (void)pthread_mutex_unlock(&watch->lock);
    return rc;
}

int mz_watch_option_get(struct mz_watch *watch, const char *name, char *buf, size_t size)
{
    const struct row *row = find(name);
    struct mz_pressure_options options;

    if (!row)
        return -ENOENT;
    mz_pressure_options_get(watch->pressure, &options);
    return row->get(&options.policy, buf, size);
}

/* ---- state */

static json_t *sources_json(const struct mz_pressure_status *status)
{
    json_t *list = json_array();

    for (int i = 0; i < MZ_PRESSURE_SOURCES; i++) {
        const struct mz_pressure_source_status *source = &status->sources[i];
        if (source->name[0])
            (void)json_array_append_new(list, json_pack("{s:s, s:b, s:s, s:I}", "name", source->name, "live",
                                                        (int)source->live, "detail", source->detail,
                                                        "reports", (json_int_t)source->reports));
    }
    return list;
}

json_t *mz_watch_json(struct mz_watch *watch)
{
    struct mz_pressure_status status;
    json_t *object = json_object();

    mz_pressure_status(watch->pressure, &status);
    (void)json_object_set_new(object, "source", json_string(status.live));
    (void)json_object_set_new(object, "level", json_string(mz_level_name(status.level)));
    (void)json_object_set_new(object, "calm", json_boolean(status.calm));
    mz_json_put(object, "available_bytes", status.sample.now_ns ? status.sample.available_bytes : UINT64_MAX);
    mz_json_put(object, "memory_bytes", status.sample.memory_bytes);
    mz_json_put(object, "cgroup_limit_bytes", status.sample.now_ns ? status.sample.group_limit_bytes : UINT64_MAX);
    mz_json_put(object, "cgroup_headroom_bytes",
        status.sample.now_ns ? status.sample.group_headroom_bytes : UINT64_MAX);
    mz_json_put(object, "fill_bytes_per_s", status.fill_bytes_per_s);
    mz_json_put(object, "wakeups", status.wakeups);
    mz_json_put(object, "uptime_ms", (mz_os_now_ns() - status.started_ns) / 1000000);
    mz_json_put(object, "cpu_ms", status.cpu_ns / 1000000);
    mz_json_put(object, "evictions", status.evictions);
    mz_json_put(object, "cleanings", status.cleanings);
    mz_json_put(object, "failures", status.failures);
    (void)json_object_set_new(object, "last_act", json_string(mz_act_name(status.last.act)));
    (void)json_object_set_new(object, "last_why", json_string(status.last.why ? status.last.why : ""));
    (void)json_object_set_new(object, "sources", sources_json(&status));
    return object;
}
