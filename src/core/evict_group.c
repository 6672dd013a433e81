/* Carrying a plan out, in groups of units with the same action: copies are made, several writes at once, then
 * memory is released, neighbours in one piece.
 *
 * Nothing is released before its copy is complete. A write that fails leaves the unit in memory. Writes go
 * out of the units' own memory. Lock: core->lock for taking a group and for noting what became of it. */
#include <stdlib.h>

#include "codec/codec.h"
#include "core/evict.h"
#include "os/transfer.h"

struct group {
    struct mz_unit *units[MZ_GROUP];
    struct mz_request requests[MZ_GROUP];
    int errs[MZ_GROUP];
    bool write[MZ_GROUP]; /* stored: lacks the copy */
    bool lossy[MZ_GROUP];
    uint32_t n;
    enum mz_action action;
};

static bool still_fits(const struct mz_unit *unit, enum mz_action action)
{
    if (action == MZ_SINK)
        return unit->state == MZ_EVICTED && (unit->copies & MZ_COPY_STACK);
    return unit->state == MZ_RESIDENT && !unit->pins && !unit->cleaning &&
           (action != MZ_DROP || unit->copies);
}

/* Takes the next steps that share an action out of the plan and puts their units in motion. Lock held. */
static uint32_t group_take(struct mz_core *core, struct group *group, uint32_t at, uint32_t n)
{
    group->n = 0;
    group->action = core->plan_steps[at].action;
    for (; at < n && group->n < MZ_GROUP && core->plan_steps[at].action == group->action; at++) {
        struct mz_unit *unit = core->plan_from[core->plan_steps[at].unit];
        if (!still_fits(unit, group->action))
            continue;
        if (group->action == MZ_SINK)
            mz_unit_take_aside(unit);
        else
            mz_unit_move(unit, MZ_EVICTING);
        group->errs[group->n] = 0;
        group->units[group->n++] = unit;
    }
    return at;
}

/* Several writes in flight; neighbours got extents behind each other. */
static void group_write(struct mz_eviction *eviction, struct group *group)
{
    pthread_mutex_lock(&eviction->core->lock);
    for (uint32_t i = 0; i < group->n; i++) /* some got their copy since the plan was made */
        group->write[i] = !mz_unit_is_clean(group->units[i]);
    pthread_mutex_unlock(&eviction->core->lock);
    for (uint32_t i = 0; i < group->n; i++) {
        group->requests[i] = (struct mz_request){0};
        if (!group->write[i])
            continue;
        if (!eviction->transfer) {
            group->errs[i] = mz_unit_write_store(group->units[i]);
            continue;
        }
        group->errs[i] = mz_unit_write_begin(group->units[i], &group->requests[i]);
        group->requests[i].user = &group->errs[i];
        if (!group->errs[i])
            mz_transfer_submit(eviction->transfer, &group->requests[i]);
    }
    struct mz_request *done;
    while (eviction->transfer && (done = mz_transfer_wait(eviction->transfer)))
        *(int *)done->user = done->result;
    for (uint32_t i = 0; i < group->n && eviction->transfer; i++)
        group->errs[i] = mz_unit_write_end(group->units[i], group->errs[i], &group->requests[i]);
}

static void group_copy(struct mz_eviction *eviction, struct group *group)
{
    if (group->action == MZ_STORE)
        group_write(eviction, group);
    for (uint32_t i = 0; i < group->n; i++) {
        if (group->action == MZ_STACK)
            group->errs[i] = mz_unit_encode(group->units[i], &group->lossy[i]);
        if (group->action == MZ_SINK)
            group->errs[i] = group->units[i]->copies & MZ_COPY_STORE ? 0 : mz_unit_sink(group->units[i]);
    }
}

/* Notes the copies that were made; units whose copy failed stay where they are. Returns how many were sunk.
 * Lock held. */
