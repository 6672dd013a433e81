/* Units: where they lie, and the state machine that every other file moves them through.
 *
 *              write pin, load                  picked by an eviction
 *     EMPTY ------------------> RESIDENT ---------------------------> EVICTING
 *       |  ^                     |   ^  ^                                |  |
 *       |  |        clear        |   |  +------- no copy could be made --+  | copy complete,
 *       |  +---------------------+   |                                      | memory released
 *       |  |                         | verified                             v
 *       |  +-- clear --- LOST <---- RESTORING <------ picked, read ------ EVICTED
 *       |                 |  unreadable  |            through              ^  ^
 *       |                 |              +--- read through, interrupted ---+  |
 *       |                 +------------- tried again ------------------------+
 *       +---------------- loaded under a limit: the file holds it -----------+   (EVICTED -> EMPTY: clear)
 *
 * What holds in each state (checked by unit_check on every move):
 *   EMPTY      no memory, no copies; reads as zeros.
 *   RESIDENT   memory holds the bytes last written; each copy in `copies` equals them.
 *   EVICTING   as resident, but nobody may pin it: a copy is being made or the memory is being released.
 *   EVICTED    at least one valid copy; the memory is released (or, early, committed again with a neighbour's).
 *   RESTORING  as evicted, with memory that is not valid yet; at least one I/O or decode owns it.
 *   LOST       no copy could be read; every pin fails; reads give 0xFF.
 * Only RESIDENT and EMPTY units are pinned. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/state.h"
#include "os/fault.h"

static uint64_t granule(const struct mz_tensor *tensor)
{
    return tensor->region->core->engine->ops->traits.granule_bytes;
}

/* Where units begin, in the region: unit 0 at the tensor's start, the others at multiples. */
static uint64_t unit_start(const struct mz_tensor *tensor, uint32_t index)
{
    if (index == 0)
        return tensor->offset;
    if (tensor->cut_bytes)
        return tensor->offset + index * tensor->cut_bytes;
    return (tensor->offset / MZ_UNIT_BYTES + index) * MZ_UNIT_BYTES;
}

static uint64_t unit_end(const struct mz_tensor *tensor, uint32_t index)
{
    return index + 1 == tensor->n ? tensor->offset + tensor->bytes : unit_start(tensor, index + 1);
}

static uint32_t unit_at(const struct mz_tensor *tensor, uint64_t region_offset)
{
    if (tensor->cut_bytes)
        return (uint32_t)((region_offset - tensor->offset) / tensor->cut_bytes);
    return (uint32_t)(region_offset / MZ_UNIT_BYTES - tensor->offset / MZ_UNIT_BYTES);
}

uint64_t mz_unit_offset(const struct mz_unit *unit)
{
    return unit_start(unit->tensor, unit->index);
}

uint64_t mz_unit_bytes(const struct mz_unit *unit)
{
    return unit_end(unit->tensor, unit->index) - mz_unit_offset(unit);
}

void mz_unit_span(const struct mz_unit *unit, uint64_t *ret_lo, uint64_t *ret_hi)
{
    const struct mz_tensor *tensor = unit->tensor;
    uint64_t lo = unit->index == 0 ? tensor->span_lo : mz_unit_offset(unit);
    uint64_t hi = unit->index + 1 == tensor->n ? tensor->span_hi : unit_end(tensor, unit->index);
    *ret_lo = lo;
    *ret_hi = hi < lo ? lo : hi;
}

uint64_t mz_unit_span_bytes(const struct mz_unit *unit)
{
    uint64_t lo, hi;
    mz_unit_span(unit, &lo, &hi);
    return hi - lo;
}

uint64_t mz_unit_stored_bytes(const struct mz_unit *unit)
{
    uint64_t bytes = unit->image_bytes ? unit->image_bytes : mz_unit_bytes(unit);

    return (bytes + 4095) & ~UINT64_C(4095);
}

void *mz_unit_address(const struct mz_unit *unit)
{
    return (char *)unit->tensor->region->base + mz_unit_offset(unit);
}

uint32_t mz_tensor_units(const struct mz_tensor *tensor)
{
    return tensor->n;
}

struct mz_unit *mz_tensor_unit(struct mz_tensor *tensor, uint32_t index)
{
    assert(index < tensor->n);
    return &tensor->units[index];
}

void mz_tensor_range(const struct mz_tensor *tensor, uint64_t offset, uint64_t bytes, uint32_t *ret_first,
                     uint32_t *ret_end)
{
    if (bytes == 0 || offset >= tensor->bytes) {
        *ret_first = *ret_end = 0;
        return;
    }
    if (bytes > tensor->bytes - offset)
        bytes = tensor->bytes - offset;
    *ret_first = unit_at(tensor, tensor->offset + offset);
    *ret_end = unit_at(tensor, tensor->offset + offset + bytes - 1) + 1;
}

const char *mz_tensor_name(const struct mz_tensor *tensor)
{
    return tensor->name;
}

uint64_t mz_tensor_offset(const struct mz_tensor *tensor)
{
    return tensor->offset;
}

uint64_t mz_tensor_bytes(const struct mz_tensor *tensor)
{
    return tensor->bytes;
}

const char *mz_unit_name(const struct mz_unit *unit, char *buf, size_t size)
{
    if (unit->tensor->n == 1)
        snprintf(buf, size, "%s", unit->tensor->name);
    else
        snprintf(buf, size, "%s[%u]", unit->tensor->name, unit->index);
    return buf;
}

