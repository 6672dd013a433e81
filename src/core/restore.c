/* Restoring on demand: asks the workers for everything, and waits until no more can come. */
#include <errno.h>

#include "core/restore.h"
#include "os/os.h"
#include "os/thread.h"

static bool settled(const struct mz_core *core)
{
    return !core->ahead || (core->n_moving == 0 && (core->n_evicted == 0 || core->ahead_blocked));
}

/* How many units are lost. With `again`, those that have a copy become evicted first: perhaps it can be read
 * now. Lock held. */
static uint32_t lost_units(struct mz_core *core, bool again)
{
    uint32_t n = 0;

    mz_order_refresh(core);
    for (uint32_t i = 0; i < core->n_units; i++) {
        struct mz_unit *unit = core->sequence[i];
        if (again && unit->state == MZ_LOST && unit->copies)
            mz_unit_move(unit, MZ_EVICTED);
        n += unit->state == MZ_LOST;
    }
    return n;
}

int mz_core_restore(struct mz_core *core, bool wait)
{
    uint64_t start = mz_os_now_ns();

    pthread_mutex_lock(&core->lock);
    core->last_use_ns = start; /* who asks will use it: idle steps and holds count from here */
    uint64_t read = core->read_bytes, decoded = core->decoded_bytes;
    bool alone = core->graphs == 0;
    (void)lost_units(core, true);
    core->lost_said = 0;
    bool any = core->n_evicted > 0;
    if (any) {
        core->ahead = true;
        core->restores++;
        mz_restore_kick(core);
    }
    while (wait && any && !settled(core))
        (void)mz_cond_wait_ms(&core->changed, &core->lock, 100);
    bool lost = wait && any && lost_units(core, false) > 0;
    read = core->read_bytes - read;
    decoded = core->decoded_bytes - decoded;
    uint64_t ns = mz_os_now_ns() - start;
    if (wait && alone && core->graphs == 0 && !lost)
        mz_profile_heard(core, read, core->read_last_ns - start, decoded, core->decoded_last_ns - start);
    if (wait)
        core->last_use_ns = start + ns;
    if (wait && any)
        mz_event_add(core, "restore", "asked", read + decoded, (double)ns / 1e6);
    pthread_mutex_unlock(&core->lock);
    return lost ? -EIO : 0;
}

void mz_core_restore_stop(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    core->ahead = false;
    pthread_cond_broadcast(&core->changed);
    pthread_mutex_unlock(&core->lock);
}

/* Memory for everything that is evicted, at once, before any byte is read: what a system without overlap of
 * allocation and reload does. */
void mz_restore_commit_all(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    mz_order_refresh(core);
    for (uint32_t i = 0; i < core->n_units; i++) {
        struct mz_unit *unit = core->sequence[i];
        uint64_t lo, hi;
        if (unit->state != MZ_EVICTED || !mz_room_for(core, mz_unit_span_bytes(unit)))
            continue;
        mz_unit_span(unit, &lo, &hi);
        (void)mz_restore_commit(unit->tensor->region, lo, hi);
    }
    pthread_mutex_unlock(&core->lock);
}
