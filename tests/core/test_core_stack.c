/* The stack of compressed chunks: segments come and go with their slots, holes are used again, the spare
 * segment is there when memory is not, and no two slots share a byte. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/stack.h"
#include "os/fault.h"
#include "os/mem.h"

#define SEGMENT MZ_STACK_SEGMENT_BYTES
#define KIB     UINT64_C(1024)

static struct mz_stack *make(void)
{
    struct mz_stack *stack = NULL;
    assert_int_equal(mz_stack_create(&stack), 0);
    return stack;
}

static struct mz_slot reserve(struct mz_stack *stack, uint64_t bytes)
{
    struct mz_slot slot;
    assert_int_equal(mz_stack_reserve(stack, bytes, &slot), 0);
    assert_int_equal(slot.bytes, bytes);
    assert_int_equal((uintptr_t)mz_stack_at(&slot) % KIB, 0);
    return slot;
}

static void test_empty(void **state)
{
    (void)state;
    struct mz_stack *stack = make();
    struct mz_slot slot = {0};
    assert_int_equal(mz_stack_used_bytes(stack), 0);
    assert_int_equal(mz_stack_memory_bytes(stack), 0);
    assert_int_equal(mz_stack_reserve(stack, 0, &slot), -EINVAL);
    mz_stack_drop(stack, &slot); /* an empty record */
    assert_int_equal(mz_stack_memory_bytes(stack), 0);
    mz_stack_destroy(stack);
    mz_stack_destroy(NULL);
}

static void test_last_in_first_out(void **state)
{
    (void)state;
    enum { N = 50 };
    struct mz_stack *stack = make();
    struct mz_slot slots[N];
    for (int i = 0; i < N; i++) {
        slots[i] = reserve(stack, 300 * KIB);
        mz_stack_trim(stack, &slots[i], 160 * KIB + 1);
        memset(mz_stack_at(&slots[i]), i, slots[i].bytes);
    }
    assert_int_equal(mz_stack_used_bytes(stack), N * (160 * KIB + 1));
    /* 25 slots of 161 KiB to a segment, of which the last needs 300 KiB for a moment. */
    assert_true(mz_stack_memory_bytes(stack) <= 3 * SEGMENT);
    for (int i = N - 1; i >= 0; i--) {
        const uint8_t *at = mz_stack_at(&slots[i]);
        assert_int_equal(at[0], i);
        assert_int_equal(at[160 * KIB], i);
        mz_stack_drop(stack, &slots[i]);
        assert_null(slots[i].segment);
    }
    assert_int_equal(mz_stack_used_bytes(stack), 0);
    assert_int_equal(mz_stack_memory_bytes(stack), 0);
    mz_stack_destroy(stack);
}

static void test_memory_is_resident_and_goes(void **state)
{
    (void)state;
    struct mz_stack *stack = make();
    struct mz_slot slot = reserve(stack, 64 * KIB);
    const void *base = mz_stack_at(&slot); /* the first slot of a segment */
    uint64_t resident, swapped;
    assert_int_equal(mz_os_resident(base, SEGMENT, &resident, &swapped), 0);
    assert_int_equal(resident + swapped, mz_stack_memory_bytes(stack));
    mz_stack_drop(stack, &slot);
    assert_int_equal(mz_stack_memory_bytes(stack), 0);
    mz_stack_destroy(stack);
}

