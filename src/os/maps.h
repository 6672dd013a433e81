/* /proc/self/maps: which file stands behind an address. */
#ifndef MZ_OS_MAPS_H
#define MZ_OS_MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct mz_mapping {
    uint64_t start, end;     /* addresses */
    uint64_t offset;         /* in the file, of `start` */
    uint64_t dev, inode;
    bool readable, writable, shared;
    char path[4096];         /* unescaped; "" for anonymous memory */
    bool deleted;            /* the kernel appended " (deleted)" */
};

/* The mapping that holds the address. -ENOENT when none does, -EIO. */
int mz_maps_find(const void *address, struct mz_mapping *ret);

#endif
