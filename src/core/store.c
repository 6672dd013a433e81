/* The store: which blocks of the swap file are in use.
 *
 * Two bits per block of 4 KiB (64 KiB of maps per GiB of file): taken, and stale (free, but still occupying
 * disk since it was written before). Bits need no memory to free a range, so freeing cannot fail, and
 * neighbours coalesce by themselves. One mutex guards everything but the folder's name, which never changes;
 * it is a leaf, and it is held while the file is opened (so that only one is made) and while blocks are given
 * back (so that nobody is given them meanwhile).
 *
 * Where a range goes: right behind the last one, if that is free, so that units stored one after the other
 * are neighbours; else the smallest hole of at least 4 MiB, so that what follows are neighbours again; else
 * at the end of the file. Smaller holes are used only when they add up (more than a quarter of what is in
 * use) or the disk is full. */
#include "core/store.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"
#include "os/fault.h"
#include "os/folder.h"

#define BLOCK       MZ_STORE_BLOCK_BYTES
#define GOOD_HOLE   UINT64_C(1024)  /* blocks: 4 MiB, the largest request */
#define FEW_HOLES   UINT64_C(4096)  /* blocks: 16 MiB that small holes may waste at any time */
#define GROW_BLOCKS UINT64_C(16384) /* maps grow by 64 MiB of file at least */

struct mz_store {
    char path[4096];              /* constant */
    _Atomic(const char *) folder; /* path, or MZ_STORE_LAST_FOLDER once that was fallen back to */
    bool by_default;              /* constant: nobody named the folder */
    bool force;                   /* constant */
    pthread_mutex_t lock;
    struct mz_file file; /* opened once under the lock, constant then; used by others without it */
    bool is_open;        /* from here on: under lock */
    uint64_t *taken, *stale;
    uint64_t room;                       /* blocks that the maps have bits for */
    uint64_t end;                        /* blocks: no bit from here on is set */
    uint64_t cursor;                     /* behind the range given last */
    uint64_t taken_blocks, stale_blocks; /* bits set */
    uint64_t written_bytes;
};

/* -------------------------------------------------------------------------------- the file */

