/* The state of everything as JSON. No state of its own. Callbacks from core run under its lock and only
 * collect; JSON is made afterwards. */
#include "control/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/size.h"
#include "control/watch.h"
#include "core/core.h"
#include "os/log.h"
#include "os/machine.h"
#include "os/text.h"

static const char *const kind_names[MZ_KINDS] = {"weights", "kv", "other", "scratch"};

void mz_json_put(json_t *object, const char *key, uint64_t value)
{
    (void)json_object_set_new(object, key, value > INT64_MAX ? json_null() : json_integer((json_int_t)value));
}

/* ---- status */

struct field {
    const char *key;
    size_t at;
};

#define KIND(name)                                                                                           \
    {                                                                                                        \
#name, offsetof(struct mz_kind_status, name)                                                         \
    }
#define STATUS(name)                                                                                         \
    {                                                                                                        \
#name, offsetof(struct mz_core_status, name)                                                         \
    }

static const struct field kind_fields[] = {
    KIND(total_bytes),   KIND(resident_bytes), KIND(stack_bytes), KIND(store_bytes),
    KIND(dropped_bytes), KIND(empty_bytes),    KIND(lost_bytes),  KIND(counted_bytes),
    KIND(swapped_bytes), KIND(clean_bytes),    KIND(lossy_bytes),
};

static const struct field status_fields[] = {
    STATUS(total_bytes),      STATUS(remaining_bytes),     STATUS(floor_bytes),
    STATUS(limit_bytes),      STATUS(stack_used_bytes),    STATUS(stack_reserve_bytes),
    STATUS(bounce_bytes),     STATUS(ledger_bytes),        STATUS(ledger_peak_bytes),
    STATUS(store_file_bytes), STATUS(store_written_bytes), STATUS(store_packed_bytes),
    STATUS(read_bytes),       STATUS(decoded_bytes),       STATUS(evictions),
    STATUS(restores),         STATUS(gate_waits),          STATUS(model_cached_bytes),
};

static void put_fields(json_t *object, const struct field *fields, size_t n, const void *record)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value;
        memcpy(&value, (const char *)record + fields[i].at, sizeof(value));
        mz_json_put(object, fields[i].key, value);
    }
}

static json_t *kinds_json(const struct mz_core_status *status)
{
    json_t *kinds = json_object();

    for (int i = 0; i < MZ_KINDS; i++) {
        json_t *kind = json_object();
        put_fields(kind, kind_fields, sizeof(kind_fields) / sizeof(*kind_fields), &status->kind[i]);
        (void)json_object_set_new(kinds, kind_names[i], kind);
    }
    return kinds;
}

/* What the process holds, and how much of it is not ours ("outside": heap, other devices' buffers, cached
 * prompts). */
static json_t *process_json(const struct mz_core_status *status)
{
    struct mz_process_memory memory = {0};
    json_t *process = json_object();
    uint64_t ours = status->stack_used_bytes + status->stack_reserve_bytes + status->bounce_bytes;

    if (mz_machine_process(&memory) < 0)
        return process;
    for (int i = 0; i < MZ_KINDS; i++)
        ours += status->kind[i].counted_bytes + status->kind[i].swapped_bytes;
    uint64_t all = memory.rss_anon_bytes + memory.swap_bytes;
    mz_json_put(process, "rss_anon_bytes", memory.rss_anon_bytes);
    mz_json_put(process, "rss_file_bytes", memory.rss_file_bytes);
    mz_json_put(process, "swap_bytes", memory.swap_bytes);
    mz_json_put(process, "outside_bytes", all > ours ? all - ours : 0);
    return process;
}

json_t *mz_dump_program(void)
{
    char name[64];
    int64_t n = mz_os_read_text("/proc/self/comm", name, sizeof(name));

    if (n > 0 && name[n - 1] == '\n')
        name[--n] = '\0';
    json_t *text = n > 0 ? json_string(name) : NULL; /* NULL, too, where it is no UTF-8 */
    return text ? text : json_string("?");
}

static void put_program(json_t *object)
{
    (void)json_object_set_new(object, "program", mz_dump_program());
    mz_json_put(object, "pid", (uint64_t)getpid());
    (void)json_object_set_new(object, "version", json_string(MZ_VERSION));
}

/* The model file's name without its folder; null: unknown, as without mmap. */
static void put_model(json_t *object, struct mz_core *core)
{
    char path[4096];

    mz_core_model(core, path, sizeof(path));
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    json_t *text = *name ? json_string(name) : NULL; /* NULL, too, where it is no UTF-8 */
    (void)json_object_set_new(object, "model", text ? text : json_null());
}

