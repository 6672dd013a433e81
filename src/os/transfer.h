/* Several reads or writes in flight at once: io_uring where the kernel lets us, plain calls otherwise.
 *
 * A transfer belongs to one thread. Requests are owned by the caller and stay untouched until they are returned by
 * mz_transfer_wait(). Nothing is ever cancelled: whoever wants to stop waits for what is in flight, so a range of
 * memory is never released under a running read.
 *
 * Plain calls run one after the other, each inside mz_transfer_wait(): several in flight then take several threads with
 * a transfer each. */
#ifndef MZ_OS_TRANSFER_H
#define MZ_OS_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "os/file.h"

struct mz_transfer;

struct mz_request {
    const struct mz_file *file;
    void *memory;
    uint64_t offset;   /* in the file */
    uint64_t bytes;    /* direct I/O is used when memory, offset and bytes are aligned (see mz_file_read) */
    bool write;
    bool short_ok;     /* the end of the file may come before `bytes` */
    int result;        /* out: 0, or negative errno (short transfers are continued inside; -ENODATA at the end) */
    uint64_t done;     /* out: bytes transferred */
    void *user;
};

/* Whether io_uring works here: a file is really read through it, since sysctl and seccomp may refuse late. The first
 * call probes, later ones remember; with `ret_why` the reason when not ("" when it works), a text that stays. */
bool mz_transfer_uring(const char **ret_why);

/* `depth`: requests in flight, 1..64. `uring` false: plain calls; true: plain calls too where io_uring does not work
 * or has no ring left for us. -ENOMEM, -EINVAL (depth). */
int mz_transfer_open(uint32_t depth, bool uring, struct mz_transfer **ret);

/* Waits for what is in flight, then frees; what was pending has its result, but is not returned. NULL allowed. */
void mz_transfer_close(struct mz_transfer *t);

/* Whether this one goes through io_uring. */
bool mz_transfer_is_uring(const struct mz_transfer *t);

/* Requests in flight or done and not yet fetched. */
uint32_t mz_transfer_pending(const struct mz_transfer *t);

/* Starts a request. The caller keeps pending < depth. Errors of starting are delivered by wait as the result. Does not
 * block on I/O (buffered requests may, inside the kernel). */
void mz_transfer_submit(struct mz_transfer *t, struct mz_request *request);

/* Blocks until one request is complete and returns it, in any order; NULL when none is pending. */
struct mz_request *mz_transfer_wait(struct mz_transfer *t);

#endif