static uint32_t group_note(struct mz_eviction *eviction, struct group *group)
{
    uint32_t kept = 0, sunk = 0;

    for (uint32_t i = 0; i < group->n; i++) {
        struct mz_unit *unit = group->units[i];
        uint64_t bytes = mz_unit_bytes(unit);
        if (group->errs[i] && mz_packed_give_up(unit, group->errs[i])) {
            group->errs[i] = 0;
            group->write[i] = false;
        }
        if (group->errs[i]) {
            eviction->err = group->errs[i];
            eviction->no_stack = eviction->no_stack || group->action == MZ_STACK;
            eviction->no_store = eviction->no_store || group->action != MZ_STACK;
            if (group->action == MZ_SINK)
                mz_unit_put_back(unit, MZ_EVICTED);
            else
                mz_unit_move(unit, MZ_RESIDENT);
            continue;
        }
        if (group->action == MZ_STORE) {
            if (group->write[i])
                mz_unit_note_written(unit);
            eviction->report.to_store_bytes += group->write[i] ? bytes : 0;
        } else if (group->action == MZ_STACK) {
            /* What comes back will differ from a copy made before the first loss, and equal one made after
             * it. */
            if (group->lossy[i] && !unit->lossy) {
                mz_unit_void(unit, unit->copies);
                unit->hashed = false;
            }
            unit->copies |= MZ_COPY_STACK;
            eviction->report.to_stack_bytes += bytes;
        } else if (group->action == MZ_SINK) {
            unit->copies |= MZ_COPY_STORE;
            eviction->report.to_store_bytes += unit->slot.bytes;
            mz_unit_void(unit, MZ_COPY_STACK);
            mz_unit_put_back(unit, MZ_EVICTED);
            sunk++;
            continue;
        }
        group->units[kept++] = unit;
    }
    group->n = kept;
    return sunk;
}

static int by_address(const void *a, const void *b)
{
    const char *x = mz_unit_address(*(struct mz_unit *const *)a),
               *y = mz_unit_address(*(struct mz_unit *const *)b);

    return x < y ? -1 : x > y;
}

/* The unit left, and comes back as its image on the stack says; or it stays, exact as it is, and the image
 * goes. */
static void released(struct mz_unit *unit, int err)
{
    if (err)
        mz_unit_void(unit, MZ_COPY_STACK);
    else if (unit->copies & MZ_COPY_STACK)
        unit->lossy = unit->lossy || mz_codec_is_lossy_image(mz_stack_at(&unit->slot), unit->slot.bytes);
    mz_unit_move(unit, err ? MZ_RESIDENT : MZ_EVICTED);
}

/* Releases what has copies, neighbours in one piece so that small chunks of one huge page do not split it in
 * turn. Returns how many left: none of locked memory. Lock held, dropped meanwhile. */
static uint32_t group_release(struct mz_eviction *eviction, struct group *group)
{
    struct mz_core *core = eviction->core;
    uint32_t left = 0;

    qsort(group->units, group->n, sizeof(struct mz_unit *), by_address);
    for (uint32_t i = 0, end; i < group->n; i = end) {
        struct mz_region *region = group->units[i]->tensor->region;
        uint64_t lo, hi, next_lo, next_hi;
        mz_unit_span(group->units[i], &lo, &hi);
        for (end = i + 1; end < group->n && group->units[end]->tensor->region == region;
             end++, hi = next_hi) {
            mz_unit_span(group->units[end], &next_lo, &next_hi);
            if (next_lo != hi)
                break;
        }
        pthread_mutex_unlock(&core->lock);
        int err = mz_evict_release(region, lo, hi, &eviction->freed);
        pthread_mutex_lock(&core->lock);
        if (err) {
            mz_evict_say_locked(err);
            eviction->err = err;
            eviction->no_stack = eviction->no_store = true;
        }
        left += err ? 0 : end - i;
        for (; i < end; i++)
            released(group->units[i], err);
    }
    return left;
}

bool mz_evict_carry_out(struct mz_eviction *eviction, uint32_t n)
{
    struct mz_core *core = eviction->core;
    struct group group;
    bool any = false;

    for (uint32_t at = 0; at < n;) {
        at = group_take(core, &group, at, n);
        if (group.n == 0)
            continue;
        pthread_mutex_unlock(&core->lock);
        group_copy(eviction, &group);
        pthread_mutex_lock(&core->lock);
        uint32_t left = group_note(eviction, &group);
        left += group_release(eviction, &group);
        any = any || left > 0;
    }
    return any;
}
