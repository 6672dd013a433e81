/* Regions: one per buffer, with the tensors that lie in it, sorted by offset. Lock: core->lock; a region is made and
 * destroyed by the thread that owns the buffer, while evictions and workers may hold its units in motion. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/state.h"
#include "os/fault.h"
#include "os/log.h"

static const struct mz_engine_ops *ops(const struct mz_region *region)
{
    return region->core->engine->ops;
}

/* Scratch is not asked for through a gate, so a limit makes room for it here. Lock held, dropped meanwhile. */
static void count_scratch(struct mz_core *core, uint64_t bytes)
{
    if (core->limit_bytes)
        (void)mz_room_make(core, bytes, 0); /* what does not fit is over the limit until the next graph raises it */
    core->other_bytes += bytes;
}

int mz_region_create(struct mz_core *core, uint64_t bytes, enum mz_kind kind, struct mz_region **ret)
{
    struct mz_region *region = mz_calloc(1, sizeof(*region));

    if (!region)
        return -ENOMEM;
    int err = core->engine->ops->reserve(core->engine, bytes, kind != MZ_KIND_SCRATCH, &region->memory);
    if (err) {
        free(region);
        return err;
    }
    region->core = core;
    region->base = core->engine->ops->base(region->memory);
    region->bytes = bytes;
    region->kind = kind;
    pthread_mutex_lock(&core->lock);
    region->next = core->regions;
    core->regions = region;
    if (kind == MZ_KIND_SCRATCH)
        count_scratch(core, bytes);
    mz_room_took(core);
    pthread_mutex_unlock(&core->lock);
    *ret = region;
    return 0;
}

/* Takes a unit that is at rest out of everything: queue, copies, counts. Lock held. */
static void forget_unit(struct mz_unit *unit)
{
    mz_restore_unwant(unit);
    mz_unit_void(unit, unit->copies);
    unit->lossy = unit->hashed = false;
    if (unit->state != MZ_EMPTY)
        mz_unit_move(unit, MZ_EMPTY);
}

static void forget_tensor(struct mz_tensor *tensor)
{
    struct mz_core *core = tensor->region->core;

    for (uint32_t i = 0; i < tensor->n; i++) {
        mz_unit_settle(&tensor->units[i]);
        forget_unit(&tensor->units[i]);
    }
    if (tensor->source)
        mz_source_drop(core, tensor->source);
    mz_order_forget(core, tensor);
    core->n_units -= tensor->n;
}

void mz_region_destroy(struct mz_region *region)
{
    if (!region)
        return;
    struct mz_core *core = region->core;

    /* An eviction keeps pointers to units in its plan: not while one runs. */
    pthread_mutex_lock(&core->evict_turn);
    pthread_mutex_lock(&core->peek_lock);
    pthread_mutex_lock(&core->count_lock);
    pthread_mutex_lock(&core->lock);
    core->peek_unit = NULL;
    for (uint32_t i = 0; i < region->n; i++)
        forget_tensor(region->tensors[i]);
    struct mz_region **link = &core->regions;
    while (*link != region)
        link = &(*link)->next;
    *link = region->next;
    if (region->kind == MZ_KIND_SCRATCH)
        core->other_bytes -= region->bytes;
    pthread_cond_broadcast(&core->changed);
    pthread_mutex_unlock(&core->lock);
    pthread_mutex_unlock(&core->count_lock);
    pthread_mutex_unlock(&core->peek_lock);
    pthread_mutex_unlock(&core->evict_turn);

    ops(region)->unreserve(core->engine, region->memory);
    for (uint32_t i = 0; i < region->n; i++)
        mz_tensor_free(region->tensors[i]);
    free(region->tensors);
    free(region->keep);
    free(region);
}

void *mz_region_base(const struct mz_region *region)
{
    return region->base;
}

uint64_t mz_region_bytes(const struct mz_region *region)
{
    return region->bytes;
}

