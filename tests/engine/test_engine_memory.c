/* The CPU engine's memory: what is committed is there and counted, what is released is gone and nothing
 * beside it, zeros come back, and many threads may do both in neighbouring ranges of the same huge pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>

#include "ggml-backend.h"

#include "engine/cpu/cpu.h"
#include "os/mem.h"

#define MIB (UINT64_C(1) << 20)

static struct mz_engine *engine;
static uint64_t page;

static int get_engine(void **state)
{
    (void)state;
    page = mz_os_page_bytes();
    ggml_backend_load_all(); /* the CPU, where backends are loadable modules */
    return mz_cpu_engine(&engine);
}

static uint64_t counted(struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    uint64_t resident, swapped;

    assert_int_equal(engine->ops->counted(engine, memory, offset, bytes, &resident, &swapped), 0);
    return resident + swapped;
}

static struct mz_memory *reserve(uint64_t bytes)
{
    struct mz_memory *memory = NULL;

    assert_int_equal(engine->ops->reserve(engine, bytes, true, &memory), 0);
    assert_int_equal(counted(memory, 0, bytes), 0);
    return memory;
}

static void commit(struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    assert_int_equal(engine->ops->commit(engine, memory, offset, bytes), 0);
}

static void release(struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    assert_int_equal(engine->ops->release(engine, memory, offset, bytes), 0);
}

static void test_one_engine(void **state)
{
    (void)state;
    struct mz_engine *again;

    assert_int_equal(mz_cpu_engine(&again), 0);
    assert_ptr_equal(again, engine);
    assert_int_equal(engine->ops->traits.granule_bytes, page);
}

static void test_whole_blocks(void **state)
{
    (void)state;
    struct mz_memory *memory = reserve(16 * MIB);
    unsigned char *base = engine->ops->base(memory);

    commit(memory, 4 * MIB, 8 * MIB);
    assert_int_equal(counted(memory, 0, 16 * MIB), 8 * MIB);
    memset(base + 4 * MIB, 7, 8 * MIB);
    release(memory, 6 * MIB, 2 * MIB);
    assert_int_equal(counted(memory, 0, 16 * MIB), 6 * MIB);
    assert_int_equal(base[6 * MIB - 1], 7);
    assert_int_equal(base[8 * MIB], 7);
    commit(memory, 6 * MIB, 2 * MIB);
    for (uint64_t i = 6 * MIB; i < 8 * MIB; i += 512)
        assert_int_equal(base[i], 0);
    engine->ops->unreserve(engine, memory);
}

/* Parts of huge pages go alone, in any order. */
static void test_ragged(void **state)
{
    (void)state;
    struct mz_memory *memory = reserve(8 * MIB);
    unsigned char *base = engine->ops->base(memory);

    commit(memory, 0, 8 * MIB);
    memset(base, 9, 8 * MIB);
    release(memory, 3 * page, 3 * MIB);
    assert_int_equal(counted(memory, 0, 8 * MIB), 5 * MIB);
    assert_int_equal(base[3 * page - 1], 9);
    assert_int_equal(base[3 * page + 3 * MIB], 9);
    release(memory, 0, 3 * page);
    assert_int_equal(counted(memory, 0, 8 * MIB), 5 * MIB - 3 * page);
    commit(memory, 3 * page, page);
    assert_int_equal(counted(memory, 0, 8 * MIB), 5 * MIB - 2 * page);
    release(memory, 0, 8 * MIB);
    assert_int_equal(counted(memory, 0, 8 * MIB), 0);
    engine->ops->unreserve(engine, memory);
}

/* A touch of one page, as a cache gets at its first token, takes no more than that; before anything was ever
 * committed there and after all of it was released. */
