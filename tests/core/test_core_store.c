/* The swap file: ranges never overlap, neighbours stay neighbours, freed ranges are used again and given
 * back, and failing calls leave nothing changed. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/store.h"
#include "os/fault.h"
#include "os/folder.h"

#define BLOCK MZ_STORE_BLOCK_BYTES
#define MIB   (UINT64_C(1) << 20)

static char folder[] = "/var/tmp/mz-store-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when a file is left in it */
}

static struct mz_store *make(void)
{
    struct mz_store *store = NULL;
    assert_int_equal(mz_store_create(folder, true, &store), 0);
    return store;
}

static uint64_t alloc(struct mz_store *store, uint64_t bytes)
{
    uint64_t offset = 1;
    assert_int_equal(mz_store_alloc(store, bytes, &offset), 0);
    assert_int_equal(offset % BLOCK, 0);
    return offset;
}

static void test_opens_late(void **state)
{
    (void)state;
    struct mz_store *store = make();
    assert_string_equal(mz_store_folder(store), folder);
    assert_null(mz_store_file(store));
    assert_int_equal(mz_store_size_bytes(store), 0);
    mz_store_punch(store); /* nothing to do, no file */
    uint64_t offset = 5;
    assert_int_equal(mz_store_alloc(store, 0, &offset), -EINVAL);
    assert_null(mz_store_file(store));
    assert_int_equal(alloc(store, 1), 0);
    assert_non_null(mz_store_file(store));
    assert_ptr_equal(mz_store_file(store), mz_store_file(store));
    assert_int_equal(mz_store_size_bytes(store), BLOCK);
    assert_int_equal(mz_store_live_bytes(store), BLOCK);
    mz_store_note_written(store, 100);
    mz_store_note_written(store, 11);
    assert_int_equal(mz_store_written_bytes(store), 111);
    mz_store_destroy(store);
    mz_store_destroy(NULL);
}

