/* Region memory: anonymous pages, huge ones where a whole block of 2 MiB is in use.
 *
 * Each block of a persistent region is in one of two modes. A block all of whose granules are committed is
 * advised HUGEPAGE: it is populated as one huge page, or collapsed into one by the kernel later, and that
 * costs no memory beyond what was asked for. Every other block is advised NOHUGEPAGE, or one touch of a
 * granule, or khugepaged (max_ptes_none is 511 by default), would fill the rest of it. Memory that is touched
 * without being committed (a chunk of the cache at its first token) lies in such blocks.
 *
 * Pieces of one block are committed one after the other, by several threads. Had the first come before the
 * second was known of, it would get small pages, and the block would keep them: so a range can be claimed,
 * which marks its granules, and committed in pieces then.
 *
 * memory->lock protects the map of granules and is never held over a system call. advice_lock protects the
 * map of advice; it is held while that is changed and while a ragged edge is released, and taken before the
 * other. Populating and the release of whole blocks happen outside, on ranges that the caller owns. Both
 * are leaves in the lock order of core. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_int.h"
#include "os/fault.h"
#include "os/mem.h"

#define BLOCK MZ_OS_HUGE_BYTES

/* Granules of one block are counted in words of 64 bits: 512 granules of 4 KiB. */
#define BLOCK_WORDS 8

struct mz_memory {
    char *base;          /* fixed */
    uint64_t bytes;      /* fixed: reserved, a multiple of the block */
    uint64_t page_bytes; /* fixed */
    bool huge;           /* fixed: blocks are advised */
    pthread_mutex_t lock, advice_lock;
    uint64_t (*committed)[BLOCK_WORDS]; /* by block: granules in use or claimed; NULL unless huge; lock */
    uint8_t *advised;                   /* by block: HUGEPAGE; advice_lock */
};

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* Blocks of a size that is no multiple of 512 granules (64 KiB pages) go without advice. */
static bool worth_huge_pages(const struct mz_memory *memory, bool persistent)
{
    return persistent && memory->bytes >= BLOCK && memory->page_bytes * 64 * BLOCK_WORDS == BLOCK &&
           mz_os_huge_pages();
}

static int take_maps(struct mz_memory *memory)
{
    uint64_t blocks = memory->bytes / BLOCK;

    memory->committed = mz_calloc(blocks, sizeof(*memory->committed));
    memory->advised = mz_calloc(blocks, 1);
    if (!memory->committed || !memory->advised)
        return -ENOMEM;
    /* Where the kernel takes no advice, or everything is huge anyway, it works as well. */
    memory->huge = mz_os_advise_huge(memory->base, memory->bytes, false) == 0;
    return 0;
}

int mz_memory_reserve(struct mz_engine *engine, uint64_t bytes, bool persistent, struct mz_memory **ret)
{
    (void)engine;
    struct mz_memory *memory = mz_calloc(1, sizeof(*memory));

    if (!memory)
        return -ENOMEM;
    memory->page_bytes = mz_os_page_bytes();
    memory->bytes = round_up(bytes, bytes >= BLOCK ? BLOCK : memory->page_bytes);
    void *base = NULL;
    int err = mz_os_reserve(memory->bytes, &base);
    memory->base = base;
    if (err == 0 && worth_huge_pages(memory, persistent))
        err = take_maps(memory);
    if (err) {
        mz_os_unreserve(memory->base, memory->bytes);
        free(memory->committed);
        free(memory->advised);
        free(memory);
        return err;
    }
    pthread_mutex_init(&memory->lock, NULL);
    pthread_mutex_init(&memory->advice_lock, NULL);
    *ret = memory;
    return 0;
}

void mz_memory_unreserve(struct mz_engine *engine, struct mz_memory *memory)
{
    (void)engine;
    if (!memory)
        return;
    mz_os_unreserve(memory->base, memory->bytes);
    pthread_mutex_destroy(&memory->lock);
    pthread_mutex_destroy(&memory->advice_lock);
    free(memory->committed);
    free(memory->advised);
    free(memory);
}

void *mz_memory_base(struct mz_memory *memory)
{
    return memory->base;
}

/* ---- the maps */

static uint64_t block_end(uint64_t at, uint64_t end)
{
    uint64_t next = (at / BLOCK + 1) * BLOCK;
    return next < end ? next : end;
}

/* Marks the granules of a range inside one block. Lock held. */
static void mark_block(struct mz_memory *memory, uint64_t from, uint64_t to, bool in_use)
{
    uint64_t *words = memory->committed[from / BLOCK];

    for (uint64_t at = from; at < to; at += memory->page_bytes) {
        uint64_t granule = at % BLOCK / memory->page_bytes, bit = UINT64_C(1) << (granule % 64);
        if (in_use)
            words[granule / 64] |= bit;
        else
            words[granule / 64] &= ~bit;
    }
}

static void mark(struct mz_memory *memory, uint64_t from, uint64_t to, bool in_use)
{
    pthread_mutex_lock(&memory->lock);
    for (uint64_t at = from; at < to; at = block_end(at, to))
        mark_block(memory, at, block_end(at, to), in_use);
    pthread_mutex_unlock(&memory->lock);
}

