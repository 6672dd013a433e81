/* The io_uring engine: one plain ring per transfer, one submission per call. A struct mz_ring belongs to the
 * thread of its transfer; what the kernel shares with us lies behind liburing, with its barriers.
 *
 * Buffers are not registered: a registered page stays pinned when its range is dropped, and a read would then
 * fill memory that nobody sees any more. */
#include "os/transfer_engine.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/log.h"

struct mz_ring {
    struct io_uring ring;
    bool broken; /* a submission failed for good: what comes later runs by plain calls */
};

static int open_ring(uint32_t depth, struct io_uring *ring)
{
    int r = mz_fault_hit(MZ_FAULT_URING);
    return r ? r : io_uring_queue_init(depth, ring, 0);
}

int mz_ring_open(uint32_t depth, struct mz_ring **ret)
{
    struct mz_ring *ring = mz_calloc(1, sizeof *ring);
    if (!ring)
        return -ENOMEM;
    int r = open_ring(depth, &ring->ring);
    if (r) {
        free(ring);
        return r;
    }
    *ret = ring;
    return 0;
}

void mz_ring_close(struct mz_ring *ring)
{
    if (!ring)
        return;
    io_uring_queue_exit(&ring->ring);
    free(ring);
}

static void pause_ms(void)
{
    struct timespec ms = {.tv_nsec = 1000000};
    nanosleep(&ms, NULL);
}

/* 0 once the kernel has taken all entries. EAGAIN and EBUSY pass soon: it is short of memory for a moment. */
static int push(struct mz_ring *ring)
{
    for (int tries = 0;; tries++) {
        int r = mz_fault_hit(MZ_FAULT_URING);
        if (!r)
            r = io_uring_submit(&ring->ring);
        if (io_uring_sq_ready(&ring->ring) == 0)
            return 0;
        bool passes = r >= 0 || r == -EINTR || r == -EAGAIN || r == -EBUSY;
        if (!passes || tries == 100)
            return r < 0 ? r : -EAGAIN;
        if (r != -EINTR)
            pause_ms();
    }
}

static void complete(struct mz_slot *slot, int took)
{
    int result = mz_io_finish(&slot->io, took);
    slot->took = result ? result : 1;
    slot->state = MZ_SLOT_COMPLETE;
}

static void prepare(struct io_uring_sqe *sqe, struct mz_slot *slot)
{
    const struct mz_io_call *call = &slot->call;
    if (slot->io.write)
        io_uring_prep_write(sqe, call->fd, call->memory, (unsigned)call->bytes, call->offset);
    else
        io_uring_prep_read(sqe, call->fd, call->memory, (unsigned)call->bytes, call->offset);
    io_uring_sqe_set_data(sqe, slot);
}

/* Hands the slot's next call to the kernel. */
void mz_ring_start(struct mz_ring *ring, struct mz_slot *slot)
{
    for (int failed; (failed = mz_io_next(&slot->io, &slot->call));) {
        int took = mz_io_took(&slot->io, &slot->call, failed);
        if (took) {
            complete(slot, took);
            return;
        }
    }
    slot->state = MZ_SLOT_QUEUED;
    struct io_uring_sqe *sqe = ring->broken ? NULL : io_uring_get_sqe(&ring->ring);
    if (!sqe)
        return;
    prepare(sqe, slot);
    int r = push(ring);
    if (!r) {
        slot->state = MZ_SLOT_FLYING;
        return;
    }
    /* The entry stays in the queue, and a later submission takes it up: it must do nothing by then. */
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, NULL);
    ring->broken = r != -EINTR && r != -EAGAIN && r != -EBUSY;
    mz_log_once(MZ_LOG_WARN, "io_uring refuses a request (%s), ignoring: plain calls", mz_log_errno(r));
}

/* The next completion, out of the queue. False when there is none. */
static bool fetch(struct mz_ring *ring, struct mz_slot **ret_slot, int *ret_result)
{
    struct io_uring_cqe *cqe;
    if (io_uring_peek_cqe(&ring->ring, &cqe))
        return false;
    *ret_slot = io_uring_cqe_get_data(cqe);
    *ret_result = cqe->res;
    io_uring_cqe_seen(&ring->ring, cqe);
    return true;
}

static bool reap_there(struct mz_ring *ring)
{
    struct mz_slot *slot;
    int result;
    bool any = false;
    for (; fetch(ring, &slot, &result); any = true) {
        if (!slot)
            continue;
        int took = mz_io_took(&slot->io, &slot->call, result);
        if (took)
            complete(slot, took);
        else
            mz_ring_start(ring, slot);
    }
    return any;
}

/* A ring that cannot be waited on still completes: what is in flight is polled for, never given up. */
void mz_ring_reap(struct mz_ring *ring, bool block)
{
    while (!reap_there(ring) && block) {
        struct io_uring_cqe *cqe;
        int r = mz_fault_hit(MZ_FAULT_URING);
        if (!r)
            r = io_uring_wait_cqe(&ring->ring, &cqe);
        if (r && r != -EINTR)
            pause_ms();
    }
}

static const char probe_text[] = "io_uring";

/* One read through a ring, into memory that lives longer than the ring. 0 or negative errno. */
static int probe_read(struct io_uring *ring, int fd, char got[sizeof probe_text])
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    struct io_uring_cqe *cqe = NULL;
    if (!sqe)
        return -EAGAIN;
    io_uring_prep_read(sqe, fd, got, sizeof probe_text, 0);
    int r = io_uring_submit(ring);
    if (r < 1)
        return r < 0 ? r : -EAGAIN;
    while ((r = io_uring_wait_cqe(ring, &cqe)) == -EINTR)
        ;
    if (r)
        return r;
    r = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    if (r < 0)
        return r;
    return r == sizeof probe_text && !memcmp(got, probe_text, sizeof probe_text) ? 0 : -EBADMSG;
}

static int probe(void)
{
    struct io_uring ring;
    char got[sizeof probe_text];
    int r = open_ring(2, &ring);
    if (r)
        return r;
    int fd = memfd_create("mzcache-probe", MFD_CLOEXEC);
    r = fd < 0 ? -errno : 0;
    if (!r && pwrite(fd, probe_text, sizeof probe_text, 0) != (ssize_t)sizeof probe_text)
        r = -EIO;
    if (!r)
        r = probe_read(&ring, fd, got);
    io_uring_queue_exit(&ring); /* waits for what is in flight */
    if (fd >= 0)
        close(fd);
    return r;
}

static pthread_once_t probe_once = PTHREAD_ONCE_INIT;
static bool probe_works;    /* written in probe_once only */
static char probe_why[160]; /* the same */

static void probe_and_remember(void)
{
    int r = probe();
    probe_works = r == 0;
    if (r == -EPERM || r == -EACCES)
        snprintf(probe_why, sizeof probe_why,
                 "forbidden, by the sysctl kernel.io_uring_disabled or by a seccomp filter");
    else if (r == -ENOSYS)
        snprintf(probe_why, sizeof probe_why, "the kernel or a seccomp filter does not know it");
    else if (r == -EINVAL)
        snprintf(probe_why, sizeof probe_why, "the kernel is older than 5.6");
    else if (r)
        snprintf(probe_why, sizeof probe_why, "%s", mz_log_errno(r));
}

bool mz_transfer_uring(const char **ret_why)
{
    pthread_once(&probe_once, probe_and_remember);
    if (ret_why)
        *ret_why = probe_why;
    return probe_works;
}