static void test_a_touch_is_a_page(void **state)
{
    (void)state;
    struct mz_memory *memory = reserve(8 * MIB);
    volatile unsigned char *base = engine->ops->base(memory);

    base[5 * MIB] = 1;
    assert_int_equal(counted(memory, 0, 8 * MIB), page);
    commit(memory, 0, 8 * MIB);
    assert_int_equal(base[5 * MIB], 1);
    release(memory, 0, 8 * MIB);
    base[MIB] = 1;
    assert_int_equal(counted(memory, 0, 8 * MIB), page);
    engine->ops->unreserve(engine, memory);
}

/* Two pieces that share a block, and are known of before the first is committed, get it as one. */
static void test_claimed_in_pieces(void **state)
{
    (void)state;
    struct mz_memory *memory = reserve(8 * MIB);

    engine->ops->claim(engine, memory, MIB, 4 * MIB);
    assert_int_equal(counted(memory, 0, 8 * MIB), 0);
    commit(memory, MIB, 2 * MIB);
    uint64_t bytes = counted(memory, 0, 8 * MIB);
    assert_int_equal(bytes, mz_os_huge_pages() && page == 4096 ? 3 * MIB : 2 * MIB);
    commit(memory, 3 * MIB, 2 * MIB);
    assert_int_equal(counted(memory, 0, 8 * MIB), 4 * MIB);
    release(memory, MIB, 4 * MIB);
    volatile unsigned char *base = engine->ops->base(memory);
    base[3 * MIB] = 1;
    assert_int_equal(counted(memory, 0, 8 * MIB), page);
    engine->ops->unreserve(engine, memory);
}

static void test_small_region(void **state)
{
    (void)state;
    struct mz_memory *memory = reserve(3 * page);

    commit(memory, 1, 1);
    assert_int_equal(counted(memory, 0, 3 * page), page);
    release(memory, 1, page); /* no whole page */
    assert_int_equal(counted(memory, 0, 3 * page), page);
    release(memory, 0, page);
    assert_int_equal(counted(memory, 0, 3 * page), 0);
    engine->ops->unreserve(engine, memory);
}

static void test_out_of_range(void **state)
{
    (void)state;
    struct mz_memory *memory = reserve(2 * MIB);
    uint64_t resident, swapped;

    assert_int_equal(engine->ops->commit(engine, memory, 2 * MIB, page), -ERANGE);
    assert_int_equal(engine->ops->release(engine, memory, page, UINT64_MAX), -ERANGE);
    assert_int_equal(engine->ops->counted(engine, memory, 3 * MIB, 1, &resident, &swapped), -ERANGE);
    engine->ops->unreserve(engine, memory);
    engine->ops->unreserve(engine, NULL);
}

/* ---- neighbours in the same blocks, from several threads */

#define THREADS 4
#define STEP    (300 * page)

struct worker {
    struct mz_memory *memory;
    uint64_t offset;
    int failures;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    unsigned char *base = engine->ops->base(worker->memory);

    for (int round = 0; round < 30; round++) {
        worker->failures += engine->ops->commit(engine, worker->memory, worker->offset, STEP) != 0;
        for (uint64_t i = 0; i < STEP; i += page) {
            worker->failures += base[worker->offset + i] != 0;
            base[worker->offset + i] = (unsigned char)(round + 1);
        }
        for (uint64_t i = 0; i < STEP; i += page)
            worker->failures += base[worker->offset + i] != round + 1;
        worker->failures += engine->ops->release(engine, worker->memory, worker->offset, STEP) != 0;
    }
    return NULL;
}

static void test_neighbours(void **state)
{
    (void)state;
    struct mz_memory *memory = reserve(THREADS * STEP);
    struct worker workers[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.memory = memory, .offset = (uint64_t)i * STEP};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    assert_int_equal(counted(memory, 0, THREADS * STEP), 0);
    engine->ops->unreserve(engine, memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_engine),   cmocka_unit_test(test_whole_blocks),
        cmocka_unit_test(test_ragged),       cmocka_unit_test(test_a_touch_is_a_page),
        cmocka_unit_test(test_claimed_in_pieces),
        cmocka_unit_test(test_small_region), cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_neighbours),
    };
    return cmocka_run_group_tests(tests, get_engine, NULL);
}