static void test_makes_its_folder(void **state)
{
    (void)state;
    char upper[64], lower[80];
    snprintf(upper, sizeof upper, "%s/a", folder);
    snprintf(lower, sizeof lower, "%s/b", upper);
    struct mz_store *store = NULL;
    assert_int_equal(mz_store_create(lower, true, &store), 0);
    assert_int_equal(access(upper, F_OK), -1);
    alloc(store, 1);
    struct stat st;
    assert_int_equal(stat(lower, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    mz_store_destroy(store);
    assert_int_equal(rmdir(lower), 0); /* the file has no name */
    assert_int_equal(rmdir(upper), 0);
}

static void test_default_folder(void **state)
{
    (void)state;
    struct mz_store *store = NULL;
    char expected[64], cache[64];
    snprintf(expected, sizeof expected, "%s/mzcache", folder);
    snprintf(cache, sizeof cache, "%s/.cache/mzcache", folder);
    setenv("MZ_SWAP_FOLDER", "/somewhere", 1);
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("HOME", folder, 1);
    assert_int_equal(mz_store_create(NULL, false, &store), 0);
    assert_string_equal(mz_store_folder(store), "/somewhere");
    mz_store_destroy(store);
    unsetenv("MZ_SWAP_FOLDER");
    assert_int_equal(mz_store_create("", false, &store), 0);
    assert_string_equal(mz_store_folder(store), expected);
    mz_store_destroy(store);
    setenv("XDG_CACHE_HOME", "relative", 1); /* to be ignored, says its specification */
    assert_int_equal(mz_store_create(NULL, false, &store), 0);
    assert_string_equal(mz_store_folder(store), cache);
    mz_store_destroy(store);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(mz_store_create(NULL, false, &store), 0);
    assert_string_equal(mz_store_folder(store), "/var/tmp");
    mz_store_destroy(store);
    char *long_name = malloc(5000);
    memset(long_name, 'x', 4999);
    long_name[4999] = 0;
    assert_int_equal(mz_store_create(long_name, false, &store), -ENAMETOOLONG);
    free(long_name);
}

/* A home that nothing can be made in, as services have it. */
static void test_falls_back(void **state)
{
    (void)state;
    struct mz_store *store = NULL;
    uint64_t offset;
    setenv("HOME", "/proc/none", 1);
    assert_int_equal(mz_store_create(NULL, true, &store), 0);
    assert_string_equal(mz_store_folder(store), "/proc/none/.cache/mzcache");
    alloc(store, 1);
    assert_string_equal(mz_store_folder(store), "/var/tmp");
    mz_store_destroy(store);
    assert_int_equal(mz_store_create("/proc/none", true, &store), 0);
    assert_true(mz_store_alloc(store, 1, &offset) < 0); /* what the user named is not replaced */
    assert_null(mz_store_file(store));
    mz_store_destroy(store);
    unsetenv("HOME");
}

static void test_neighbours(void **state)
{
    (void)state;
    enum { N = 200 };
    struct mz_store *store = make();
    uint64_t at[N], bytes = 100 * 1024 + 1, room = 101 * 1024 / BLOCK * BLOCK + BLOCK;
    for (int pass = 0; pass < 3; pass++) { /* and again when all is free */
        for (int i = 0; i < N; i++) {
            at[i] = alloc(store, bytes);
            assert_int_equal(at[i], (uint64_t)i * room);
        }
        for (int i = 0; i < N; i++)
            mz_store_free(store, at[pass == 1 ? N - 1 - i : i], bytes);
        assert_int_equal(mz_store_live_bytes(store), 0);
        assert_int_equal(mz_store_size_bytes(store), N * room); /* still on disk */
    }
    mz_store_punch(store);
    assert_int_equal(mz_store_size_bytes(store), 0);
    mz_store_destroy(store);
}

/* Freed neighbours are one hole; large holes are taken before the file grows, and what follows goes behind.
 */
static void test_coalesces(void **state)
{
    (void)state;
    struct mz_store *store = make();
    uint64_t a = alloc(store, 3 * MIB), b = alloc(store, 3 * MIB), c = alloc(store, 3 * MIB);
    assert_int_equal(a, 0);
    assert_int_equal(b, 3 * MIB);
    assert_int_equal(c, 6 * MIB);
    mz_store_free(store, a, 3 * MIB);
    assert_int_equal(alloc(store, MIB), 9 * MIB); /* too small a hole to begin in */
    mz_store_free(store, b, 3 * MIB);
    mz_store_free(store, 9 * MIB, MIB);
    assert_int_equal(alloc(store, 5 * MIB), 0);
    assert_int_equal(alloc(store, MIB), 5 * MIB);
    assert_int_equal(alloc(store, MIB), 9 * MIB); /* the free tail */
    mz_store_free(store, 0, 2 * MIB);             /* part of a range */
    mz_store_free(store, 2 * MIB, 3 * MIB);       /* and the rest */
    assert_int_equal(mz_store_live_bytes(store), 5 * MIB);
    mz_store_destroy(store);
}

static void test_small_holes_add_up(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct mz_store *store = make();
    uint64_t at[N];
    for (int i = 0; i < N; i++)
        at[i] = alloc(store, 64 * 1024);
    for (int i = 0; i < N; i += 2)
        mz_store_free(store, at[i], 64 * 1024);
    uint64_t size = mz_store_size_bytes(store);
    /* Half the file is holes of 64 KiB: more than a quarter of what is in use, and 16 MiB, until 94 of them
     * are filled. */
    for (int i = 0; i < 90; i++)
        assert_true(alloc(store, 64 * 1024) < N * UINT64_C(65536));
    assert_int_equal(mz_store_size_bytes(store), size);
    mz_store_destroy(store);
}

static void test_punch_keeps_the_rest(void **state)
{
    (void)state;
    struct mz_store *store = make();
    uint8_t *page = NULL, *back = NULL;
    assert_int_equal(posix_memalign((void **)&page, 4096, BLOCK), 0);
    assert_int_equal(posix_memalign((void **)&back, 4096, BLOCK), 0);
    uint64_t at[16];
    for (unsigned i = 0; i < 16; i++) {
        at[i] = alloc(store, BLOCK);
        memset(page, (int)i + 1, BLOCK);
        assert_int_equal(mz_file_write(mz_store_file(store), page, BLOCK, at[i]), 0);
    }
    for (unsigned i = 0; i < 16; i++)
        if (i % 3 != 0)
            mz_store_free(store, at[i], BLOCK);
    mz_store_punch(store);
    assert_int_equal(mz_store_size_bytes(store), 6 * BLOCK);
    for (unsigned i = 0; i < 16; i += 3) {
        assert_int_equal(mz_file_read(mz_store_file(store), back, BLOCK, at[i]), 0);
        assert_int_equal(back[0], i + 1);
        assert_int_equal(back[BLOCK - 1], i + 1);
        mz_store_free(store, at[i], BLOCK);
    }
    mz_store_punch(store);
    assert_int_equal(mz_store_size_bytes(store), 0);
    assert_int_equal(alloc(store, BLOCK), 0);
    free(page);
    free(back);
    mz_store_destroy(store);
}

static void test_no_space(void **state)
{
    (void)state;
    struct mz_store *store = make();
    uint64_t offset = 7, left, a = alloc(store, 8 * MIB), b = alloc(store, MIB);
    assert_int_equal(mz_file_space(mz_store_file(store), &left), 0);
    assert_int_equal(mz_store_alloc(store, left + (UINT64_C(1) << 40), &offset), -ENOSPC);
    assert_int_equal(mz_store_alloc(store, UINT64_MAX, &offset), -ENOSPC);
    assert_int_equal(offset, 7);
    assert_int_equal(mz_store_live_bytes(store), 9 * MIB);
    /* A file system that does not say: blocks on disk first, and small holes with them; then it grows. */
    mz_store_free(store, a, MIB);
    mz_fault_plan(MZ_FAULT_STAT, 1, EIO, true);
    assert_int_equal(alloc(store, MIB), a);
    assert_int_equal(alloc(store, MIB), b + MIB);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    mz_store_destroy(store);
}

static void test_faults(void **state)
{
    (void)state;
    struct mz_store *store = NULL;
    uint64_t offset = 7;
    mz_fault_plan(MZ_FAULT_ALLOC, 1, ENOMEM, false);
    assert_int_equal(mz_store_create(folder, true, &store), -ENOMEM);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    store = make();
    mz_fault_plan(MZ_FAULT_OPEN, 1, EACCES, false);
    assert_int_equal(mz_store_alloc(store, BLOCK, &offset), -EACCES);
    assert_null(mz_store_file(store));
    for (uint64_t n = 1; n <= 2; n++) { /* both maps */
        mz_fault_plan(MZ_FAULT_ALLOC, n, ENOMEM, false);
        assert_int_equal(mz_store_alloc(store, BLOCK, &offset), -ENOMEM);
        assert_int_equal(mz_store_size_bytes(store), 0);
    }
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(offset, 7);
    assert_int_equal(alloc(store, BLOCK), 0);
    mz_fault_plan(MZ_FAULT_ALLOC, 1, ENOMEM, true);
    mz_store_free(store, 0, BLOCK); /* needs no memory */
    mz_fault_plan(MZ_FAULT_WRITE, 1, EIO, true);
    mz_store_punch(store); /* costs disk only */
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(mz_store_live_bytes(store), 0);
    mz_store_destroy(store);
}

/* -------------------------------------------------------------------------------- random use, by several
 * threads */

enum { FILE_BLOCKS = 1 << 14, HELD = 64 };

struct owners {
    struct mz_store *store;
    _Atomic uint32_t owner[FILE_BLOCKS]; /* 0: free */
    _Atomic uint32_t bad;
};

struct user {
    struct owners *owners;
    uint32_t id;
    uint64_t seed;
};

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % n;
}

static void mark(struct owners *owners, uint64_t offset, uint64_t blocks, uint32_t from, uint32_t to)
{
    for (uint64_t i = offset / BLOCK; i < offset / BLOCK + blocks; i++) {
        if (i >= FILE_BLOCKS || owners->owner[i] != from)
            owners->bad = 1;
        else
            owners->owner[i] = to;
    }
}

static void *use(void *arg)
{
    struct user *user = arg;
    struct owners *owners = user->owners;
    uint64_t at[HELD], blocks[HELD] = {0};
    for (int step = 0; step < 3000; step++) {
        uint32_t i = random_below(&user->seed, HELD);
        if (blocks[i]) {
            uint64_t part = 1 + random_below(&user->seed, (uint32_t)blocks[i]); /* some of it, from the end */
            blocks[i] -= part;
            mark(owners, at[i] + blocks[i] * BLOCK, part, user->id, 0);
            mz_store_free(owners->store, at[i] + blocks[i] * BLOCK, part * BLOCK);
        } else {
            blocks[i] = 1 + random_below(&user->seed, 40);
            if (mz_store_alloc(owners->store, blocks[i] * BLOCK, &at[i]))
                blocks[i] = 0;
            mark(owners, at[i], blocks[i], 0, user->id);
        }
        if (random_below(&user->seed, 500) == 0)
            mz_store_punch(owners->store);
    }
    for (uint32_t i = 0; i < HELD; i++) {
        mark(owners, at[i], blocks[i], user->id, 0);
        if (blocks[i])
            mz_store_free(owners->store, at[i], blocks[i] * BLOCK);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    static struct owners owners;
    struct user users[THREADS];
    pthread_t threads[THREADS];
    owners.store = make();
    for (uint32_t i = 0; i < THREADS; i++) {
        users[i] = (struct user){.owners = &owners, .id = i + 1, .seed = i + 3};
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(owners.bad, 0);
    assert_int_equal(mz_store_live_bytes(owners.store), 0);
    mz_store_punch(owners.store);
    assert_int_equal(mz_store_size_bytes(owners.store), 0);
    mz_store_destroy(owners.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens_late),
        cmocka_unit_test(test_makes_its_folder),
        cmocka_unit_test(test_default_folder),
        cmocka_unit_test(test_falls_back),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_coalesces),
        cmocka_unit_test(test_small_holes_add_up),
        cmocka_unit_test(test_punch_keeps_the_rest),
        cmocka_unit_test(test_no_space),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
