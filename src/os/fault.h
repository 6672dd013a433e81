/* Failing system calls on purpose: every call of this room asks here first.
 *
 * Off unless a plan is set; then one relaxed load per call. MZ_FAULT="call:n[:errno[:sticky]]" in the environment or
 * mz_fault_plan() in tests: the n-th call (from 1) of that kind fails with the errno (a name such as ENOSPC, or a
 * number; without one: ENOMEM for memory, EAGAIN for threads, ENOSYS for uring, EIO for the rest); sticky: and all
 * after it. "short" in place of an errno makes a read or write transfer half. Kind "any" counts all kinds.
 * The environment is read once, at the first call. All functions are safe from any thread; a plan set while other
 * threads work takes effect somewhere in their next calls. */
#ifndef MZ_OS_FAULT_H
#define MZ_OS_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* In the environment: any, mmap, madvise, populate, read, write, open, stat, uring, alloc, thread. A "write" is also
 * what makes written bytes final (sync_file_range) or gives blocks back (fallocate); a "stat" every other question. */
enum mz_fault_kind {
    MZ_FAULT_ANY, MZ_FAULT_MMAP, MZ_FAULT_MADVISE, MZ_FAULT_POPULATE, MZ_FAULT_READ, MZ_FAULT_WRITE,
    MZ_FAULT_OPEN, MZ_FAULT_STAT, MZ_FAULT_URING, MZ_FAULT_ALLOC, MZ_FAULT_THREAD, MZ_FAULT_KINDS
};

#define MZ_FAULT_SHORT 100000

/* Plans a failure, and forgets the counts; kind MZ_FAULT_ANY with nth 0: no more failures, nothing is counted.
 * An nth that is never reached only counts. `err` is a positive errno or MZ_FAULT_SHORT. */
void mz_fault_plan(enum mz_fault_kind kind, uint64_t nth, int err, bool sticky);

/* Calls of the planned kind counted since the plan was set, and how many of them failed. */
uint64_t mz_fault_count(void);
uint64_t mz_fault_hits(void);

/* 0, or the negative errno (or, for reads and writes only, -MZ_FAULT_SHORT) that this call must fail with.
 * Used inside src/os. */
int mz_fault_hit(enum mz_fault_kind kind);

/* Milliseconds that each read takes at least (slow storage in tests); MZ_FAULT_READ_MS in the environment. Reads in
 * flight at the same time are slow at the same time, as on a real device. */
void mz_fault_slow_reads(uint32_t ms);
uint32_t mz_fault_read_ms(void);

/* malloc and calloc that can fail on purpose; freed by free(). NULL when out of memory. */
void *mz_alloc(uint64_t bytes);
void *mz_calloc(uint64_t count, uint64_t bytes);
void *mz_realloc(void *old, uint64_t bytes);

#endif
