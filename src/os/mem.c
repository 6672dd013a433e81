/* Address ranges and the memory behind them. No state of ours: the kernel's mapping is the only truth. */
#include "os/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/text.h"

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define FOLIO_BYTES (UINT64_C(4) << 20) /* at least the largest folio of a page cache with pages of 4 KiB */

uint64_t mz_os_page_bytes(void)
{
    static _Atomic uint64_t bytes; /* the same whoever writes it */
    uint64_t known = atomic_load_explicit(&bytes, memory_order_relaxed);
    if (!known) {
        known = (uint64_t)sysconf(_SC_PAGESIZE);
        atomic_store_explicit(&bytes, known, memory_order_relaxed);
    }
    return known;
}

bool mz_os_huge_pages(void)
{
    char text[128];
    return mz_os_read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) > 0 &&
           (strstr(text, "[always]") || strstr(text, "[madvise]"));
}

static int map(uint64_t bytes, uintptr_t at, int more_flags, uintptr_t *ret)
{
    int r = mz_fault_hit(MZ_FAULT_MMAP);
    if (r)
        return r;
    void *p =
        mmap((void *)at, (size_t)bytes, PROT_READ | PROT_WRITE, /* NOLINT: an address is what we ask for */
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | more_flags, -1, 0);
    if (p == MAP_FAILED)
        return -errno;
    *ret = (uintptr_t)p;
    return 0;
}

/* With room for the alignment, the ends cut off again. */
static int map_and_trim(uint64_t bytes, uintptr_t *ret)
{
    uint64_t more = MZ_OS_HUGE_BYTES - mz_os_page_bytes();
    uintptr_t p = 0;
    int r = map(bytes + more, 0, 0, &p);
    if (r)
        return r;
    uintptr_t base = (p + MZ_OS_HUGE_BYTES - 1) & ~(uintptr_t)(MZ_OS_HUGE_BYTES - 1);
    uint64_t head = base - p, tail = more - head;
    if (head)
        munmap((void *)p, (size_t)head);
    if (tail)
        munmap((void *)(base + bytes), (size_t)tail);
    *ret = base;
    return 0;
}

/* Without room for it, where limits count address space: the kernel may align by itself, and just below the
 * place it chose there usually is an aligned one. */
static int map_exactly(uint64_t bytes, uintptr_t *ret)
{
    uintptr_t p = 0;
    int r = map(bytes, 0, 0, &p);
    if (r || p % MZ_OS_HUGE_BYTES == 0) {
        if (!r)
            *ret = p;
        return r;
    }
    munmap((void *)p, (size_t)bytes);
    uintptr_t wanted = p & ~(uintptr_t)(MZ_OS_HUGE_BYTES - 1);
    r = map(bytes, wanted, MAP_FIXED_NOREPLACE, &p);
    if (r)
        return -ENOMEM;
    if (p != wanted) { /* before Linux 4.17 the flag is only a hint */
        munmap((void *)p, (size_t)bytes);
        return -ENOMEM;
    }
    *ret = p;
    return 0;
}

static int advise(void *base, uint64_t bytes, int advice)
{
    int r = mz_fault_hit(MZ_FAULT_MADVISE);
    if (!r && madvise(base, (size_t)bytes, advice))
        r = -errno;
    return r;
}

int mz_os_reserve(uint64_t bytes, void **ret)
{
    if (bytes == 0 || bytes % mz_os_page_bytes())
        return -EINVAL;
    if (bytes > SIZE_MAX / 2)
        return -ENOMEM;
    uintptr_t base = 0;
    int r = map_and_trim(bytes, &base);
    if (r == -ENOMEM)
        r = map_exactly(bytes, &base);
    if (r)
        return r;
    r = advise((void *)base, bytes, MADV_DONTDUMP);
    if (!r)
        r = advise((void *)base, bytes, MADV_DONTFORK);
    if (r)
        munmap((void *)base, (size_t)bytes);
    else
        *ret = (void *)base;
    return r;
}

void mz_os_unreserve(void *base, uint64_t bytes)
{
    if (base)
        munmap(base, (size_t)bytes);
}

int mz_os_advise_huge(void *base, uint64_t bytes, bool huge)
{
    return advise(base, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

/* A write of what is there to each page. The zero is volatile because compilers turn "or 0" into a mere load.
 */
static void touch(unsigned char *base, uint64_t bytes)
{
    static const volatile unsigned char zero = 0;
    for (uint64_t at = 0; at < bytes; at += mz_os_page_bytes())
        __atomic_fetch_or(base + at, zero, __ATOMIC_RELAXED);
}

int mz_os_populate(void *base, uint64_t bytes)
{
    int r = mz_fault_hit(MZ_FAULT_POPULATE);
    if (r && r != -EINVAL)
        return r;
    while (!r && madvise(base, (size_t)bytes, MADV_POPULATE_WRITE)) {
        if (errno != EINTR)
            r = -errno;
    }
    if (r == -EINVAL) {
        touch(base, bytes);
        r = 0;
    }
    return r;
}

int mz_os_release(void *base, uint64_t bytes)
{
    return advise(base, bytes, MADV_DONTNEED);
}

/* madvise_cold_or_pageout_pte_range() (mm/madvise.c, since Linux 5.4) splits a huge page that its range
 * covers in part. MADV_DONTNEED does not: it only unmaps, and the whole huge page stays charged until the
 * deferred-split shrinker runs. Only the ragged edges of the range are touched; what is not backed by a huge
 * page is merely aged, right before it is released. */
void mz_os_split_huge(void *base, uint64_t bytes)
{
    uintptr_t start = (uintptr_t)base, end = start + bytes, mask = MZ_OS_HUGE_BYTES - 1;
    uintptr_t head_end = (start + mask) & ~mask, tail_start = end & ~mask;
    if (head_end > end)
        head_end = end;
    if (start & mask)
        (void)advise(base, head_end - start, MADV_COLD);
    if ((end & mask) && tail_start >= start)
        (void)advise((void *)tail_start, end - tail_start, MADV_COLD);
}

int mz_os_protect(void *base, uint64_t bytes, bool none)
{
    int r = mz_fault_hit(MZ_FAULT_MADVISE);
    if (!r && mprotect(base, (size_t)bytes, none ? PROT_NONE : PROT_READ | PROT_WRITE))
        r = -errno;
    return r;
}

void mz_os_forget_file_pages(const void *base, uint64_t bytes, int fd, uint64_t offset)
{
    uint64_t mask = mz_os_page_bytes() - 1;
    uintptr_t start = ((uintptr_t)base + mask) & ~mask, end = ((uintptr_t)base + bytes) & ~mask;
    if (start >= end)
        return;
    (void)advise((void *)start, end - start, MADV_DONTNEED);
    if (fd < 0)
        return;
    /* A folio of the page cache that lies in two ranges goes with the second one only, so look back as far as folios are large. */
    uint64_t from = offset + (start - (uintptr_t)base), to = from + (end - start);
    from = from > FOLIO_BYTES ? from - FOLIO_BYTES : 0;
    (void)posix_fadvise(fd, (off_t)from, (off_t)(to - from), POSIX_FADV_DONTNEED);
}
