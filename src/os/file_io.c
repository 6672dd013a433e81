/* Transfers call by call. All state is in the caller's struct mz_io; no lock. */
#include "os/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/mem.h"
#include "os/os.h"

/* Below the kernel's own bound of 2 GiB less a page, and still a multiple of any alignment. */
#define CALL_BYTES_MAX (UINT64_C(1) << 30)

/* A kernel does not interrupt one call so often; a planned, sticky EINTR does. */
#define RETRIES_MAX 1000

void mz_io_init(struct mz_io *io, const struct mz_file *file, void *memory, uint64_t bytes, uint64_t offset,
                bool write)
{
    *io = (struct mz_io){.file = file, .memory = memory, .bytes = bytes, .offset = offset, .write = write};
    if (!write && mz_fault_read_ms())
        io->begun_ns = mz_os_now_ns();
}

/* As much as direct I/O can take from here: all but a tail shorter than the alignment; 0: none. */
static uint64_t direct_bytes(const struct mz_io *io, const struct mz_io_call *call, uint64_t bytes)
{
    const struct mz_file *file = io->file;
    if (file->direct_fd < 0 || io->no_direct || (uintptr_t)call->memory % file->mem_align ||
        call->offset % file->file_align)
        return 0;
    return bytes - bytes % file->file_align;
}

int mz_io_next(struct mz_io *io, struct mz_io_call *ret)
{
    struct mz_io_call call = {.memory = io->memory + io->done, .offset = io->offset + io->done};
    uint64_t bytes = io->bytes - io->done;
    if (bytes > CALL_BYTES_MAX)
        bytes = CALL_BYTES_MAX;
    int r = mz_fault_hit(io->write ? MZ_FAULT_WRITE : MZ_FAULT_READ);
    if (r == -MZ_FAULT_SHORT) {
        r = 0;
        bytes = (bytes + 1) / 2;
    }
    uint64_t direct = direct_bytes(io, &call, bytes);
    call.direct = direct > 0;
    call.bytes = (size_t)(direct ? direct : bytes);
    call.fd = direct ? io->file->direct_fd : io->file->fd;
    *ret = call;
    return r;
}

int mz_io_took(struct mz_io *io, const struct mz_io_call *call, int64_t result)
{
    if ((result == -EINTR || result == -EAGAIN) && ++io->retries < RETRIES_MAX)
        return 0;
    if (result == -EINVAL && call->direct) { /* stricter than it told: buffered, then */
        io->no_direct = true;
        return 0;
    }
    if (result < 0)
        return (int)result;
    if (result == 0)
        return io->write ? -EIO : -ENODATA;
    if (!call->direct)
        io->cached = true;
    io->done += (uint64_t)result;
    return io->done == io->bytes;
}

/* A failure to write surfaces here at the latest (ENOSPC of a thin or compressed volume comes late). */
static int sync_written(const struct mz_io *io)
{
    int r = mz_fault_hit(MZ_FAULT_WRITE);
    if (r == -MZ_FAULT_SHORT)
        r = 0;
    if (!r &&
        sync_file_range(io->file->fd, (off_t)io->offset, (off_t)io->done,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER))
        r = -errno;
    return r == -ENOSYS || r == -ESPIPE || r == -EINVAL ? 0 : r;
}

/* Whole pages, the ones at the ends too: POSIX_FADV_DONTNEED leaves pages that the range covers in part. */
static void drop_behind(const struct mz_io *io)
{
    uint64_t mask = mz_os_page_bytes() - 1;
    uint64_t start = io->offset & ~mask, end = (io->offset + io->done + mask) & ~mask;
    (void)posix_fadvise(io->file->fd, (off_t)start, (off_t)(end - start), POSIX_FADV_DONTNEED);
}

static void be_slow(const struct mz_io *io)
{
    uint64_t until = io->begun_ns + (uint64_t)mz_fault_read_ms() * UINT64_C(1000000);
    struct timespec deadline = {.tv_sec = (time_t)(until / UINT64_C(1000000000)),
                                .tv_nsec = (long)(until % UINT64_C(1000000000))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR)
        ;
}

int mz_io_finish(struct mz_io *io, int took)
{
    int result = took > 0 ? 0 : took;
    if (io->cached && io->write && !result)
        result = sync_written(io);
    if (io->cached)
        drop_behind(io);
    if (io->begun_ns)
        be_slow(io);
    return result;
}

int mz_io_run(struct mz_io *io)
{
    int took = io->bytes == 0;
    while (took == 0) {
        struct mz_io_call call;
        int64_t result = mz_io_next(io, &call);
        if (!result) {
            result = io->write ? pwrite(call.fd, call.memory, call.bytes, (off_t)call.offset)
                               : pread(call.fd, call.memory, call.bytes, (off_t)call.offset);
            if (result < 0)
                result = -errno;
        }
        took = mz_io_took(io, &call, result);
    }
    return mz_io_finish(io, took);
}