enum mz_kind mz_region_get_kind(const struct mz_region *region)
{
    pthread_mutex_lock(&region->core->lock);
    enum mz_kind kind = region->kind;
    pthread_mutex_unlock(&region->core->lock);
    return kind;
}

void mz_region_set_kind(struct mz_region *region, enum mz_kind kind)
{
    struct mz_core *core = region->core;

    pthread_mutex_lock(&core->lock);
    if (region->kind != MZ_KIND_SCRATCH && kind == MZ_KIND_SCRATCH && region->n == 0)
        count_scratch(core, region->bytes);
    if (region->kind == MZ_KIND_SCRATCH && kind != MZ_KIND_SCRATCH)
        core->other_bytes -= region->bytes;
    region->kind = kind;
    mz_room_took(core);
    pthread_mutex_unlock(&core->lock);
}

/* ---- tensors */

/* Index of the first tensor that begins behind `offset`. Lock held. */
static uint32_t tensor_after(const struct mz_region *region, uint64_t offset)
{
    uint32_t lo = 0, hi = region->n;

    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (region->tensors[mid]->offset <= offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint32_t mz_region_index(const struct mz_region *region, const struct mz_tensor *tensor)
{
    return tensor_after(region, tensor->offset) - 1;
}

struct mz_tensor *mz_region_at(const struct mz_region *region, uint64_t offset, uint32_t *ret_next)
{
    uint32_t i = tensor_after(region, offset);
    struct mz_tensor *tensor = i > 0 ? region->tensors[i - 1] : NULL;

    *ret_next = i;
    return tensor && offset < tensor->offset + tensor->bytes ? tensor : NULL;
}

struct mz_tensor *mz_region_find(struct mz_region *region, uint64_t offset)
{
    uint32_t next;

    pthread_mutex_lock(&region->core->lock);
    struct mz_tensor *tensor = mz_region_at(region, offset, &next);
    pthread_mutex_unlock(&region->core->lock);
    return tensor;
}

/* A gap of so many granules in front of the next tensor is what our own buffers pad with: it goes with the tensor before it, so
 * that neighbours meet and huge pages leave and come back whole. */
#define PADDING_GRANULES 2

/* The pages that belong to the i-th tensor alone: outward to whole granules, without those that a neighbour's bytes
 * reach into (they are never released). Lock held. */
static void place_span(struct mz_region *region, uint32_t i)
{
    uint64_t mask = ops(region)->traits.granule_bytes - 1;
    struct mz_tensor *tensor = region->tensors[i];
    uint64_t end = tensor->offset + tensor->bytes;

    tensor->span_lo = tensor->offset & ~mask;
    tensor->span_hi = (end + mask) & ~mask;
    if (tensor->span_hi > region->bytes)
        tensor->span_hi = region->bytes & ~mask;
    if (i > 0) {
        const struct mz_tensor *before = region->tensors[i - 1];
        if (before->offset + before->bytes > tensor->span_lo)
            tensor->span_lo = (tensor->offset + mask) & ~mask;
    }
    if (i + 1 < region->n) {
        uint64_t next = region->tensors[i + 1]->offset;
        if (next < tensor->span_hi)
            tensor->span_hi = end & ~mask;
        else if ((next & ~mask) - tensor->span_hi <= PADDING_GRANULES * (mask + 1))
            tensor->span_hi = next & ~mask;
    }
    if (tensor->span_hi < tensor->span_lo)
        tensor->span_hi = tensor->span_lo;
    tensor->fixed = (tensor->kind == MZ_KIND_WEIGHT && tensor->bytes < MZ_FIXED_BYTES) ||
                    tensor->span_hi == tensor->span_lo;
}

/* Spans are counted in the ledger while units are in memory, so those of a neighbour that has content are left alone
 * unless the new one reaches into its last page. Lock held. */
static void place_spans_around(struct mz_region *region, uint32_t i)
{
    struct mz_core *core = region->core;

    for (uint32_t j = i > 0 ? i - 1 : 0; j <= i + 1 && j < region->n; j++) {
        struct mz_tensor *tensor = region->tensors[j];
        uint64_t before = 0, after = 0;
        for (uint32_t u = 0; u < tensor->n; u += tensor->n > 1 ? tensor->n - 1 : 1)
            before += tensor->units[u].state == MZ_EMPTY ? 0 : mz_unit_span_bytes(&tensor->units[u]);
        place_span(region, j);
        for (uint32_t u = 0; u < tensor->n; u += tensor->n > 1 ? tensor->n - 1 : 1)
            after += tensor->units[u].state == MZ_EMPTY ? 0 : mz_unit_span_bytes(&tensor->units[u]);
        core->unit_bytes += after - before;
    }
}

static struct mz_tensor *tensor_new(struct mz_region *region, const struct mz_tensor_desc *desc)
{
    struct mz_tensor *tensor = mz_calloc(1, sizeof(*tensor));
    size_t length = strlen(desc->name) + 1;

    if (!tensor)
        return NULL;
    tensor->name = mz_alloc(length);
    if (!tensor->name) {
        free(tensor);
        return NULL;
    }
    memcpy(tensor->name, desc->name, length);
    tensor->region = region;
    tensor->offset = desc->offset;
    tensor->bytes = desc->bytes;
    tensor->cut_bytes = desc->cut_bytes;
    tensor->kind = desc->kind;
    tensor->row_bytes = desc->row_bytes;
    tensor->layer = desc->layer;
    tensor->is_v = desc->is_v;
    tensor->fp16 = desc->fp16;
    if (mz_tensor_cut(tensor) == 0)
        return tensor;
    mz_tensor_free(tensor);
    return NULL;
}

/* Room for one tensor more in the region, and for its units in the buffers of evictions. Lock held. */
static int make_room(struct mz_region *region)
{
    if (region->n < region->room)
        return 0;
    uint32_t room = region->room ? region->room * 2 : 16;
    struct mz_tensor **tensors = mz_realloc(region->tensors, room * sizeof(struct mz_tensor *));
    if (!tensors)
        return -ENOMEM;
    region->tensors = tensors;
    region->room = room;
    return 0;
}

static int insert(struct mz_region *region, struct mz_tensor *tensor, uint32_t i)
{
    struct mz_core *core = region->core;
    int err = make_room(region);

    if (err)
        return err;
    core->n_units += tensor->n;
    err = mz_evict_reserve(core);
    if (err) {
        core->n_units -= tensor->n;
        return err;
    }
    memmove(&region->tensors[i + 1], &region->tensors[i], (region->n - i) * sizeof(struct mz_tensor *));
    region->tensors[i] = tensor;
    region->n++;
    place_spans_around(region, i);
    mz_order_changed(core);
    return 0;
}

int mz_region_add(struct mz_region *region, const struct mz_tensor_desc *desc, struct mz_tensor **ret)
{
    if (desc->bytes == 0 || desc->offset > region->bytes || desc->bytes > region->bytes - desc->offset)
        return -ERANGE;

    /* An eviction walks the plan's buffers, which may move. */
    pthread_mutex_lock(&region->core->evict_turn);
    pthread_mutex_lock(&region->core->lock);
    int err = 0;
    uint32_t i;
    struct mz_tensor *tensor = mz_region_at(region, desc->offset, &i);
    if (tensor) {
        if (desc->offset + desc->bytes > tensor->offset + tensor->bytes)
            err = -EBUSY;
    } else if (i < region->n && region->tensors[i]->offset < desc->offset + desc->bytes) {
        err = -EBUSY;
    } else {
        tensor = tensor_new(region, desc);
        err = tensor ? insert(region, tensor, i) : -ENOMEM;
        if (err)
            mz_tensor_free(tensor);
    }
    pthread_mutex_unlock(&region->core->lock);
    pthread_mutex_unlock(&region->core->evict_turn);
    if (err == 0)
        *ret = tensor;
    return err;
}

/* Buffers of evictions for so many units more. evict_turn and lock held. */
static int reserve_units(struct mz_core *core, uint32_t more)
{
    core->n_units += more;
    int err = mz_evict_reserve(core);
    core->n_units -= more;
    return err;
}

int mz_tensor_shift(struct mz_tensor *tensor, uint64_t shift)
{
    struct mz_region *region = tensor->region;
    struct mz_core *core = region->core;

    pthread_mutex_lock(&core->evict_turn);
    pthread_mutex_lock(&core->lock);
    uint32_t i = mz_region_index(region, tensor), before = tensor->n;
    uint64_t end = tensor->offset + shift + tensor->bytes;
    bool fits = shift < region->bytes && end <= region->bytes;
    int err = !fits || (i + 1 < region->n && end > region->tensors[i + 1]->offset) ? -ERANGE : 0;
    for (uint32_t u = 0; u < tensor->n && !err; u++)
        err = tensor->units[u].state != MZ_EMPTY || tensor->units[u].pins ? -EBUSY : 0;
    if (!err)
        err = reserve_units(core, (uint32_t)(tensor->bytes / MZ_UNIT_BYTES) + 2); /* as many as it can have then */
    if (!err) {
        tensor->offset += shift;
        mz_order_forget(core, tensor);
        err = mz_tensor_cut(tensor);
        if (err)
            tensor->offset -= shift;
        core->n_units += tensor->n - before;
        place_spans_around(region, i);
        mz_order_changed(core);
    }
    pthread_mutex_unlock(&core->lock);
    pthread_mutex_unlock(&core->evict_turn);
    return err;
}

bool mz_unit_is_empty(const struct mz_unit *unit)
{
    struct mz_core *core = unit->tensor->region->core;

    pthread_mutex_lock(&core->lock);
    bool empty = unit->state == MZ_EMPTY;
    pthread_mutex_unlock(&core->lock);
    return empty;
}

/* ---- scratch and clearing */

void mz_region_keep(struct mz_region *region, const uint64_t (*ranges)[2], uint32_t n, bool all)
{
    struct mz_core *core = region->core;
    uint64_t(*keep)[2] = n ? mz_alloc(n * sizeof(*keep)) : NULL;

    if (keep)
        memcpy(keep, ranges, n * sizeof(*keep));
    pthread_mutex_lock(&core->lock);
    free(region->keep);
    region->keep = keep;
    region->n_keep = keep ? n : 0;
    region->keep_all = all || (n && !keep); /* without memory for the list, everything is kept */
    pthread_mutex_unlock(&core->lock);
}

int mz_region_clear(struct mz_region *region, uint8_t value)
{
    struct mz_core *core = region->core;

    pthread_mutex_lock(&core->evict_turn);
    pthread_mutex_lock(&core->lock);
    for (uint32_t i = 0; i < region->n; i++) {
        for (uint32_t u = 0; u < region->tensors[i]->n; u++) {
            struct mz_unit *unit = &region->tensors[i]->units[u];
            mz_unit_settle(unit);
            forget_unit(unit);
        }
    }
    pthread_mutex_unlock(&core->lock);
    int err = ops(region)->release(core->engine, region->memory, 0, region->bytes);
    if (ops(region)->trap)
        ops(region)->trap(core->engine, region->memory, 0, region->bytes, false);
    if (err) {
        mz_log(MZ_LOG_WARN, "cannot give back the memory of a cleared buffer (%s), writing zeros instead",
               mz_log_errno(err));
        memset(region->base, 0, region->bytes);
        err = 0;
    }
    pthread_mutex_unlock(&core->evict_turn);
    return value ? mz_region_fill(region, 0, value, region->bytes) : err;
}
