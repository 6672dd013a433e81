/* /proc/self/maps: which file stands behind an address.
 *
 * Always the real file: MZ_SYSROOT does not apply, since the addresses are real. */
#ifndef MZ_OS_MAPS_H
#define MZ_OS_MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct mz_mapping {
    uint64_t start, end;     /* addresses */
    uint64_t offset;         /* in the file, of `start` */
    uint64_t dev, inode;     /* as the kernel's maps name them: btrfs and overlay mounts differ from stat() here */
    bool readable, writable, shared;
    char path[4096];         /* unescaped; "" for anonymous memory, "[heap]" and the like for special memory */
    bool deleted;            /* the kernel appended " (deleted)"; `path` is without it */
};

/* The mapping that holds the address. Reads the file once, blocks for the mmap lock. -ENOENT when none does, -EIO.
 * 4 KiB in the caller's struct and 24 KiB of stack. Safe from any thread. */
int mz_maps_find(const void *address, struct mz_mapping *ret);

#endif