/* How much is in memory and what goes on. idle_ms: since the last use; null: never used. */
static void put_use(json_t *object, const struct mz_core_brief *brief)
{
    double share =
        brief->total_bytes ? (double)brief->remaining_bytes / (double)brief->total_bytes * 100 : 100;

    (void)json_object_set_new(object, "remaining_percent", json_real(share));
    mz_json_put(object, "idle_ms", mz_core_idle_ms(brief->last_use_ns, brief->computing));
    (void)json_object_set_new(object, "computing", json_boolean(brief->computing));
    (void)json_object_set_new(object, "restoring", json_boolean(brief->restoring));
}

json_t *mz_dump_status(const struct mz_homes *homes)
{
    struct mz_core_status status;
    json_t *object = json_object();

    mz_core_status(homes->core, &status);
    put_program(object);
    put_model(object, homes->core);
    put_fields(object, status_fields, sizeof(status_fields) / sizeof(*status_fields), &status);
    put_use(object, &(struct mz_core_brief){.total_bytes = status.total_bytes,
                                            .remaining_bytes = status.remaining_bytes,
                                            .last_use_ns = status.last_use_ns,
                                            .computing = status.computing,
                                            .restoring = status.restoring});
    (void)json_object_set_new(object, "gate_wait_ms", json_real((double)status.gate_wait_ns / 1e6));
    (void)json_object_set_new(object, "kinds", kinds_json(&status));
    (void)json_object_set_new(object, "process", process_json(&status));
    (void)json_object_set_new(object, "options", mz_values_json(homes));
    (void)json_object_set_new(object, "pressure", homes->watch ? mz_watch_json(homes->watch) : json_null());
    return object;
}

json_t *mz_dump_brief(struct mz_core *core)
{
    struct mz_core_brief brief;
    json_t *object = json_object();

    mz_core_brief(core, &brief);
    put_program(object);
    put_model(object, core);
    mz_json_put(object, "total_bytes", brief.total_bytes);
    mz_json_put(object, "remaining_bytes", brief.remaining_bytes);
    mz_json_put(object, "floor_bytes", brief.floor_bytes);
    mz_json_put(object, "limit_bytes", brief.limit_bytes);
    put_use(object, &brief);
    return object;
}

/* ---- layers */

enum { RESIDENT, STACK, STORE, DROPPED, EMPTY, LOST, MOVING, WHERES };

static const char *const where_names[WHERES] = {"resident", "stack", "store", "file",
                                                "empty",    "lost",  "moving"};
static const char *const where_keys[WHERES] = {"resident_bytes", "stack_bytes", "store_bytes",
                                               "dropped_bytes",  "empty_bytes", "lost_bytes",
                                               "moving_bytes"};

struct layers {
    uint64_t bytes[MZ_DUMP_LAYERS + 1][WHERES]; /* the last: no layer */
    int32_t highest;
    uint64_t left_out; /* units of layers beyond */
};

static void see_layer(void *user, const struct mz_unit_view *view)
{
    struct layers *layers = user;
    int32_t layer = view->layer;

    if (view->kind == MZ_KIND_SCRATCH)
        return;
    if (layer >= MZ_DUMP_LAYERS) {
        layers->left_out++;
        return;
    }
    if (layer > layers->highest)
        layers->highest = layer;
    for (int w = 0; w < WHERES; w++)
        if (strcmp(view->where, where_names[w]) == 0)
            layers->bytes[layer < 0 ? MZ_DUMP_LAYERS : layer][w] += view->bytes;
}

static json_t *layer_json(const struct layers *layers, int32_t layer)
{
    const uint64_t *bytes = layers->bytes[layer < 0 ? MZ_DUMP_LAYERS : layer];
    json_t *object = json_object();

    (void)json_object_set_new(object, "layer", json_integer(layer));
    for (int w = 0; w < WHERES; w++)
        mz_json_put(object, where_keys[w], bytes[w]);
    return object;
}

json_t *mz_dump_layers(struct mz_core *core)
{
    struct layers *layers = calloc(1, sizeof(*layers));

    if (!layers)
        return NULL;
    layers->highest = -1;
    mz_core_visit(core, see_layer, layers);
    json_t *object = json_object(), *list = json_array();
    for (int32_t layer = 0; layer <= layers->highest; layer++)
        (void)json_array_append_new(list, layer_json(layers, layer));
    (void)json_array_append_new(list, layer_json(layers, -1));
    (void)json_object_set_new(object, "layers", list);
    mz_json_put(object, "left_out", layers->left_out);
    free(layers);
    return object;
}

/* ---- units */

#define NAME_BYTES 64

struct unit {
    struct mz_unit_view view;
    char name[NAME_BYTES];
};

/* Grows between visits, never in the callback: core's lock is held there. */
struct units {
    struct unit *items;
    uint64_t from, size, seen;
};

static void see_unit(void *user, const struct mz_unit_view *view)
{
    struct units *units = user;
    uint64_t number = units->seen++;

    if (number < units->from || number - units->from >= units->size)
        return;
    struct unit *unit = &units->items[number - units->from];
    unit->view = *view;
    (void)snprintf(unit->name, sizeof(unit->name), "%s", view->tensor ? view->tensor : "");
    unit->view.tensor = NULL;
}