static bool is_full(struct mz_memory *memory, uint64_t block)
{
    bool full = true;

    pthread_mutex_lock(&memory->lock);
    for (int i = 0; i < BLOCK_WORDS && full; i++)
        full = memory->committed[block][i] == UINT64_MAX;
    pthread_mutex_unlock(&memory->lock);
    return full;
}

/* Advises the blocks [from, to), runs of those that change at once. advice_lock held. Advice is a hint: when
 * the kernel refuses it (no room for one mapping more), sizes are still right, only slower or coarser. */
static void advise(struct mz_memory *memory, uint64_t from, uint64_t to, bool huge)
{
    while (from < to) {
        uint64_t end = from;
        while (end < to && (bool)memory->advised[end] != huge)
            end++;
        if (end > from && mz_os_advise_huge(memory->base + from * BLOCK, (end - from) * BLOCK, huge) == 0)
            memset(memory->advised + from, huge, end - from);
        from = end + 1;
    }
}

/* ---- commit and release */

static int bounds(const struct mz_memory *memory, uint64_t offset, uint64_t bytes, uint64_t *ret_from,
                  uint64_t *ret_to)
{
    if (offset > memory->bytes || bytes > memory->bytes - offset)
        return -ERANGE;
    *ret_from = offset / memory->page_bytes * memory->page_bytes;
    *ret_to = round_up(offset + bytes, memory->page_bytes);
    return 0;
}

void mz_memory_claim(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    (void)engine;
    uint64_t from, to;

    if (memory->huge && bounds(memory, offset, bytes, &from, &to) == 0)
        mark(memory, from, to, true);
}

/* Blocks between the first and the last are full; these two perhaps. */
static void advise_full(struct mz_memory *memory, uint64_t from, uint64_t to)
{
    uint64_t first = from / BLOCK, last = (to + BLOCK - 1) / BLOCK;

    pthread_mutex_lock(&memory->advice_lock);
    first += !is_full(memory, first);
    last -= last > first && !is_full(memory, last - 1);
    if (first < last)
        advise(memory, first, last, true);
    pthread_mutex_unlock(&memory->advice_lock);
}

int mz_memory_commit(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    (void)engine;
    uint64_t from, to;
    int err = bounds(memory, offset, bytes, &from, &to);

    if (err)
        return err;
    if (memory->huge && from < to) {
        mark(memory, from, to, true);
        advise_full(memory, from, to);
    }
    return mz_os_populate(memory->base + from, to - from);
}

/* Part of a block goes, and the rest stays as small pages. */
static int release_edge(struct mz_memory *memory, uint64_t from, uint64_t to)
{
    uint64_t block = from / BLOCK;

    pthread_mutex_lock(&memory->advice_lock);
    mark(memory, from, to, false);
    advise(memory, block, block + 1, false);
    mz_os_split_huge(memory->base + from, to - from);
    int err = mz_os_release(memory->base + from, to - from);
    if (err)
        mark(memory, from, to, true);
    pthread_mutex_unlock(&memory->advice_lock);
    return err;
}

static int release_blocks(struct mz_memory *memory, uint64_t from, uint64_t to)
{
    int err = mz_os_release(memory->base + from, to - from);
    if (err)
        return err;
    pthread_mutex_lock(&memory->advice_lock);
    mark(memory, from, to, false);
    advise(memory, from / BLOCK, to / BLOCK, false);
    pthread_mutex_unlock(&memory->advice_lock);
    return 0;
}

int mz_memory_release(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    (void)engine;
    if (offset > memory->bytes || bytes > memory->bytes - offset)
        return -ERANGE;
    uint64_t from = round_up(offset, memory->page_bytes);
    uint64_t to = (offset + bytes) / memory->page_bytes * memory->page_bytes;

    if (to <= from)
        return 0;
    if (!memory->huge)
        return mz_os_release(memory->base + from, to - from);
    uint64_t first = round_up(from, BLOCK), last = to / BLOCK * BLOCK;
    if (first > last)
        return release_edge(memory, from, to); /* inside one block */
    int err = from < first ? release_edge(memory, from, first) : 0;
    if (err == 0 && first < last)
        err = release_blocks(memory, first, last);
    if (err == 0 && last < to)
        err = release_edge(memory, last, to);
    return err;
}

int mz_memory_counted(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                      uint64_t *ret_resident, uint64_t *ret_swapped)
{
    (void)engine;
    if (offset > memory->bytes || bytes > memory->bytes - offset)
        return -ERANGE;
    return mz_os_resident(memory->base + offset, bytes, ret_resident, ret_swapped);
}

void *mz_memory_place(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    (void)engine;
    (void)bytes;
    return memory->base + offset;
}

int mz_memory_place_done(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                         void *place, bool write)
{
    (void)engine;
    (void)memory;
    (void)offset;
    (void)bytes;
    (void)place;
    (void)write;
    return 0;
}

/* Whole granules only: a page that a neighbour reaches into stays accessible. */
void mz_memory_trap(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                    bool none)
{
    (void)engine;
    uint64_t page = memory->page_bytes;
    uint64_t from = none ? round_up(offset, page) : offset / page * page;
    uint64_t to = none ? (offset + bytes) / page * page : round_up(offset + bytes, page);

    if (to > from)
        (void)mz_os_protect(memory->base + from, to - from, none);
}
