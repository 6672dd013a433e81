/* How much of a range lies in memory and in swap: PAGEMAP_SCAN (Linux 6.7), else /proc/self/pagemap page by
 * page. Always the real /proc. No state. */
#include "os/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/fault.h"

/* include/uapi/linux/fs.h; declared here because headers before 6.7 lack it. */
struct scan_region {
    uint64_t start, end, categories;
};
struct scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_IOCTL   _IOWR('f', 16, struct scan_arg)
#define SCAN_PRESENT (UINT64_C(1) << 3)
#define SCAN_SWAPPED (UINT64_C(1) << 4)
#define SCAN_PFNZERO (UINT64_C(1) << 5)

/* Documentation/admin-guide/mm/pagemap.rst */
#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)

struct tally {
    uint64_t resident, swapped; /* bytes */
};

/* Neighbouring pages of one kind come back as one region, so a dense gigabyte is one call. */
static int scan(int fd, uint64_t start, uint64_t end, struct tally *tally)
{
    struct scan_region regions[128];
    while (start < end) {
        struct scan_arg arg = {
            .size = sizeof arg,
            .start = start,
            .end = end,
            .vec = (uint64_t)(uintptr_t)regions,
            .vec_len = sizeof regions / sizeof regions[0],
            .category_inverted = SCAN_PFNZERO,
            .category_mask = SCAN_PFNZERO,
            .category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
            .return_mask = SCAN_PRESENT | SCAN_SWAPPED,
        };
        int r = mz_fault_hit(MZ_FAULT_STAT), found = 0;
        if (!r && (found = ioctl(fd, SCAN_IOCTL, &arg)) < 0)
            r = -errno;
        if (r == -EINTR)
            continue;
        if (r)
            return r;
        for (int i = 0; i < found; i++) {
            uint64_t bytes = regions[i].end - regions[i].start;
            *(regions[i].categories & SCAN_PRESENT ? &tally->resident : &tally->swapped) += bytes;
        }
        if (arg.walk_end <= start)
            return -EIO;
        start = arg.walk_end;
    }
    return 0;
}

/* A page that was only read shows here as present like any other: the number of its frame, which would tell
 * the zero page, is shown to CAP_SYS_ADMIN only. So this may count too much, never too little. */
static int read_entries(int fd, uint64_t start, uint64_t end, struct tally *tally)
{
    uint64_t entries[512], page = mz_os_page_bytes();
    while (start < end) {
        uint64_t want = (end - start) / page;
        if (want > sizeof entries / sizeof entries[0])
            want = sizeof entries / sizeof entries[0];
        int r = mz_fault_hit(MZ_FAULT_READ);
        ssize_t n = r ? -1 : pread(fd, entries, (size_t)want * 8, (off_t)(start / page * 8));
        if (n < 0 && !r && errno == EINTR)
            continue;
        if (n < 8)
            return -EIO;
        for (size_t i = 0; i < (size_t)n / 8; i++) {
            if (entries[i] & ENTRY_PRESENT)
                tally->resident += page;
            else if (entries[i] & ENTRY_SWAPPED)
                tally->swapped += page;
        }
        start += (uint64_t)n / 8 * page;
    }
    return 0;
}

int mz_os_resident(const void *base, uint64_t bytes, uint64_t *ret_resident, uint64_t *ret_swapped)
{
    uint64_t mask = mz_os_page_bytes() - 1;
    uint64_t start = (uint64_t)(uintptr_t)base & ~mask,
             end = ((uint64_t)(uintptr_t)base + bytes + mask) & ~mask;
    struct tally tally = {0, 0};
    int fd = -1, r = mz_fault_hit(MZ_FAULT_OPEN);
    if (!r && (fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) < 0)
        r = -errno;
    if (r)
        return r == -ENOENT ? r : -EIO;
    if (bytes) {
        r = scan(fd, start, end, &tally);
        if (r == -ENOTTY || r == -EINVAL || r == -EOPNOTSUPP || r == -ENOSYS) {
            tally = (struct tally){0, 0};
            r = read_entries(fd, start, end, &tally);
        }
    }
    close(fd);
    if (r)
        return -EIO;
    *ret_resident = tally.resident;
    if (ret_swapped)
        *ret_swapped = tally.swapped;
    return 0;
}
