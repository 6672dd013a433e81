/* Everything at once: passes, evictions, restores, cleaning, reading, limits, from many threads. Every pass checks every
 * byte. argv[1]: seed, argv[2]: passes (a hundred and more find what the short run cannot). The thread sanitizer runs
 * this too. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_engine.h"
#include "fake_model.h"

#if defined(__SANITIZE_THREAD__)
#define PASSES 4
#else
#define PASSES 12
#endif

static uint32_t seed = 1, passes = PASSES;

struct stress {
    struct model model;
    atomic_bool stop;
    bool limits;
};

static uint32_t next(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 8;
}

static void *evictor(void *arg)
{
    struct stress *stress = arg;
    uint32_t random = seed * 3 + 1;

    while (!atomic_load(&stress->stop)) {
        switch (next(&random) % 4) {
        case 0:
            (void)mz_core_evict_to(stress->model.core, next(&random) % 10000, "stress", NULL);
            break;
        case 1:
            (void)mz_core_evict(stress->model.core, next(&random) % (20u << 20), "stress", NULL);
            break;
        case 2:
            (void)mz_core_evict_to(stress->model.core, 0, "stress", NULL);
            break;
        default:
            (void)mz_core_restore(stress->model.core, next(&random) % 2);
        }
        usleep(next(&random) % 4000);
    }
    return NULL;
}

static void *looker(void *arg)
{
    struct stress *stress = arg;
    uint32_t random = seed * 5 + 2;
    struct mz_core_status status;

    while (!atomic_load(&stress->stop)) {
        mz_core_status(stress->model.core, &status);
        assert_true(status.remaining_bytes <= status.total_bytes + (UINT64_C(32) << 20));
        (void)mz_core_clean(stress->model.core, next(&random) % (4u << 20), NULL);
        if (next(&random) % 8 == 0)
            mz_core_restore_stop(stress->model.core);
        usleep(next(&random) % 3000);
    }
    return NULL;
}

/* A second reader of the same weights, as another context would be. */
static void *reader(void *arg)
{
    struct stress *stress = arg;
    uint32_t random = seed * 7 + 3;
    uint8_t bytes[1000];

    while (!atomic_load(&stress->stop)) {
        uint64_t at = next(&random) % (2 * MODEL_LAYERS * MODEL_WEIGHT_BYTES - sizeof(bytes));
        assert_int_equal(mz_region_read(stress->model.weights, at, bytes, sizeof(bytes)), 0);
        usleep(next(&random) % 2000);
    }
    return NULL;
}

static void stress_with(struct mz_engine *engine, const char *kv, bool origin, bool packed, bool limits)
{
    struct stress stress = {.limits = limits};
    pthread_t threads[3];
    uint32_t random = seed;

    model_make_on(&stress.model, engine, origin, packed);
    assert_int_equal(mz_core_option_set(stress.model.core, "kv", kv), 0);
    model_write_chunk(&stress.model, 0, 1);
    assert_int_equal(pthread_create(&threads[0], NULL, evictor, &stress), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, looker, &stress), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, reader, &stress), 0);
    for (uint32_t i = 0; i < passes; i++) {
        bool append = next(&random) % 4 == 0 && stress.model.written + 1 < MODEL_CHUNKS;
        if (limits && i % 8 == 4) {
            uint64_t floor = 0;
            (void)mz_core_limit(stress.model.core, 1, &floor);
            (void)mz_core_limit(stress.model.core, i % 16 == 4 ? floor + (4u << 20) : 0, NULL);
        }
        assert_int_equal(model_pass(&stress.model, append ? (uint8_t)(2 + i % 200) : 0, NULL, NULL), 0);
    }
    atomic_store(&stress.stop, true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    model_free(&stress.model);
}

static void exact(void **state)
{
    (void)state;
    stress_with(fake_engine(), "exact", true, false, false);
}

static void stacked(void **state)
{
    (void)state;
    stress_with(fake_engine(), "q8", true, false, false);
}

static void packed(void **state)
{
    (void)state;
    stress_with(fake_engine(), "q8", false, true, false);
}

static void limited(void **state)
{
    (void)state;
    stress_with(fake_engine(), "exact", true, false, true);
}

static void whole_huge_pages(void **state)
{
    (void)state;
    stress_with(fake_engine_without_traps(), "q8", true, false, true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact),
        cmocka_unit_test(stacked),
        cmocka_unit_test(packed),
        cmocka_unit_test(limited),
        cmocka_unit_test(whole_huge_pages),
    };
    if (argc > 1)
        seed = (uint32_t)atoi(argv[1]);
    if (argc > 2)
        passes = (uint32_t)atoi(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
