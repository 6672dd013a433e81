/* Clean-ahead: in idle time, units that lack a copy are written to the store while they stay in memory, so that an
 * eviction under pressure is a release and not a write.
 *
 * A unit that is being written is marked cleaning: it is not evicted, and a slice that wants to write it waits for the one
 * write to end, so what is written was checksummed of the same bytes. Computing and evictions end the round. */
#include <errno.h>
#include <string.h>

#include "core/state.h"
#include "os/os.h"

/* The next unit worth a copy: written, at rest, last in the order first (it leaves first). Lock held. */
static struct mz_unit *next_dirty(struct mz_core *core, uint64_t bytes)
{
    mz_order_refresh(core);
    for (uint32_t i = core->n_units; i-- > 0;) {
        struct mz_unit *unit = core->sequence[i];
        if (unit->state == MZ_RESIDENT && !mz_unit_is_clean(unit) && unit->pins == 0 && !unit->cleaning &&
            !unit->tensor->fixed && mz_unit_stored_bytes(unit) <= bytes)
            return unit;
    }
    return NULL;
}

/* Adds what was written. Lock held, dropped meanwhile. */
static int clean_one(struct mz_core *core, struct mz_unit *unit, uint64_t *written)
{
    unit->cleaning = true;
    core->n_moving++;
    pthread_mutex_unlock(&core->lock);
    int err = mz_unit_write_store(unit);
    pthread_mutex_lock(&core->lock);
    unit->cleaning = false;
    core->n_moving--;
    if (!err) {
        mz_unit_note_written(unit);
        *written += mz_unit_stored_bytes(unit);
    }
    pthread_cond_broadcast(&core->changed);
    return err && mz_packed_give_up(unit, err) ? 0 : err;
}

int mz_core_clean(struct mz_core *core, uint64_t bytes, uint64_t *ret_written)
{
    uint64_t written = 0, start = mz_os_now_ns();
    int err = 0;

    pthread_mutex_lock(&core->lock);
    while (core->options.clean && !err && core->graphs == 0 && core->evict_waiting == 0) {
        struct mz_unit *unit = next_dirty(core, bytes - written);
        if (!unit) {
            mz_store_punch(core->store); /* nothing else to do: blocks that are free go back to the disk */
            break;
        }
        err = clean_one(core, unit, &written);
    }
    if (written)
        mz_event_add(core, "clean", "idle", written, (double)(mz_os_now_ns() - start) / 1e6);
    pthread_mutex_unlock(&core->lock);
    if (ret_written)
        *ret_written = written;
    return err;
}
