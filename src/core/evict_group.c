/* Carrying a plan out: first what only has to be released, then groups of units with the same action. Their
 * copies are made, several writes at once, then memory is released, neighbours in one piece.
 *
 * Nothing is released before its copy is complete. A write that fails leaves the unit in memory. Writes go
 * out of the units' own memory. Lock: core->lock for taking a group and for noting what became of it. */
#include <stdlib.h>

#include "codec/codec.h"
#include "core/evict.h"
#include "os/mem.h"
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

/* Full, or large enough and at the border of a huge page: chunks leave backward. */
static bool group_is_full(const struct group *group)
{
    if (group->n < MZ_GROUP / 2)
        return false;
    return group->n == MZ_GROUP || mz_unit_offset(group->units[group->n - 1]) % MZ_OS_HUGE_BYTES == 0;
}

/* Takes the next steps that share an action out of the plan, past those that drop_all() took, and puts their
 * units in motion. Lock held. */
static uint32_t group_take(struct mz_core *core, struct group *group, uint32_t at, uint32_t n)
{
    group->n = 0;
    for (; at < n && !group_is_full(group); at++) {
        const struct mz_plan_step *step = &core->plan_steps[at];
        struct mz_unit *unit = core->plan_from[step->unit];
        if (step->action == MZ_DROP)
            continue;
        if (group->n && step->action != group->action)
            break;
        group->action = step->action;
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

static int by_address(const void *a, const void *b)
{
    const char *x = mz_unit_address(*(struct mz_unit *const *)a),
               *y = mz_unit_address(*(struct mz_unit *const *)b);

    return x < y ? -1 : x > y;
}

/* Several writes in flight. Neighbours get extents behind each other, so that they come back in one read. */
static void group_write(struct mz_eviction *eviction, struct group *group)
{
    qsort(group->units, group->n, sizeof(struct mz_unit *), by_address);
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

/* A copy failed: the unit stays where it is, and the eviction goes on without such copies. */
static void note_failed(struct mz_eviction *eviction, const struct group *group, uint32_t i)
{
    eviction->err = group->errs[i];
    eviction->no_stack = eviction->no_stack || group->action == MZ_STACK;
    eviction->no_store = eviction->no_store || group->action != MZ_STACK;
    if (group->action == MZ_SINK)
        mz_unit_put_back(group->units[i], MZ_EVICTED);
    else
        mz_unit_move(group->units[i], MZ_RESIDENT);
}

static void note_stored(struct mz_eviction *eviction, struct mz_unit *unit)
{
    mz_unit_note_written(unit);
    eviction->report.to_store_bytes += mz_unit_bytes(unit);
}

/* What comes back will differ from a copy made before the first loss, and equal one made after it. */
static void note_stacked(struct mz_eviction *eviction, struct mz_unit *unit, bool lossy)
{
    if (lossy && !unit->lossy) {
        mz_unit_void(unit, unit->copies);
        unit->hashed = false;
    }
    unit->copies |= MZ_COPY_STACK;
    eviction->report.to_stack_bytes += mz_unit_bytes(unit);
}

/* It was evicted already, and is again. One that had a copy in the store was not written. */
static void note_sunk(struct mz_eviction *eviction, struct mz_unit *unit)
{
    eviction->report.to_store_bytes += unit->copies & MZ_COPY_STORE ? 0 : unit->slot.bytes;
    unit->copies |= MZ_COPY_STORE;
    mz_unit_void(unit, MZ_COPY_STACK);
    mz_unit_put_back(unit, MZ_EVICTED);
}

/* Notes the copies that were made. What is left in the group is to be released. Returns how many were sunk.
 * Lock held. */
static uint32_t group_note(struct mz_eviction *eviction, struct group *group)
{
    uint32_t kept = 0, sunk = 0;

    for (uint32_t i = 0; i < group->n; i++) {
        struct mz_unit *unit = group->units[i];
        if (group->errs[i] && mz_packed_give_up(unit, group->errs[i])) {
            group->errs[i] = 0;
            group->write[i] = false;
        }
        if (group->errs[i]) {
            note_failed(eviction, group, i);
            continue;
        }
        if (group->action == MZ_SINK) {
            note_sunk(eviction, unit);
            sunk++;
            continue;
        }
        if (group->action == MZ_STACK)
            note_stacked(eviction, unit, group->lossy[i]);
        else if (group->write[i])
            note_stored(eviction, unit);
        group->units[kept++] = unit;
    }
    group->n = kept;
    return sunk;
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

/* The end of the run of neighbours that begins with unit i; what it spans. */
static uint32_t run_end(struct mz_unit *const *units, uint32_t i, uint32_t n, uint64_t *ret_lo,
                        uint64_t *ret_hi)
{
    const struct mz_region *region = units[i]->tensor->region;
    uint64_t lo, hi;

    mz_unit_span(units[i], ret_lo, ret_hi);
    for (i++; i < n && units[i]->tensor->region == region; i++, *ret_hi = hi) {
        mz_unit_span(units[i], &lo, &hi);
        if (lo != *ret_hi)
            break;
    }
    return i;
}

/* Releases what has copies, neighbours in one piece: those that left a huge page in turn would split it, and
 * its table of small pages stays, so that it came back in small ones. Returns how many left: none of locked
 * memory. Lock held, dropped meanwhile. */
static uint32_t release_units(struct mz_eviction *eviction, struct mz_unit **units, uint32_t n)
{
    struct mz_core *core = eviction->core;
    uint32_t left = 0;

    qsort(units, n, sizeof(struct mz_unit *), by_address);
    for (uint32_t i = 0, end; i < n; i = end) {
        uint64_t lo, hi;
        end = run_end(units, i, n, &lo, &hi);
        pthread_mutex_unlock(&core->lock);
        int err = mz_evict_release(units[i]->tensor->region, lo, hi, &eviction->freed);
        pthread_mutex_lock(&core->lock);
        if (err) {
            mz_evict_say_locked(err);
            eviction->err = err;
            eviction->no_stack = eviction->no_store = true;
        }
        left += err ? 0 : end - i;
        for (; i < end; i++)
            released(units[i], err);
    }
    return left;
}

/* Units that have copies already, all of the plan's at once. Returns how many left. Lock held, dropped
 * meanwhile. */
static uint32_t drop_all(struct mz_eviction *eviction, uint32_t n_steps)
{
    struct mz_core *core = eviction->core;
    uint32_t n = 0;

    for (uint32_t at = 0; at < n_steps; at++) {
        struct mz_unit *unit = core->plan_from[core->plan_steps[at].unit];
        if (core->plan_steps[at].action != MZ_DROP || !still_fits(unit, MZ_DROP))
            continue;
        mz_unit_move(unit, MZ_EVICTING);
        core->plan_out[n++] = unit;
    }
    return release_units(eviction, core->plan_out, n);
}

bool mz_evict_carry_out(struct mz_eviction *eviction, uint32_t n)
{
    struct mz_core *core = eviction->core;
    struct group group;
    bool any = drop_all(eviction, n) > 0;

    for (uint32_t at = 0; at < n;) {
        at = group_take(core, &group, at, n);
        if (group.n == 0)
            continue;
        pthread_mutex_unlock(&core->lock);
        group_copy(eviction, &group);
        pthread_mutex_lock(&core->lock);
        uint32_t left = group_note(eviction, &group);
        left += release_units(eviction, group.units, group.n);
        any = any || left > 0;
    }
    return any;
}
