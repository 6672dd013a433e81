/* The in-process API: a thin skin over the process's core. No state. */
#include "control/api.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "control/dump.h"
#include "control/process.h"
#include "control/values.h"
#include "control/watch.h"
#include "core/core.h"
#include "mzcache.h"

#define WHY "mzcache.h"

/* 0 and the homes, or why there are none. */
static int get_homes(struct mz_homes *ret)
{
    *ret = (struct mz_homes){.core = mz_process_core(), .watch = mz_process_watch()};
    if (ret->core)
        return 0;
    return mz_process_forked() ? -ECHILD : -ENODEV;
}

const char *mz_version(void)
{
    return MZ_VERSION;
}

static void to_report(const struct mz_evict_report *from, struct mz_report *ret)
{
    if (!ret)
        return;
    *ret = (struct mz_report){
        .asked_bytes = from->asked_bytes,
        .freed_bytes = from->freed_bytes,
        .floor_bytes = from->floor_bytes,
        .to_stack_bytes = from->to_stack_bytes,
        .to_store_bytes = from->to_store_bytes,
        .total_bytes = from->total_bytes,
        .remaining_bytes = from->remaining_bytes,
        .ms = from->ms,
    };
}

int mz_evict(uint64_t bytes, struct mz_report *ret)
{
    struct mz_evict_report report = {0};
    struct mz_homes homes;
    int rc = get_homes(&homes);

    if (rc == 0)
        rc = mz_core_evict(homes.core, bytes, WHY, &report);
    if (rc == 0)
        to_report(&report, ret);
    return rc;
}

int mz_evict_to(uint32_t remaining_permyriad, struct mz_report *ret)
{
    struct mz_evict_report report = {0};
    struct mz_homes homes;

    if (remaining_permyriad > 10000)
        return -EINVAL;
    int rc = get_homes(&homes);
    if (rc == 0)
        rc = mz_core_evict_to(homes.core, remaining_permyriad, WHY, &report);
    if (rc == 0)
        to_report(&report, ret);
    return rc;
}

int mz_restore(bool wait)
{
    struct mz_homes homes;
    int rc = get_homes(&homes);

    return rc < 0 ? rc : mz_core_restore(homes.core, wait);
}

int mz_restore_cancel(void)
{
    struct mz_homes homes;
    int rc = get_homes(&homes);

    if (rc == 0)
        mz_core_restore_stop(homes.core);
    return rc;
}

int mz_limit(uint64_t bytes, uint64_t *ret_floor)
{
    struct mz_homes homes;
    uint64_t floor = 0;
    int rc = get_homes(&homes);

    if (rc == 0)
        rc = mz_core_limit(homes.core, bytes, &floor);
    if (rc == -ERANGE && ret_floor)
        *ret_floor = floor;
    return rc;
}

static struct mz_state_kind to_kind(const struct mz_kind_status *from)
{
    return (struct mz_state_kind){
        .total_bytes = from->total_bytes,
        .resident_bytes = from->resident_bytes,
        .stack_bytes = from->stack_bytes,
        .store_bytes = from->store_bytes,
        .dropped_bytes = from->dropped_bytes,
        .empty_bytes = from->empty_bytes,
        .lost_bytes = from->lost_bytes,
        .swapped_bytes = from->swapped_bytes,
    };
}

int mz_status(struct mz_state *ret)
{
    struct mz_core_status status;
    struct mz_homes homes;

    if (!ret)
        return -EINVAL;
    int rc = get_homes(&homes);
    if (rc < 0)
        return rc;
    mz_core_status(homes.core, &status);
    *ret = (struct mz_state){
        .weights = to_kind(&status.kind[MZ_KIND_WEIGHT]),
        .kv = to_kind(&status.kind[MZ_KIND_KV]),
        .other = to_kind(&status.kind[MZ_KIND_OTHER]),
        .total_bytes = status.total_bytes,
        .remaining_bytes = status.remaining_bytes,
        .floor_bytes = status.floor_bytes,
        .limit_bytes = status.limit_bytes,
        .ledger_bytes = status.ledger_bytes,
        .ledger_peak_bytes = status.ledger_peak_bytes,
        .swap_file_bytes = status.store_file_bytes,
        .idle_ms = mz_core_idle_ms(status.last_use_ns, status.computing),
        .computing = status.computing,
        .restoring = status.restoring,
    };
    return 0;
}

int mz_trim(int level)
{
    struct mz_homes homes;
    int rc = get_homes(&homes);

    if (rc < 0)
        return rc;
    return homes.watch ? mz_watch_trim(homes.watch, level) : -ENOTSUP;
}

int mz_option_set(const char *name, const char *value)
{
    struct mz_homes homes;

    if (!name || !value)
        return -EINVAL;
    int rc = get_homes(&homes);
    return rc < 0 ? rc : mz_value_set(&homes, name, value);
}

int mz_option_get(const char *name, char *buf, size_t size)
{
    struct mz_homes homes;

    if (!name || !buf)
        return -EINVAL;
    int rc = get_homes(&homes);
    return rc < 0 ? rc : mz_value_get(&homes, name, buf, size);
}

int mz_dump(char **ret)
{
    struct mz_homes homes;

    if (!ret)
        return -EINVAL;
    int rc = get_homes(&homes);
    if (rc < 0)
        return rc;
    json_t *all = mz_dump_all(&homes);
    char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
    json_decref(all);
    if (!text)
        return -ENOMEM;
    *ret = text;
    return 0;
}

void *mz_api_find(const char *name)
{
    /* ISO C has no cast between function and object pointers; POSIX (dlsym) promises that it works. */
    static const struct {
        const char *name;
        void (*function)(void);
    } table[] = {
        {"mz_version", (void (*)(void))mz_version},
        {"mz_evict", (void (*)(void))mz_evict},
        {"mz_evict_to", (void (*)(void))mz_evict_to},
        {"mz_restore", (void (*)(void))mz_restore},
        {"mz_restore_cancel", (void (*)(void))mz_restore_cancel},
        {"mz_limit", (void (*)(void))mz_limit},
        {"mz_status", (void (*)(void))mz_status},
        {"mz_trim", (void (*)(void))mz_trim},
        {"mz_option_set", (void (*)(void))mz_option_set},
        {"mz_option_get", (void (*)(void))mz_option_get},
        {"mz_dump", (void (*)(void))mz_dump},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (strcmp(table[i].name, name) == 0)
            return (void *)(uintptr_t)table[i].function;
    return NULL;
}
