/* Limits: a bound on the ledger that holds at every moment. Setting one evicts down to it first; room.c keeps it. */
#include <errno.h>

#include "core/state.h"
#include "os/log.h"
#include "os/os.h"

int mz_core_limit(struct mz_core *core, uint64_t bytes, uint64_t *ret_floor)
{
    uint64_t start = mz_os_now_ns();

    pthread_mutex_lock(&core->lock);
    uint64_t floor = mz_room_floor(core);
    if (bytes && bytes < floor) {
        pthread_mutex_unlock(&core->lock);
        if (ret_floor)
            *ret_floor = floor;
        return -ERANGE;
    }
    core->limit_bytes = bytes;
    uint64_t ledger = mz_room_ledger(core), over = bytes && ledger > bytes ? ledger - bytes : 0;
    mz_restore_kick(core);
    pthread_mutex_unlock(&core->lock);
    int err = 0;
    struct mz_evict_report report;
    /* The ledger counts whole spans and scratch, the page tables less: ask until it fits or nothing more goes. */
    for (uint64_t before = UINT64_MAX; over && over < before && !err;) {
        err = mz_core_evict(core, over, "limit", &report);
        before = over;
        pthread_mutex_lock(&core->lock);
        ledger = mz_room_ledger(core);
        over = ledger > bytes ? ledger - bytes : 0;
        pthread_mutex_unlock(&core->lock);
    }
    pthread_mutex_lock(&core->lock);
    mz_event_add(core, "limit", bytes ? "set" : "removed", bytes, (double)(mz_os_now_ns() - start) / 1e6);
    pthread_mutex_unlock(&core->lock);
    if (ret_floor)
        *ret_floor = floor;
    return err;
}
