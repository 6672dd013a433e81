/* One transfer between memory and a file, call by call: which descriptor, how much, what comes next. Shared by the
 * blocking calls of file.c and by both engines of transfer.c, so that faults, short transfers and the page cache are
 * handled once. Private to src/os. A struct mz_io belongs to one thread. */
#ifndef MZ_OS_FILE_IO_H
#define MZ_OS_FILE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/file.h"

struct mz_io {
    const struct mz_file *file;
    char *memory;
    uint64_t offset, bytes;
    bool write;
    bool no_direct;      /* direct I/O was refused for this one */
    bool cached;         /* some of it went through the page cache */
    uint32_t retries;    /* EINTR and EAGAIN so far */
    uint64_t done;       /* bytes transferred */
    uint64_t begun_ns;   /* 0 unless reads are slow on purpose */
};

/* The next system call of a transfer. */
struct mz_io_call {
    int fd;
    bool direct;
    char *memory;
    uint64_t offset;
    size_t bytes;
};

void mz_io_init(struct mz_io *io, const struct mz_file *file, void *memory, uint64_t bytes, uint64_t offset,
                bool write);

/* 0 with the call to make, or the negative errno that fault injection gave it: handed to mz_io_took() as if the call
 * had returned it. Only while bytes are left. */
int mz_io_next(struct mz_io *io, struct mz_io_call *ret);

/* Takes in what the call returned (bytes or negative errno). 0: there is a next call; 1: all is done; -ENODATA: the
 * file ended; other negative errno: failed for good. */
int mz_io_took(struct mz_io *io, const struct mz_io_call *call, int64_t result);

/* Ends a transfer with what mz_io_took() said last: makes what was written through the page cache final and drops it
 * there. Returns 0 or the negative errno of the whole. */
int mz_io_finish(struct mz_io *io, int took);

/* The whole transfer by blocking calls. 0 or negative errno. */
int mz_io_run(struct mz_io *io);

#endif