static void test_holes_are_used_again(void **state)
{
    (void)state;
    enum { N = 16 };
    struct mz_stack *stack = make();
    struct mz_slot slots[N];
    for (int i = 0; i < N; i++)
        slots[i] = reserve(stack, SEGMENT / N);
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT); /* exactly full */
    void *hole = mz_stack_at(&slots[5]);
    mz_stack_drop(stack, &slots[5]);
    mz_stack_drop(stack, &slots[6]);
    mz_stack_drop(stack, &slots[9]);
    struct mz_slot twice = reserve(stack, 2 * SEGMENT / N); /* two neighbours' room */
    assert_ptr_equal(mz_stack_at(&twice), hole);
    struct mz_slot once = reserve(stack, SEGMENT / N);
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT);
    struct mz_slot other = reserve(stack, KIB);
    assert_int_equal(mz_stack_memory_bytes(stack), 2 * SEGMENT);
    mz_stack_drop(stack, &other);
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT);
    mz_stack_trim(stack, &twice, 1); /* what trimming gives back is used too */
    other = reserve(stack, SEGMENT / N + SEGMENT / N - KIB);
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT);
    (void)once;
    mz_stack_destroy(stack); /* live slots included */
}

static void test_larger_than_a_segment(void **state)
{
    (void)state;
    struct mz_stack *stack = make();
    mz_stack_spare(stack, true);
    struct mz_slot slot = reserve(stack, SEGMENT + 1);
    uint64_t page = mz_os_page_bytes();
    assert_int_equal(mz_stack_memory_bytes(stack), 2 * SEGMENT + page);
    memset(mz_stack_at(&slot), 1, SEGMENT + 1);
    mz_stack_trim(stack, &slot, 100 * KIB);
    struct mz_slot more = reserve(stack, SEGMENT - 100 * KIB);
    assert_int_equal(mz_stack_memory_bytes(stack),
                     2 * SEGMENT + page); /* in the tail; the spare is untouched */
    mz_stack_drop(stack, &slot);
    mz_stack_drop(stack, &more);
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT);
    assert_int_equal(mz_stack_reserve(stack, UINT64_MAX, &slot), -ENOMEM);
    assert_int_equal(mz_stack_reserve(stack, UINT64_MAX / 2, &slot), -ENOMEM);
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT);
    mz_stack_destroy(stack);
}

static void test_spare(void **state)
{
    (void)state;
    struct mz_stack *stack = make();
    mz_stack_spare(stack, true);
    mz_stack_spare(stack, true);
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT);
    mz_fault_plan(MZ_FAULT_MMAP, 1, ENOMEM, true); /* no memory from here on */
    struct mz_slot slot = reserve(stack, SEGMENT), second;
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT);
    assert_int_equal(mz_stack_reserve(stack, KIB, &second), -ENOMEM);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    second = reserve(stack, KIB);
    assert_int_equal(mz_stack_memory_bytes(stack), 2 * SEGMENT);
    mz_stack_drop(stack, &slot); /* becomes the spare */
    assert_int_equal(mz_stack_memory_bytes(stack), 2 * SEGMENT);
    mz_stack_drop(stack, &second); /* one is enough */
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT);
    mz_stack_spare(stack, false);
    assert_int_equal(mz_stack_memory_bytes(stack), 0);
    mz_stack_destroy(stack);
}

/* Each call that can fail fails; nothing changes then, and the next attempt succeeds. */
static void test_faults(void **state)
{
    (void)state;
    static const enum mz_fault_kind kinds[] = {MZ_FAULT_ALLOC, MZ_FAULT_MMAP, MZ_FAULT_POPULATE};
    struct mz_stack *stack = NULL;
    mz_fault_plan(MZ_FAULT_ALLOC, 1, ENOMEM, false);
    assert_int_equal(mz_stack_create(&stack), -ENOMEM);
    assert_null(stack);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    stack = make();
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct mz_slot slot = {.offset = 77};
        mz_fault_plan(kinds[i], 1, ENOMEM, true);
        int r = mz_stack_reserve(stack, KIB, &slot);
        uint64_t hits = mz_fault_hits();
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
        assert_true(hits >= 1);
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(slot.offset, 77);
        assert_int_equal(mz_stack_memory_bytes(stack), 0);
        assert_int_equal(mz_stack_used_bytes(stack), 0);
        slot = reserve(stack, KIB);
        mz_stack_drop(stack, &slot);
        assert_int_equal(mz_stack_memory_bytes(stack), 0);
    }
    mz_fault_plan(MZ_FAULT_MMAP, 1, ENOMEM, true);
    mz_stack_spare(stack, true); /* says nothing; the next empty segment becomes it */
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(mz_stack_memory_bytes(stack), 0);
    struct mz_slot slot = reserve(stack, KIB);
    mz_stack_drop(stack, &slot);
    assert_int_equal(mz_stack_memory_bytes(stack), SEGMENT);
    mz_stack_destroy(stack);
}

