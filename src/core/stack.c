/* The stack: segments of memory with a bitmap of blocks each.
 *
 * One mutex guards the list of segments, their bitmaps and all counts; it is a leaf and is held while a
 * segment is backed with memory (so that two threads never take two segments where one will do: the peak
 * while evicting is one segment). Memory is given back after it is let go. What lies in a slot belongs to the
 * slot's holder; `base` of a segment never changes while one of its slots lives, so mz_stack_at() needs no
 * lock.
 *
 * Blocks are 1 KiB: a coded chunk is 50 KiB and more, so rounding up costs less than 1 % on average, and a
 * bitmap of 4096 bits is searched in a few hundred nanoseconds. Holes are found again by the same search,
 * first fit from the front of the newest segment. */
#include "core/stack.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/bits.h"
#include "os/fault.h"
#include "os/mem.h"

#define BLOCK_BYTES UINT64_C(1024)

struct mz_segment {
    struct mz_segment *older, *newer; /* in the stack's list */
    uint8_t *base;                    /* backed with memory whole */
    uint64_t bytes;
    uint32_t blocks, free_blocks;
    uint32_t too_long; /* so many blocks in a row were not found since the last one was freed; 0: unknown */
    uint32_t live;     /* slots */
    uint64_t taken[];  /* a bit per block: 1 taken */
};

struct mz_stack {
    pthread_mutex_t lock;
    struct mz_segment *newest; /* all fields below: under lock */
    struct mz_segment *spare;  /* of MZ_STACK_SEGMENT_BYTES, without slots, not in the list */
    bool keep_spare;
    uint64_t used_bytes, memory_bytes;
};

/* The first of `n` free blocks in a row, or `blocks`. */
static uint32_t find_run(const struct mz_segment *segment, uint32_t n)
{
    uint64_t end = 0, first;
    do {
        first = mz_bits_next(segment->taken, end, segment->blocks, false);
        end = mz_bits_next(segment->taken, first, segment->blocks, true);
    } while (end - first < n && end < segment->blocks);
    return end - first < n ? segment->blocks : (uint32_t)first;
}

static uint32_t blocks_of(uint64_t bytes)
{
    return (uint32_t)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
}

/* -------------------------------------------------------------------------------- segments */

static void segment_free(struct mz_segment *segment)
{
    if (!segment)
        return;
    mz_os_unreserve(segment->base, segment->bytes);
    free(segment);
}

static int segment_make(uint64_t bytes, struct mz_segment **ret)
{
    uint64_t blocks = bytes / BLOCK_BYTES, words = mz_bits_words(blocks);
    if (blocks > UINT32_MAX)
        return -ENOMEM;
    struct mz_segment *segment = mz_calloc(1, sizeof *segment + words * sizeof segment->taken[0]);
    if (!segment)
        return -ENOMEM;
    void *base = NULL;
    int r = mz_os_reserve(bytes, &base);
    if (r) {
        free(segment);
        return r;
    }
    segment->base = base;
    segment->bytes = bytes;
    segment->blocks = segment->free_blocks = (uint32_t)blocks;
    (void)mz_os_advise_huge(base, bytes, true); /* advice: small pages do as well */
    r = mz_os_populate(base, bytes);
    if (r) {
        segment_free(segment);
        return r;
    }
    *ret = segment;
    return 0;
}

static void list_add(struct mz_stack *stack, struct mz_segment *segment)
{
    segment->older = stack->newest;
    segment->newer = NULL;
    if (stack->newest)
        stack->newest->newer = segment;
    stack->newest = segment;
}

static void list_remove(struct mz_stack *stack, struct mz_segment *segment)
{
    if (segment->newer)
        segment->newer->older = segment->older;
    else
        stack->newest = segment->older;
    if (segment->older)
        segment->older->newer = segment->newer;
    segment->older = segment->newer = NULL;
}

/* The spare one, or a new one, that holds `bytes`. Lock held. */
static int segment_get(struct mz_stack *stack, uint64_t bytes, struct mz_segment **ret)
{
    if (stack->spare && bytes <= stack->spare->bytes) {
        *ret = stack->spare;
        stack->spare = NULL;
        return 0;
    }
    uint64_t page = mz_os_page_bytes();
    if (bytes > UINT64_MAX - page)
        return -ENOMEM;
    if (bytes < MZ_STACK_SEGMENT_BYTES)
        bytes = MZ_STACK_SEGMENT_BYTES;
    int r = segment_make((bytes + page - 1) / page * page, ret);
    if (!r)
        stack->memory_bytes += (*ret)->bytes;
    return r;
}

/* Takes an empty segment out of the list; it becomes the spare, or is returned to be freed without the lock.
 */
static struct mz_segment *segment_retire(struct mz_stack *stack, struct mz_segment *segment)
{
    list_remove(stack, segment);
    if (stack->keep_spare && !stack->spare && segment->bytes == MZ_STACK_SEGMENT_BYTES) {
        stack->spare = segment;
        return NULL;
    }
    stack->memory_bytes -= segment->bytes;
    return segment;
}

/* -------------------------------------------------------------------------------- slots */

