/* What the two engines of a transfer share. Private to src/os. */
#ifndef MZ_OS_TRANSFER_ENGINE_H
#define MZ_OS_TRANSFER_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "os/file_io.h"
#include "os/transfer.h"

struct mz_ring;

enum mz_slot_state {
    MZ_SLOT_FREE,
    MZ_SLOT_QUEUED,   /* to be run by plain calls, in wait */
    MZ_SLOT_FLYING,   /* the kernel has it */
    MZ_SLOT_COMPLETE, /* `took` is final, not yet fetched */
};

/* A request between submit and wait. Belongs to the transfer's thread; while FLYING the kernel reads or writes
 * io.memory. */
struct mz_slot {
    struct mz_request *request;
    struct mz_io io;
    struct mz_io_call call; /* the call in flight */
    enum mz_slot_state state;
    int took;               /* as mz_io_took() returned it */
    uint64_t number;        /* order of submission */
};

struct mz_transfer {
    uint32_t depth, pending;
    uint64_t submitted;       /* requests so far */
    struct mz_ring *ring;     /* NULL: plain calls only */
    struct mz_slot slots[64]; /* the first `depth` are used */
};

/* Plain calls: runs the request to its end, on this thread. */
void mz_plain_run(struct mz_slot *slot);

/* io_uring. mz_ring_open: negative errno. mz_ring_start: the slot is FLYING, COMPLETE or, when the ring cannot take
 * it, QUEUED. mz_ring_reap: moves slots that the kernel is done with to COMPLETE (or on to their next call); with
 * `block` waits for at least one completion: only while a slot is FLYING. */
int mz_ring_open(uint32_t depth, struct mz_ring **ret);
void mz_ring_close(struct mz_ring *ring);
void mz_ring_start(struct mz_ring *ring, struct mz_slot *slot);
void mz_ring_reap(struct mz_ring *ring, bool block);

#endif