/* -------------------------------------------------------------------------------- random use, by several
 * threads */

enum { HELD = 40 };

struct user {
    struct mz_stack *stack;
    uint64_t seed;
    uint32_t steps;
    bool bad;
};

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % n;
}

static bool holds(const struct mz_slot *slot, uint8_t mark)
{
    const uint8_t *at = mz_stack_at(slot);
    for (uint64_t i = 0; i < slot->bytes; i++)
        if (at[i] != mark)
            return false;
    return true;
}

/* Reserves, fills, trims and drops in any order; every byte must be what this thread wrote. */
static void *use(void *arg)
{
    struct user *user = arg;
    struct mz_slot slots[HELD] = {{0}};
    uint8_t marks[HELD] = {0};
    for (uint32_t step = 0; step < user->steps; step++) {
        uint32_t i = random_below(&user->seed, HELD);
        if (slots[i].segment) {
            user->bad |= !holds(&slots[i], marks[i]);
            mz_stack_drop(user->stack, &slots[i]);
            continue;
        }
        uint64_t bytes = 1 + random_below(&user->seed, 64 << 10);
        if (mz_stack_reserve(user->stack, bytes, &slots[i])) {
            user->bad = true;
            break;
        }
        marks[i] = (uint8_t)random_below(&user->seed, 256);
        memset(mz_stack_at(&slots[i]), marks[i], bytes);
        if (random_below(&user->seed, 2))
            mz_stack_trim(user->stack, &slots[i], 1 + random_below(&user->seed, (uint32_t)bytes));
    }
    for (uint32_t i = 0; i < HELD; i++) {
        user->bad |= slots[i].segment && !holds(&slots[i], marks[i]);
        mz_stack_drop(user->stack, &slots[i]);
    }
    return NULL;
}

static void test_random(void **state)
{
    (void)state;
    struct mz_stack *stack = make();
    struct user user = {.stack = stack, .seed = 1, .steps = 2000};
    use(&user);
    assert_false(user.bad);
    assert_int_equal(mz_stack_used_bytes(stack), 0);
    assert_int_equal(mz_stack_memory_bytes(stack), 0);
    mz_stack_destroy(stack);
}

static void test_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct mz_stack *stack = make();
    struct user users[THREADS];
    pthread_t threads[THREADS];
    mz_stack_spare(stack, true);
    for (int i = 0; i < THREADS; i++) {
        users[i] = (struct user){.stack = stack, .seed = (uint64_t)i + 7, .steps = 500};
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (int i = 0; i < 200; i++) {
        mz_stack_spare(stack, i % 2 == 1);
        (void)mz_stack_used_bytes(stack);
        assert_true(mz_stack_memory_bytes(stack) <=
                    (THREADS * HELD * 65 * KIB / SEGMENT + THREADS + 8) * SEGMENT);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(users[i].bad);
    }
    assert_int_equal(mz_stack_used_bytes(stack), 0);
    mz_stack_spare(stack, false);
    assert_int_equal(mz_stack_memory_bytes(stack), 0);
    mz_stack_destroy(stack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_last_in_first_out),
        cmocka_unit_test(test_memory_is_resident_and_goes),
        cmocka_unit_test(test_holes_are_used_again),
        cmocka_unit_test(test_larger_than_a_segment),
        cmocka_unit_test(test_spare),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
