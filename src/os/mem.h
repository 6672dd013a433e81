/* Address ranges: reserved once, their memory comes and goes.
 *
 * All addresses and sizes are multiples of mz_os_page_bytes() unless said otherwise. Every call is safe from
 * any thread as long as two threads do not work on the same range. None blocks longer than the kernel takes to
 * map or unmap pages. Errors are negative errno as the kernel gave them. */
#ifndef MZ_OS_MEM_H
#define MZ_OS_MEM_H

#include <stdbool.h>
#include <stdint.h>

#define MZ_OS_HUGE_BYTES (UINT64_C(2) << 20)

/* Size of a page in bytes, a power of two. */
uint64_t mz_os_page_bytes(void);

/* Whether the system gives huge pages to those who ask (transparent_hugepage/enabled is always or madvise). */
bool mz_os_huge_pages(void);

/* Reserves `bytes` of private zero-filled memory at a multiple of 2 MiB, without backing it: nothing counts as
 * resident. The range is left out of core files and of forked children (MADV_DONTDUMP, MADV_DONTFORK).
 * -ENOMEM: address space, RLIMIT_AS or strict overcommit. */
int mz_os_reserve(uint64_t bytes, void **ret);

/* Gives the range back, memory and addresses. NULL is allowed. */
void mz_os_unreserve(void *base, uint64_t bytes);

/* Asks for huge pages, or for none, in the range. Advice only: -EINVAL where the kernel has none. */
int mz_os_advise_huge(void *base, uint64_t bytes, bool huge);

/* Backs the whole range with memory now (MADV_POPULATE_WRITE, or a touch of every page where the kernel is older
 * than 5.14). Bytes that are there stay as they are. -ENOMEM, -EFAULT, -EHWPOISON; may be killed by the OOM
 * killer when a cgroup is full, so check the headroom first. */
int mz_os_populate(void *base, uint64_t bytes);

/* Takes the memory from the range; it reads as zeros afterwards. -EINVAL: locked memory (mlockall). */
int mz_os_release(void *base, uint64_t bytes);

/* Splits the huge pages at the two ends of the range of which only a part will be released, so that the part is really
 * freed (MADV_DONTNEED alone only unmaps it, and it stays charged). Call it right before the release. Best effort, and
 * about 0.2 ms a huge page; nothing happens before Linux 5.4. Of a page that is split, the kernel may free what holds
 * nothing but zeros (since 6.12). */
void mz_os_split_huge(void *base, uint64_t bytes);

/* Debug aid: makes touching the range a fault, or allows it again. */
int mz_os_protect(void *base, uint64_t bytes, bool none);

/* Bytes of the range that lie in memory and in the system's swap, counted in whole pages. A page that was read
 * but never written counts as neither. `ret_swapped` may be NULL. Base and size need no alignment: every page
 * touched by the range counts whole. A gigabyte takes 0.1 ms in huge pages and 2 ms in small ones; before Linux 6.7
 * 15 ms, and a page that was only read counts there too, for its frame cannot be told. -EIO, -ENOENT where /proc is
 * missing. */
int mz_os_resident(const void *base, uint64_t bytes, uint64_t *ret_resident, uint64_t *ret_swapped);

/* Drops the clean file pages that lie wholly in the range of a read-only shared mapping of fd, from the mapping
 * and from the page cache. The bytes can still be read: they come from the file again. Any alignment. */
void mz_os_forget_file_pages(const void *base, uint64_t bytes, int fd, uint64_t offset);

#endif
