/* What the machine and our cgroup can still give: the figures behind limits and headroom.
 * Read from /proc and /sys through os/text.h, so tests replace the files by a folder (MZ_SYSROOT). No locks; every call
 * is safe from any thread and blocks only as long as the kernel takes to print the files. */
#ifndef MZ_OS_MACHINE_H
#define MZ_OS_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mz_machine_memory {
    uint64_t total_bytes;          /* MemTotal */
    uint64_t available_bytes;      /* MemAvailable */
    uint64_t free_bytes;           /* MemFree */
    uint64_t swap_total_bytes, swap_free_bytes;
};

/* /proc/meminfo. -EIO when it cannot be read, -EBADMSG when malformed (a figure missing or no number, or free and
 * available larger than all). Swap figures may be missing: 0. */
int mz_machine_memory(struct mz_machine_memory *ret);

/* Bytes that may still be charged to our cgroup and all its ancestors, v1 and v2: the least of limit - current
 * (memory.max and memory.high both count; the page cache of the group counts as available). UINT64_MAX when nothing
 * limits us. -EIO when the cgroup files cannot be read, -EBADMSG when malformed. Of a container only the part
 * of the tree that is mounted in it is seen. About 0.15 ms: ask once per batch, not once per page. */
int mz_machine_cgroup_headroom(uint64_t *ret_bytes);

/* The tightest limit itself, what is charged to that group (page cache and all), and the headroom as above, all of one
 * moment; UINT64_MAX, 0, UINT64_MAX without one. Tightest is the smallest limit, not the smallest headroom. Errors as above. */
int mz_machine_cgroup_limit(uint64_t *ret_limit, uint64_t *ret_current, uint64_t *ret_headroom);

/* The folder of our group (absolute, without MZ_SYSROOT), of v2 or of v1's memory controller, as far as it is mounted here.
 * -ENOENT: there is none, or it lies outside of what is mounted; -ENAMETOOLONG, -EIO. What buf holds after an error is void. */
int mz_machine_cgroup_folder(bool unified, char *buf, size_t size);

/* Anonymous resident and swapped bytes of this process, and resident file pages (/proc/self/status; the real one where
 * MZ_SYSROOT has none). -EIO, -EBADMSG. */
struct mz_process_memory {
    uint64_t rss_anon_bytes, rss_file_bytes, swap_bytes;
};
int mz_machine_process(struct mz_process_memory *ret);

#endif
