/* Transfers: slots, and which engine runs them. A struct mz_transfer belongs to one thread; no lock. The
 * memory of a request belongs to the kernel while its slot is FLYING. */
#include "os/transfer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "os/fault.h"
#include "os/log.h"
#include "os/transfer_engine.h"

int mz_transfer_open(uint32_t depth, bool uring, struct mz_transfer **ret)
{
    const char *why;
    struct mz_transfer *t;
    if (depth < 1 || depth > sizeof t->slots / sizeof t->slots[0])
        return -EINVAL;
    t = mz_calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->depth = depth;
    if (uring && !mz_transfer_uring(&why)) {
        mz_log_once(MZ_LOG_INFO, "io_uring is not available (%s): files are read by plain calls", why);
    } else if (uring) {
        int r = mz_ring_open(depth, &t->ring);
        if (r)
            mz_log_once(MZ_LOG_WARN, "no more io_uring rings (%s), ignoring: plain calls", mz_log_errno(r));
    }
    *ret = t;
    return 0;
}

void mz_transfer_close(struct mz_transfer *t)
{
    if (!t)
        return;
    while (mz_transfer_wait(t))
        ;
    mz_ring_close(t->ring);
    free(t);
}

bool mz_transfer_is_uring(const struct mz_transfer *t)
{
    return t->ring != NULL;
}

uint32_t mz_transfer_pending(const struct mz_transfer *t)
{
    return t->pending;
}

static struct mz_slot *find_slot(struct mz_transfer *t, enum mz_slot_state state)
{
    struct mz_slot *oldest = NULL;
    for (uint32_t i = 0; i < t->depth; i++) {
        struct mz_slot *slot = &t->slots[i];
        if (slot->state == state && (!oldest || slot->number < oldest->number))
            oldest = slot;
    }
    return oldest;
}

void mz_transfer_submit(struct mz_transfer *t, struct mz_request *request)
{
    struct mz_slot *slot = find_slot(t, MZ_SLOT_FREE);
    assert(slot && "more requests than the depth");
    slot->request = request;
    slot->number = ++t->submitted;
    mz_io_init(&slot->io, request->file, request->memory, request->bytes, request->offset, request->write);
    t->pending++;
    if (t->ring && request->bytes)
        mz_ring_start(t->ring, slot);
    else
        slot->state = MZ_SLOT_QUEUED;
}

static struct mz_request *deliver(struct mz_transfer *t, struct mz_slot *slot)
{
    struct mz_request *request = slot->request;
    request->result = slot->took > 0 ? 0 : slot->took;
    request->done = slot->io.done;
    if (request->result == -ENODATA && request->short_ok)
        request->result = 0;
    slot->state = MZ_SLOT_FREE;
    t->pending--;
    return request;
}

/* What the kernel is done with comes first, then what is to be run here, so that the device is never idle. */
struct mz_request *mz_transfer_wait(struct mz_transfer *t)
{
    while (t->pending) {
        if (find_slot(t, MZ_SLOT_FLYING))
            mz_ring_reap(t->ring, false);
        struct mz_slot *slot = find_slot(t, MZ_SLOT_COMPLETE);
        if (!slot && (slot = find_slot(t, MZ_SLOT_QUEUED)))
            mz_plain_run(slot);
        if (slot)
            return deliver(t, slot);
        mz_ring_reap(t->ring, true);
    }
    return NULL;
}
