/* The stack: compressed KV chunks in memory, the second restore path beside storage.
 *
 * Memory comes in segments of 4 MiB that are backed when they are made and given back when nothing lives in
 * them. Chunks are stacked in eviction order (backward) and leave in restore order (forward), so the usual
 * case is last in, first out: "organizing the in-memory swap space as a stack ... grows incrementally,
 * allocating additional stack segments only when needed and releasing them after restoration completes"
 * (paper, section 4.4). That is a habit and no promise: partial restores and new tokens leave holes, and
 * holes are used again.
 *
 * All calls are safe from any thread: one mutex inside, a leaf (nothing else is locked while it is held). The
 * bytes of a slot belong to whoever holds the slot. Calls may take as long as the kernel needs to back or
 * unmap one segment (about a millisecond); none waits for I/O. */
#ifndef MZ_CORE_STACK_H
#define MZ_CORE_STACK_H

#include <stdbool.h>
#include <stdint.h>

#define MZ_STACK_SEGMENT_BYTES (UINT64_C(4) << 20)

struct mz_stack;
struct mz_segment;

/* Room for one encoded chunk. Copied freely; dropped once. `segment` is NULL when the slot holds nothing. */
struct mz_slot {
    struct mz_segment *segment;
    uint64_t offset; /* in the segment, a multiple of 1024 */
    uint64_t bytes;  /* that the holder may use */
};

/* An empty stack, without memory and without a spare segment. -ENOMEM. */
int mz_stack_create(struct mz_stack **ret);

/* Takes all segments, live slots included. No other thread uses the stack any more. NULL allowed. */
void mz_stack_destroy(struct mz_stack *stack);

/* Room for `bound_bytes` (more than 0), aligned to 1024 bytes, uninitialised. First in what there is, then in
 * the spare segment, then in a new one (larger than 4 MiB when the bound is). -ENOMEM: no memory for a
 * segment; -EINVAL: 0. */
int mz_stack_reserve(struct mz_stack *stack, uint64_t bound_bytes, struct mz_slot *ret);

/* The slot's first byte. Valid until the slot is dropped. Takes no lock. */
void *mz_stack_at(const struct mz_slot *slot);

/* The chunk took only `bytes` (at most slot->bytes, more than 0): the unused tail can be reserved by
 * others. */
void mz_stack_trim(struct mz_stack *stack, struct mz_slot *slot, uint64_t bytes);

/* Frees the slot and zeroes the record; a segment without live slots is given back, or kept as the spare. An
 * empty record is left alone. */
void mz_stack_drop(struct mz_stack *stack, struct mz_slot *slot);

/* Whether one empty segment is kept, so that evicting can begin when no memory can be had. True: it is made
 * at once if there is none (should that fail, the next segment that falls empty becomes it). False: it is
 * given back. */
void mz_stack_spare(struct mz_stack *stack, bool keep);

/* Bytes of live slots, as trimmed. */
uint64_t mz_stack_used_bytes(struct mz_stack *stack);

/* Memory that the stack holds: all segments and the spare. They are backed whole, so this is what is resident
 * (less what the system has swapped out). */
uint64_t mz_stack_memory_bytes(struct mz_stack *stack);

#endif
