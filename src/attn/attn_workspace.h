/*
 * What the threads of one operation share: who does which item, and whether it failed. Private to src/attn/.
 *
 * Lock-free; there are no locks to order. Every word carries a->run in its upper half, so that what an
 * earlier operation left (also one that was aborted between its phases) reads as "not begun" without anyone
 * clearing it.
 *
 * States of an item, and who moves it:
 *
 * - free -> held: any thread, by compare and exchange (acquire: sees the slot and `next` of the last)
 * - held -> free: its holder, when a chunk is not there yet or the operation failed (release)
 * - held -> done: its holder, when the last chunk is in the slot (release)
 */
#ifndef MZ_ATTN_WORKSPACE_H
#define MZ_ATTN_WORKSPACE_H

#include <stdatomic.h>
#include <stdint.h>

/* Two cache lines: the adjacent-line prefetcher must not tie two threads' areas together. */
#define MZ_ATTN_ALIGN 128

enum mz_attn_item_state {
    MZ_ATTN_ITEM_FREE = 0,
    MZ_ATTN_ITEM_HELD = 1,
    MZ_ATTN_ITEM_DONE = 2,
};

struct mz_attn_item {
    _Atomic uint64_t state; /* run << 32 | enum mz_attn_item_state */
    uint32_t next_run;      /* owner: the holder. `next` belongs to this run; otherwise it is 0 */
    uint32_t next;          /* owner: the holder. Chunks of the range that are in the slot already */
};

struct mz_attn_head {
    _Atomic uint64_t claim;  /* run << 32 | items claimed so far in the first pass */
    _Atomic uint64_t failed; /* run << 32 | positive errno */
    _Atomic uint64_t merged; /* run that was merged last; written by thread 0 of the merge */
};

#endif