static bool segment_take(struct mz_segment *segment, uint64_t bytes, struct mz_slot *ret)
{
    uint32_t n = blocks_of(bytes);
    if (n > segment->free_blocks || (segment->too_long && n >= segment->too_long))
        return false;
    uint32_t first = find_run(segment, n);
    if (first == segment->blocks) {
        segment->too_long = n;
        return false;
    }
    mz_bits_fill(segment->taken, first, first + n, true);
    segment->free_blocks -= n;
    segment->live++;
    *ret = (struct mz_slot){.segment = segment, .offset = first * BLOCK_BYTES, .bytes = bytes};
    return true;
}

/* Frees the blocks of the slot behind its first `keep` bytes. */
static void segment_untake(struct mz_segment *segment, const struct mz_slot *slot, uint64_t keep)
{
    uint32_t first = (uint32_t)(slot->offset / BLOCK_BYTES) + blocks_of(keep);
    uint32_t n = blocks_of(slot->bytes) - blocks_of(keep);
    assert(mz_bits_count(segment->taken, first, first + n) == n);
    mz_bits_fill(segment->taken, first, first + n, false);
    segment->free_blocks += n;
    if (n)
        segment->too_long = 0;
}

int mz_stack_reserve(struct mz_stack *stack, uint64_t bound_bytes, struct mz_slot *ret)
{
    if (bound_bytes == 0)
        return -EINVAL;
    if (bound_bytes / BLOCK_BYTES >= UINT32_MAX)
        return -ENOMEM;
    int r = 0;
    bool found = false;
    struct mz_slot slot;
    pthread_mutex_lock(&stack->lock);
    for (struct mz_segment *at = stack->newest; at && !found; at = at->older)
        found = segment_take(at, bound_bytes, &slot);
    if (!found) {
        struct mz_segment *segment;
        r = segment_get(stack, bound_bytes, &segment);
        if (!r) {
            list_add(stack, segment);
            found = segment_take(segment, bound_bytes, &slot);
        }
    }
    assert(found || r);
    if (found)
        stack->used_bytes += bound_bytes;
    pthread_mutex_unlock(&stack->lock);
    if (found)
        *ret = slot;
    return r;
}

void *mz_stack_at(const struct mz_slot *slot)
{
    return slot->segment->base + slot->offset;
}

void mz_stack_trim(struct mz_stack *stack, struct mz_slot *slot, uint64_t bytes)
{
    assert(slot->segment && bytes > 0 && bytes <= slot->bytes);
    pthread_mutex_lock(&stack->lock);
    segment_untake(slot->segment, slot, bytes);
    stack->used_bytes -= slot->bytes - bytes;
    pthread_mutex_unlock(&stack->lock);
    slot->bytes = bytes;
}

void mz_stack_drop(struct mz_stack *stack, struct mz_slot *slot)
{
    struct mz_segment *segment = slot->segment, *gone = NULL;
    if (!segment)
        return;
    pthread_mutex_lock(&stack->lock);
    assert(segment->live > 0);
    segment_untake(segment, slot, 0);
    stack->used_bytes -= slot->bytes;
    if (--segment->live == 0)
        gone = segment_retire(stack, segment);
    pthread_mutex_unlock(&stack->lock);
    segment_free(gone);
    *slot = (struct mz_slot){0};
}

/* -------------------------------------------------------------------------------- life */

int mz_stack_create(struct mz_stack **ret)
{
    struct mz_stack *stack = mz_calloc(1, sizeof *stack);
    if (!stack)
        return -ENOMEM;
    int r = pthread_mutex_init(&stack->lock, NULL);
    if (r) {
        free(stack);
        return -r;
    }
    *ret = stack;
    return 0;
}

void mz_stack_destroy(struct mz_stack *stack)
{
    if (!stack)
        return;
    for (struct mz_segment *at = stack->newest, *older; at; at = older) {
        older = at->older;
        segment_free(at);
    }
    segment_free(stack->spare);
    pthread_mutex_destroy(&stack->lock);
    free(stack);
}

void mz_stack_spare(struct mz_stack *stack, bool keep)
{
    struct mz_segment *gone = NULL;
    pthread_mutex_lock(&stack->lock);
    stack->keep_spare = keep;
    if (keep && !stack->spare && !segment_make(MZ_STACK_SEGMENT_BYTES, &stack->spare)) {
        stack->memory_bytes += stack->spare->bytes;
    } else if (!keep && stack->spare) {
        gone = stack->spare;
        stack->spare = NULL;
        stack->memory_bytes -= gone->bytes;
    }
    pthread_mutex_unlock(&stack->lock);
    segment_free(gone);
}

uint64_t mz_stack_used_bytes(struct mz_stack *stack)
{
    pthread_mutex_lock(&stack->lock);
    uint64_t bytes = stack->used_bytes;
    pthread_mutex_unlock(&stack->lock);
    return bytes;
}

uint64_t mz_stack_memory_bytes(struct mz_stack *stack)
{
    pthread_mutex_lock(&stack->lock);
    uint64_t bytes = stack->memory_bytes;
    pthread_mutex_unlock(&stack->lock);
    return bytes;
}