/* Cuts that are not whole granules would let neighbours share a page: such a tensor is cut like a weight. */
int mz_tensor_cut(struct mz_tensor *tensor)
{
    uint64_t cut_bytes = tensor->cut_bytes;

    if (cut_bytes % granule(tensor) || tensor->offset % granule(tensor))
        tensor->cut_bytes = 0;
    uint32_t n = unit_at(tensor, tensor->offset + tensor->bytes - 1) + 1;
    struct mz_unit *units = mz_calloc(n, sizeof(*units));
    if (!units) {
        tensor->cut_bytes = cut_bytes; /* the units that there are were cut by it */
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        units[i] = (struct mz_unit){.tensor = tensor, .index = i, .order = MZ_NO_ORDER};
    free(tensor->units);
    tensor->units = units;
    tensor->n = n;
    return 0;
}

void mz_tensor_free(struct mz_tensor *tensor)
{
    if (!tensor)
        return;
    free(tensor->units);
    free(tensor->name);
    free(tensor);
}

/* ---- the state machine */

#define BIT(state) (1u << (state))

static const unsigned arrows[] = {
    [MZ_EMPTY] = BIT(MZ_RESIDENT) | BIT(MZ_EVICTED),
    [MZ_RESIDENT] = BIT(MZ_EVICTING) | BIT(MZ_EMPTY),
    [MZ_EVICTING] = BIT(MZ_EVICTED) | BIT(MZ_RESIDENT),
    [MZ_EVICTED] = BIT(MZ_RESTORING) | BIT(MZ_EMPTY),
    [MZ_RESTORING] = BIT(MZ_RESIDENT) | BIT(MZ_EVICTED) | BIT(MZ_LOST),
    [MZ_LOST] = BIT(MZ_EVICTED) | BIT(MZ_EMPTY),
};

static void unit_check(const struct mz_unit *unit)
{
    switch ((enum mz_state)unit->state) {
    case MZ_EMPTY:
        assert(unit->copies == 0 && !unit->lossy);
        break;
    case MZ_EVICTED:
    case MZ_RESTORING:
        assert((unit->copies & ~MZ_COPY_PACKED) && unit->pins == 0 && !unit->cleaning);
        break;
    case MZ_EVICTING:
        assert(unit->pins == 0 && !unit->cleaning);
        break;
    case MZ_LOST:
        assert(unit->pins == 0);
        break;
    case MZ_RESIDENT:
        break;
    }
    assert(unit->writers <= unit->pins);
}

bool mz_unit_holds_memory(const struct mz_unit *unit)
{
    return unit->state == MZ_RESIDENT || unit->state == MZ_EVICTING || (unit->state == MZ_RESTORING && !unit->aside);
}

static bool moving(unsigned state)
{
    return state == MZ_EVICTING || state == MZ_RESTORING;
}

void mz_unit_move(struct mz_unit *unit, enum mz_state to)
{
    struct mz_core *core = unit->tensor->region->core;
    unsigned from = unit->state;
    bool held = mz_unit_holds_memory(unit);

    bool drawn = arrows[from] & BIT(to);
    assert(drawn);
    (void)drawn;
    unit->state = (uint8_t)to;
    unit_check(unit);
    core->n_evicted += (uint32_t)(to == MZ_EVICTED) - (uint32_t)(from == MZ_EVICTED);
    core->n_moving += (uint32_t)moving(to) - (uint32_t)moving(from);
    if (unit->early && !unit->aside)
        mz_unit_early(unit, false);
    bool holds = mz_unit_holds_memory(unit);
    if (holds && !held) {
        core->unit_bytes += mz_unit_span_bytes(unit);
        mz_room_took(core);
    } else if (!holds && held) {
        core->unit_bytes -= mz_unit_span_bytes(unit);
    }
    if (to == MZ_EVICTED && unit->order < core->cursor)
        core->cursor = unit->order;
    pthread_cond_broadcast(&core->changed);
}

void mz_unit_take_aside(struct mz_unit *unit)
{
    unit->aside = true;
    mz_unit_move(unit, MZ_RESTORING);
}

void mz_unit_put_back(struct mz_unit *unit, enum mz_state to)
{
    mz_unit_move(unit, to);
    unit->aside = false;
}

void mz_unit_early(struct mz_unit *unit, bool early)
{
    struct mz_core *core = unit->tensor->region->core;

    assert(unit->early != early && (!early || unit->state == MZ_EVICTED));
    unit->early = early;
    if (early) {
        core->n_early++;
        core->unit_bytes += mz_unit_span_bytes(unit);
        mz_room_took(core);
    } else {
        core->n_early--;
        core->unit_bytes -= mz_unit_span_bytes(unit);
    }
}

void mz_unit_void(struct mz_unit *unit, unsigned copies)
{
    struct mz_core *core = unit->tensor->region->core;

    copies &= unit->copies;
    if (copies & MZ_COPY_STORE) {
        mz_store_free(core->store, unit->store_offset, mz_unit_stored_bytes(unit));
        unit->image_bytes = 0;
    }
    if (copies & MZ_COPY_PACKED)
        mz_store_free(core->store, unit->packed_offset, mz_unit_bytes(unit));
    if (copies & MZ_COPY_STACK)
        mz_stack_drop(core->stack, &unit->slot);
    unit->copies &= (uint8_t)~copies;
    if (copies)
        atomic_store(&core->peek_void, 1);
}