static json_t *unit_json(const struct unit *unit)
{
    const struct mz_unit_view *view = &unit->view;
    json_t *object = json_object(), *name = json_string(unit->name);

    (void)json_object_set_new(object, "tensor", name ? name : json_string("?"));
    mz_json_put(object, "index", view->index);
    mz_json_put(object, "order", view->order);
    (void)json_object_set_new(object, "kind", json_string(kind_names[view->kind]));
    (void)json_object_set_new(object, "layer", json_integer(view->layer));
    (void)json_object_set_new(object, "where", json_string(view->where));
    mz_json_put(object, "bytes", view->bytes);
    (void)json_object_set_new(object, "clean", json_boolean(view->clean));
    (void)json_object_set_new(object, "lossy", json_boolean(view->lossy));
    (void)json_object_set_new(object, "pinned", json_boolean(view->pinned));
    return object;
}

static uint64_t count_units(struct mz_core *core)
{
    struct units none = {0};

    mz_core_visit(core, see_unit, &none);
    return none.seen;
}

json_t *mz_dump_units(struct mz_core *core, uint64_t from, uint64_t count)
{
    uint64_t all = count_units(core);
    struct units units = {.from = from};

    units.size = from >= all ? 0 : all - from;
    if (count != 0 && count < units.size)
        units.size = count;
    units.items = calloc(units.size + 1, sizeof(*units.items));
    if (!units.items)
        return NULL;
    mz_core_visit(core, see_unit, &units);
    json_t *object = json_object(), *list = json_array();
    uint64_t n = units.seen > from ? units.seen - from : 0;
    if (n > units.size)
        n = units.size;
    for (uint64_t i = 0; i < n; i++)
        (void)json_array_append_new(list, unit_json(&units.items[i]));
    free(units.items);
    (void)json_object_set_new(object, "units", list);
    (void)json_object_set_new(object, "next",
                              from + n < units.seen ? json_integer((json_int_t)(from + n)) : json_null());
    return object;
}

/* ---- events */

struct events {
    struct mz_event *items;
    uint64_t used, size;
};

static void see_event(void *user, const struct mz_event *event)
{
    struct events *events = user;

    if (events->used < events->size)
        events->items[events->used++] = *event;
}

static json_t *event_json(const struct mz_event *event)
{
    json_t *object = json_object(), *why = json_string(event->why);

    mz_json_put(object, "number", event->number);
    (void)json_object_set_new(object, "time_s", json_real((double)event->wall_ns / 1e9));
    (void)json_object_set_new(object, "what", json_string(event->what));
    (void)json_object_set_new(object, "why", why ? why : json_string("?"));
    mz_json_put(object, "bytes", event->bytes);
    (void)json_object_set_new(object, "ms", json_real(event->ms));
    return object;
}

json_t *mz_dump_events(struct mz_core *core, uint64_t since, uint64_t count)
{
    struct events events = {.size = count == 0 || count > 1024 ? 1024 : count};

    events.items = calloc(events.size, sizeof(*events.items));
    if (!events.items)
        return NULL;
    mz_core_events(core, since, see_event, &events);
    json_t *object = json_object(), *list = json_array();
    uint64_t last = since;
    for (uint64_t i = 0; i < events.used; i++) {
        last = events.items[i].number;
        (void)json_array_append_new(list, event_json(&events.items[i]));
    }
    free(events.items);
    (void)json_object_set_new(object, "events", list);
    mz_json_put(object, "last", last);
    return object;
}

/* ---- others */

json_t *mz_dump_report(const struct mz_evict_report *report)
{
    json_t *object = json_object();

    mz_json_put(object, "asked_bytes", report->asked_bytes);
    mz_json_put(object, "freed_bytes", report->freed_bytes);
    mz_json_put(object, "floor_bytes", report->floor_bytes);
    mz_json_put(object, "to_stack_bytes", report->to_stack_bytes);
    mz_json_put(object, "to_store_bytes", report->to_store_bytes);
    mz_json_put(object, "total_bytes", report->total_bytes);
    mz_json_put(object, "remaining_bytes", report->remaining_bytes);
    (void)json_object_set_new(object, "ms", json_real(report->ms));
    (void)json_object_set_new(object, "write_error",
                              report->err ? json_string(mz_log_errno(report->err)) : json_null());
    return object;
}

static int merge(json_t *into, json_t *part)
{
    int rc = part ? json_object_update(into, part) : -1;

    json_decref(part);
    return rc;
}

json_t *mz_dump_all(const struct mz_homes *homes)
{
    json_t *all = mz_dump_status(homes);

    if (all &&
        (merge(all, mz_dump_layers(homes->core)) < 0 || merge(all, mz_dump_units(homes->core, 0, 0)) < 0 ||
         merge(all, mz_dump_events(homes->core, 0, 0)) < 0)) {
        json_decref(all);
        return NULL;
    }
    return all;
}
