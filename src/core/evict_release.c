/* Giving memory back: of a range, of a unit that has a copy, of scratch. What is reported was counted in the
 * page tables before the release. */
#include <errno.h>

#include "core/evict.h"
#include "os/log.h"

uint64_t mz_evict_count(struct mz_region *region, uint64_t lo, uint64_t hi)
{
    struct mz_engine *engine = region->core->engine;
    uint64_t resident, swapped;

    if (engine->ops->counted(engine, region->memory, lo, hi - lo, &resident, &swapped) != 0)
        return hi - lo;
    return resident + swapped;
}

int mz_evict_release(struct mz_region *region, uint64_t lo, uint64_t hi, uint64_t *freed)
{
    struct mz_engine *engine = region->core->engine;
    uint64_t counted = mz_evict_count(region, lo, hi);
    int err = engine->ops->release(engine, region->memory, lo, hi - lo);

    if (err)
        return err;
    if (engine->ops->trap)
        engine->ops->trap(engine, region->memory, lo, hi - lo, true);
    *freed += counted;
    return 0;
}

void mz_evict_say_locked(int err)
{
    mz_log_once(MZ_LOG_WARN, "memory cannot be given back (%s)%s", mz_log_errno(err),
                err == -EINVAL ? "; it is locked, start the program without --mlock" : "");
}

int mz_units_release(struct mz_unit *first, uint32_t n, uint64_t *freed)
{
    struct mz_region *region = first->tensor->region;
    struct mz_core *core = region->core;
    uint64_t lo, hi, other;

    mz_unit_span(first, &lo, &other);
    mz_unit_span(&first[n - 1], &other, &hi);
    pthread_mutex_unlock(&core->lock);
    int err = mz_evict_release(region, lo, hi, freed);
    pthread_mutex_lock(&core->lock);
    if (err)
        mz_evict_say_locked(err);
    for (uint32_t i = 0; i < n; i++)
        mz_unit_move(&first[i], err ? MZ_RESIDENT : MZ_EVICTED);
    return err;
}

int mz_unit_give_back(const struct mz_unit *unit, uint64_t *freed)
{
    uint64_t lo, hi;

    mz_unit_span(unit, &lo, &hi);
    return mz_evict_release(unit->tensor->region, lo, hi, freed);
}

void mz_unit_settle(struct mz_unit *unit)
{
    struct mz_core *core = unit->tensor->region->core;

    while (unit->pins || unit->cleaning || unit->state == MZ_EVICTING || unit->state == MZ_RESTORING)
        pthread_cond_wait(&core->changed, &core->lock);
}

int mz_unit_evict(struct mz_unit *unit, uint64_t *freed)
{
    struct mz_core *core = unit->tensor->region->core;
    int err = 0;

    mz_unit_move(unit, MZ_EVICTING);
    if (!mz_unit_is_clean(unit)) {
        pthread_mutex_unlock(&core->lock);
        err = mz_unit_write_store(unit);
        pthread_mutex_lock(&core->lock);
        if (!err)
            mz_unit_note_written(unit);
        else if (mz_packed_give_up(unit, err))
            err = 0;
    }
    if (err)
        mz_unit_move(unit, MZ_RESIDENT);
    return err ? err : mz_units_release(unit, 1, freed);
}

/* ---- scratch */

/* Releases pages of the scratch region outside of the ranges kept, until `bytes` are freed. Lock held: the
 * calls are short, and no graph may begin meanwhile. */
static uint64_t scratch_region(struct mz_region *region, uint64_t bytes)
{
    uint64_t mask = region->core->engine->ops->traits.granule_bytes - 1, freed = 0, at = 0;

    for (uint32_t i = 0; i <= region->n_keep && freed < bytes; i++) {
        uint64_t end = i < region->n_keep ? region->keep[i][0] & ~mask : region->bytes;
        for (uint64_t step; at < end && freed < bytes; at += step) {
            step = end - at < 2 * MZ_MIB ? end - at : 2 * MZ_MIB;
            uint64_t counted = mz_evict_count(region, at, at + step);
            if (counted &&
                region->core->engine->ops->release(region->core->engine, region->memory, at, step) == 0)
                freed += counted;
        }
        if (i < region->n_keep && at < ((region->keep[i][1] + mask) & ~mask))
            at = (region->keep[i][1] + mask) & ~mask;
    }
    return freed;
}

uint64_t mz_evict_scratch(struct mz_core *core, uint64_t bytes)
{
    uint64_t freed = 0;

    for (struct mz_region *region = core->regions; region && freed < bytes && core->graphs == 0;
         region = region->next)
        if (region->kind == MZ_KIND_SCRATCH && !region->keep_all)
            freed += scratch_region(region, bytes - freed);
    return freed;
}