static int copy_path(char *buf, size_t size, const char *path)
{
    int length = snprintf(buf, size, "%s", path);
    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

static int name_folder(struct mz_store *store, const char *folder)
{
    if (!folder || !*folder)
        folder = getenv("MZ_SWAP_FOLDER");
    if (folder && *folder)
        return copy_path(store->path, sizeof store->path, folder);
    store->by_default = true;
    int r = mz_folder_cache(store->path, sizeof store->path);
    return r == -ENOENT ? copy_path(store->path, sizeof store->path, MZ_STORE_LAST_FOLDER) : r;
}

static int open_in(struct mz_store *store, const char *folder)
{
    int r = mz_file_open_swap(folder, store->force, &store->file);
    if (r != -ENOENT)
        return r;
    r = mz_folder_make(folder);
    return r ? r : mz_file_open_swap(folder, store->force, &store->file);
}

/* Lock held. A service's home may be missing, read-only or in memory: where nobody named the folder, the last
 * resort is tried too. */
static int open_file(struct mz_store *store)
{
    if (store->is_open)
        return 0;
    int r = open_in(store, store->path);
    if (r && r != -ENOMEM && store->by_default && open_in(store, MZ_STORE_LAST_FOLDER) == 0) {
        store->folder = MZ_STORE_LAST_FOLDER;
        r = 0;
    }
    store->is_open = r == 0;
    return r;
}

/* Whether the file system has room for so many blocks that occupy nothing yet: 0, -ENOSPC, or what asking
 * gave. */
static int check_space(const struct mz_store *store, uint64_t blocks)
{
    uint64_t left;
    int r = blocks == 0 ? 0 : mz_file_space(&store->file, &left);
    if (r || blocks == 0)
        return r;
    return left < MZ_STORE_RESERVE_BYTES || blocks > (left - MZ_STORE_RESERVE_BYTES) / BLOCK ? -ENOSPC : 0;
}

/* -------------------------------------------------------------------------------- the maps */

static int map_grow(uint64_t **map, uint64_t old_blocks, uint64_t blocks)
{
    uint64_t old_words = mz_bits_words(old_blocks), words = mz_bits_words(blocks);
    uint64_t *bits = mz_realloc(*map, words * sizeof *bits);
    if (!bits)
        return -ENOMEM;
    memset(bits + old_words, 0, (words - old_words) * sizeof *bits);
    *map = bits;
    return 0;
}

/* Bits for `blocks` blocks at least. Half as many again each time, so that growing costs nothing on the
 * whole. */
static int maps_grow(struct mz_store *store, uint64_t blocks)
{
    if (blocks <= store->room)
        return 0;
    if (blocks > UINT64_MAX / 4 / BLOCK)
        return -ENOSPC;
    uint64_t room = store->room + store->room / 2 + GROW_BLOCKS;
    if (room < blocks)
        room = blocks;
    int r = map_grow(&store->taken, store->room, room);
    if (!r)
        r = map_grow(&store->stale, store->room, room);
    if (!r)
        store->room = room;
    return r;
}

/* The first block of the smallest hole inside the file with `n` blocks or more, or `end`. */
static uint64_t find_hole(const struct mz_store *store, uint64_t n, bool only_stale)
{
    uint64_t best = store->end, best_blocks = UINT64_MAX;
    const uint64_t *map = only_stale ? store->stale : store->taken;
    for (uint64_t first = 0, last = 0; last < store->end;) {
        first = mz_bits_next(map, last, store->end, only_stale);
        last = mz_bits_next(map, first, store->end, !only_stale);
        if (last - first >= n && last - first < best_blocks) {
            best = first;
            best_blocks = last - first;
        }
    }
    return best;
}

static bool is_hole(const struct mz_store *store, uint64_t first, uint64_t n)
{
    return first + n <= store->end && mz_bits_next(store->taken, first, first + n, true) == first + n;
}

/* Where the next `n` blocks go while there is disk enough; `end` or before when the file must grow. */
static uint64_t choose(const struct mz_store *store, uint64_t n)
{
    if (is_hole(store, store->cursor, n))
        return store->cursor;
    uint64_t at = find_hole(store, n > GOOD_HOLE ? n : GOOD_HOLE, false);
    if (at < store->end)
        return at;
    if (store->end - store->taken_blocks > store->taken_blocks / 4 + FEW_HOLES)
        at = find_hole(store, n, false);
    if (at < store->end)
        return at;
    while (at > 0 && !mz_bits_count(store->taken, at - 1, at)) /* a free tail, shorter than n */
        at--;
    return at;
}

static uint64_t blocks_of(uint64_t bytes)
{
    return bytes / BLOCK + (bytes % BLOCK != 0);
}

static void take(struct mz_store *store, uint64_t at, uint64_t n)
{
    store->stale_blocks -= mz_bits_count(store->stale, at, at + n);
    store->taken_blocks += n;
    mz_bits_fill(store->stale, at, at + n, false);
    mz_bits_fill(store->taken, at, at + n, true);
    store->cursor = at + n;
    if (store->end < at + n)
        store->end = at + n;
}

/* Blocks of the range that occupy no disk yet. */
static uint64_t fresh_blocks(const struct mz_store *store, uint64_t at, uint64_t n)
{
    uint64_t end = at + n < store->end ? at + n : store->end;
    return n - mz_bits_count(store->stale, at, end);
}

/* Lock held, file open. When the file system cannot say what it has left, what occupies disk already is
 * preferred, and else writing will tell. */
static int alloc_blocks(struct mz_store *store, uint64_t n, uint64_t *ret_at)
{
    uint64_t at = choose(store, n);
    int r = check_space(store, fresh_blocks(store, at, n));
    if (r) {
        uint64_t hole = find_hole(store, n, true);
        if (hole == store->end && r == -ENOSPC)
            return r;
        at = hole < store->end ? hole : at;
    }
    r = maps_grow(store, at + n);
    if (r)
        return r;
    take(store, at, n);
    *ret_at = at;
    return 0;
}

int mz_store_alloc(struct mz_store *store, uint64_t bytes, uint64_t *ret_offset)
{
    if (bytes == 0)
        return -EINVAL;
    uint64_t at = 0;
    pthread_mutex_lock(&store->lock);
    int r = open_file(store);
    if (!r)
        r = alloc_blocks(store, blocks_of(bytes), &at);
    pthread_mutex_unlock(&store->lock);
    if (!r)
        *ret_offset = at * BLOCK;
    return r;
}

void mz_store_free(struct mz_store *store, uint64_t offset, uint64_t bytes)
{
    assert(offset % BLOCK == 0);
    uint64_t first = offset / BLOCK, n = blocks_of(bytes);
    pthread_mutex_lock(&store->lock);
    assert(first + n <= store->end && mz_bits_count(store->taken, first, first + n) == n);
    mz_bits_fill(store->taken, first, first + n, false);
    mz_bits_fill(store->stale, first, first + n, true);
    store->taken_blocks -= n;
    store->stale_blocks += n;
    if (store->taken_blocks == 0) /* begin anew at the front */
        store->cursor = 0;
    pthread_mutex_unlock(&store->lock);
}

void mz_store_punch(struct mz_store *store)
{
    pthread_mutex_lock(&store->lock);
    for (uint64_t first = 0, last = 0; store->stale_blocks && last < store->end;) {
        first = mz_bits_next(store->stale, last, store->end, true);
        last = mz_bits_next(store->stale, first, store->end, false);
        if (first == last)
            break;
        mz_file_punch(&store->file, first * BLOCK, (last - first) * BLOCK);
        mz_bits_fill(store->stale, first, last, false);
    }
    store->stale_blocks = 0;
    while (store->end > 0 && !mz_bits_count(store->taken, store->end - 1, store->end))
        store->end--;
    if (store->cursor > store->end)
        store->cursor = store->end;
    pthread_mutex_unlock(&store->lock);
}

/* -------------------------------------------------------------------------------- life and state */

int mz_store_create(const char *folder, bool force, struct mz_store **ret)
{
    struct mz_store *store = mz_calloc(1, sizeof *store);
    if (!store)
        return -ENOMEM;
    int r = name_folder(store, folder);
    store->folder = store->path;
    store->force = force;
    store->file = (struct mz_file){.fd = -1, .direct_fd = -1};
    if (!r)
        r = -pthread_mutex_init(&store->lock, NULL);
    if (r)
        free(store);
    else
        *ret = store;
    return r;
}

void mz_store_destroy(struct mz_store *store)
{
    if (!store)
        return;
    if (store->is_open)
        mz_file_close(&store->file);
    pthread_mutex_destroy(&store->lock);
    free(store->taken);
    free(store->stale);
    free(store);
}

void mz_store_fork_child(struct mz_store *store)
{
    mz_file_close(&store->file);
}

const struct mz_file *mz_store_file(struct mz_store *store)
{
    pthread_mutex_lock(&store->lock);
    bool is_open = store->is_open;
    pthread_mutex_unlock(&store->lock);
    return is_open ? &store->file : NULL;
}

/* One number, read under the lock. */
static uint64_t read_locked(struct mz_store *store, const uint64_t *number)
{
    pthread_mutex_lock(&store->lock);
    uint64_t value = *number;
    pthread_mutex_unlock(&store->lock);
    return value;
}

uint64_t mz_store_size_bytes(struct mz_store *store)
{
    pthread_mutex_lock(&store->lock);
    uint64_t blocks = store->taken_blocks + store->stale_blocks;
    pthread_mutex_unlock(&store->lock);
    return blocks * BLOCK;
}

uint64_t mz_store_live_bytes(struct mz_store *store)
{
    return read_locked(store, &store->taken_blocks) * BLOCK;
}

uint64_t mz_store_written_bytes(struct mz_store *store)
{
    return read_locked(store, &store->written_bytes);
}

void mz_store_note_written(struct mz_store *store, uint64_t bytes)
{
    pthread_mutex_lock(&store->lock);
    store->written_bytes += bytes;
    pthread_mutex_unlock(&store->lock);
}

const char *mz_store_folder(const struct mz_store *store)
{
    return store->folder;
}
