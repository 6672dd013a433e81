/* The state as numbers: per kind, per unit, and the totals that every percentage refers to. Lock: core->lock; what is
 * asked of the kernel page by page is asked without it, so that nobody waits for those who look. */
#include <string.h>

#include "core/state.h"
#include "os/os.h"

void mz_core_totals(const struct mz_core *core, uint64_t *ret_total, uint64_t *ret_remaining, uint64_t *ret_floor)
{
    uint64_t total = 0, remaining = mz_stack_memory_bytes(core->stack), floor = 0;

    for (const struct mz_region *region = core->regions; region; region = region->next) {
        for (uint32_t i = 0; i < region->n; i++) {
            const struct mz_tensor *tensor = region->tensors[i];
            for (uint32_t u = 0; u < tensor->n; u++) {
                uint64_t bytes = mz_unit_bytes(&tensor->units[u]);
                total += tensor->units[u].state == MZ_EMPTY ? 0 : bytes;
                remaining += mz_unit_holds_memory(&tensor->units[u]) ? bytes : 0;
                floor += tensor->fixed && tensor->units[u].state != MZ_EMPTY ? bytes : 0;
            }
        }
    }
    *ret_total = total;
    *ret_remaining = remaining;
    *ret_floor = floor;
}

static void add_unit(const struct mz_unit *unit, struct mz_kind_status *kind)
{
    uint64_t bytes = mz_unit_bytes(unit);

    if (unit->state == MZ_EMPTY) {
        kind->empty_bytes += bytes;
        return;
    }
    kind->total_bytes += bytes;
    if (mz_unit_holds_memory(unit))
        kind->resident_bytes += bytes;
    else if (unit->state == MZ_LOST)
        kind->lost_bytes += bytes;
    else if (unit->copies & MZ_COPY_STACK)
        kind->stack_bytes += bytes;
    else if (unit->copies & (MZ_COPY_STORE | MZ_COPY_PACKED))
        kind->store_bytes += bytes;
    else
        kind->dropped_bytes += bytes;
    kind->clean_bytes += unit->state == MZ_RESIDENT && mz_unit_is_clean(unit) ? bytes : 0;
    kind->lossy_bytes += unit->lossy ? bytes : 0;
}

static void add_region(const struct mz_region *region, struct mz_core_status *status)
{
    if (region->kind == MZ_KIND_SCRATCH)
        status->kind[MZ_KIND_SCRATCH].total_bytes += region->bytes;
    for (uint32_t i = 0; i < region->n; i++)
        for (uint32_t u = 0; u < region->tensors[i]->n; u++) {
            const struct mz_unit *unit = &region->tensors[i]->units[u];
            add_unit(unit, &status->kind[region->tensors[i]->kind]);
            status->store_packed_bytes += unit->copies & MZ_COPY_PACKED ? mz_unit_stored_bytes(unit) : 0;
        }
}

/* ---- pages; no lock but count_lock. What comes or goes meanwhile may be left out. */

/* Memory, size and kind of one region. False: there are not so many. */
static bool nth_region(struct mz_core *core, uint32_t n, struct mz_memory **ret_memory, uint64_t *ret_bytes,
                       enum mz_kind *ret_kind)
{
    pthread_mutex_lock(&core->lock);
    const struct mz_region *region = core->regions;
    for (; region && n > 0; n--)
        region = region->next;
    if (region) {
        *ret_memory = region->memory;
        *ret_bytes = region->bytes;
        *ret_kind = region->kind;
    }
    pthread_mutex_unlock(&core->lock);
    return region != NULL;
}

static void count_regions(struct mz_core *core, struct mz_core_status *status)
{
    struct mz_engine *engine = core->engine;
    struct mz_memory *memory;
    enum mz_kind kind;
    uint64_t bytes, resident, swapped;

    pthread_mutex_lock(&core->count_lock);
    for (uint32_t i = 0; nth_region(core, i, &memory, &bytes, &kind); i++) {
        if (engine->ops->counted(engine, memory, 0, bytes, &resident, &swapped) != 0)
            continue;
        status->kind[kind].counted_bytes += resident;
        status->kind[kind].swapped_bytes += swapped;
        if (kind == MZ_KIND_SCRATCH)
            status->kind[kind].resident_bytes += resident;
    }
    pthread_mutex_unlock(&core->count_lock);
}

/* One source, in use until it is dropped; NULL: there are not so many. */
static struct mz_source *nth_source(struct mz_core *core, uint32_t n)
{
    pthread_mutex_lock(&core->lock);
    struct mz_source *source = core->sources;
    for (; source && n > 0; n--)
        source = source->next;
    if (source)
        source->uses++;
    pthread_mutex_unlock(&core->lock);
    return source;
}

static uint64_t count_sources(struct mz_core *core)
{
    struct mz_source *source;
    uint64_t bytes = 0;

    for (uint32_t i = 0; (source = nth_source(core, i)) != NULL; i++) {
        bytes += mz_file_cached(&source->file);
        pthread_mutex_lock(&core->lock);
        mz_source_drop(core, source);
        pthread_mutex_unlock(&core->lock);
    }
    return bytes;
}

void mz_core_status(struct mz_core *core, struct mz_core_status *ret)
{
    struct mz_core_status status;

    memset(&status, 0, sizeof(status));
    count_regions(core, &status);
    status.model_cached_bytes = count_sources(core);
    pthread_mutex_lock(&core->lock);
    for (const struct mz_region *region = core->regions; region; region = region->next)
        add_region(region, &status);
    mz_core_totals(core, &status.total_bytes, &status.remaining_bytes, &status.floor_bytes);
    status.limit_bytes = core->limit_bytes;
    status.stack_used_bytes = mz_stack_used_bytes(core->stack);
    status.stack_reserve_bytes = mz_stack_memory_bytes(core->stack) - status.stack_used_bytes;
    status.bounce_bytes = core->bounce_bytes;
    status.ledger_bytes = mz_room_ledger(core);
    status.ledger_peak_bytes = core->ledger_peak_bytes;
    status.store_file_bytes = mz_store_size_bytes(core->store);
    status.store_written_bytes = mz_store_written_bytes(core->store);
    status.read_bytes = core->read_bytes;
    status.decoded_bytes = core->decoded_bytes;
    status.evictions = core->evictions;
    status.restores = core->restores;
    status.gate_waits = core->gate_waits;
    status.gate_wait_ns = core->gate_wait_ns;
    status.last_use_ns = core->last_use_ns;
    status.computing = core->graphs > 0;
    status.restoring = core->ahead && core->n_evicted > 0;
    pthread_mutex_unlock(&core->lock);
    *ret = status;
}

static uint64_t dirty_bytes(const struct mz_core *core)
{
    uint64_t bytes = 0;

    for (const struct mz_region *region = core->regions; region; region = region->next)
        for (uint32_t i = 0; i < region->n; i++)
            for (uint32_t u = 0; u < region->tensors[i]->n; u++) {
                const struct mz_unit *unit = &region->tensors[i]->units[u];
                bool clean = unit->state == MZ_RESIDENT && mz_unit_is_clean(unit);
                bytes += mz_unit_holds_memory(unit) && !clean ? mz_unit_bytes(unit) : 0;
            }
    return bytes;
}

void mz_core_brief(struct mz_core *core, struct mz_core_brief *ret)
{
    pthread_mutex_lock(&core->lock);
    mz_core_totals(core, &ret->total_bytes, &ret->remaining_bytes, &ret->floor_bytes);
    ret->limit_bytes = core->limit_bytes;
    ret->dirty_bytes = dirty_bytes(core);
    ret->last_use_ns = core->last_use_ns;
    ret->computing = core->graphs > 0;
    ret->restoring = core->ahead && core->n_evicted > 0;
    pthread_mutex_unlock(&core->lock);
}

uint64_t mz_core_idle_ms(uint64_t last_use_ns, bool computing)
{
    uint64_t now = mz_os_now_ns();

    if (computing)
        return 0;
    if (last_use_ns == 0)
        return UINT64_MAX;
    return now > last_use_ns ? (now - last_use_ns) / 1000000 : 0;
}

static const char *where(const struct mz_unit *unit)
{
    switch ((enum mz_state)unit->state) {
    case MZ_EMPTY:
        return "empty";
    case MZ_RESIDENT:
        return "resident";
    case MZ_LOST:
        return "lost";
    case MZ_EVICTING:
    case MZ_RESTORING:
        return "moving";
    case MZ_EVICTED:
        break;
    }
    if (unit->copies & MZ_COPY_STACK)
        return "stack";
    return unit->copies & (MZ_COPY_STORE | MZ_COPY_PACKED) ? "store" : "file";
}

void mz_core_visit(struct mz_core *core, void (*see)(void *user, const struct mz_unit_view *view), void *user)
{
    pthread_mutex_lock(&core->lock);
    mz_order_refresh(core);
    for (uint32_t i = 0; i < core->n_units; i++) {
        const struct mz_unit *unit = core->sequence[i];
        struct mz_unit_view view = {
            .tensor = unit->tensor->name,
            .where = where(unit),
            .kind = unit->tensor->kind,
            .layer = unit->tensor->layer,
            .index = unit->index,
            .order = unit->order,
            .bytes = mz_unit_bytes(unit),
            .clean = unit->state == MZ_RESIDENT && mz_unit_is_clean(unit),
            .lossy = unit->lossy,
            .is_v = unit->tensor->is_v,
            .pinned = unit->pins > 0,
        };
        see(user, &view);
    }
    pthread_mutex_unlock(&core->lock);
}
