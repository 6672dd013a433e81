/* Content: writing, filling, clearing, copying and reading of what is anywhere, and the layout of weights. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/state.h"
#include "fake_engine.h"
#include "fake_model.h"
#include "os/fault.h"

#define MIB (UINT64_C(1) << 20)

#if defined(__SANITIZE_THREAD__)
#define ROUNDS(n) ((n) / 3 + 1) /* each byte takes twenty times as long */
#else
#define ROUNDS(n) (n)
#endif

static void written_model(struct model *model, bool origin, bool packed)
{
    model_make(model, origin, packed);
    for (uint32_t c = 0; c < 3; c++)
        model_write_chunk(model, c, (uint8_t)(100 + c));
    assert_int_equal(model_pass(model, 0, NULL, NULL), 0);
}

static void evict_all(struct model *model)
{
    assert_int_equal(mz_core_evict_to(model->core, 0, "test", NULL), 0);
}

static uint8_t *read_all(struct mz_region *region)
{
    uint8_t *bytes = malloc(mz_region_bytes(region));

    assert_non_null(bytes);
    assert_int_equal(mz_region_read(region, 0, bytes, mz_region_bytes(region)), 0);
    return bytes;
}

static void assert_content(struct mz_region *region, const uint8_t *expected)
{
    uint8_t *bytes = read_all(region);

    assert_memory_equal(bytes, expected, mz_region_bytes(region));
    free(bytes);
}

static uint64_t cache_at(const struct model *model, uint32_t layer, uint32_t which, uint32_t chunk)
{
    return mz_tensor_offset(model->cache[layer][which]) + chunk * MODEL_CHUNK_BYTES;
}

/* From here on reads are counted. */
static void count_reads(void)
{
    mz_fault_plan(MZ_FAULT_READ, UINT64_MAX, EIO, false);
}

static uint64_t reads_counted(void)
{
    uint64_t reads = mz_fault_count();
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    return reads;
}

/* ---- writing */

static void parts_of_what_is_evicted(void **state)
{
    (void)state;
    static const char *const formats[] = {"exact", "q8"};
    for (int i = 0; i < 2; i++) {
        struct model model;
        uint8_t bytes[5000];
        written_model(&model, true, false);
        assert_int_equal(mz_core_option_set(model.core, "kv", formats[i]), 0);
        evict_all(&model);
        uint8_t *expected = read_all(model.kv);
        memset(bytes, 0x3C, sizeof(bytes));
        uint64_t at = cache_at(&model, 2, 0, 1) - 2000; /* into two chunks */
        assert_int_equal(mz_region_write(model.kv, at, bytes, sizeof(bytes)), 0);
        memcpy(expected + at, bytes, sizeof(bytes));
        assert_int_equal(model_count(&model, MZ_KIND_KV, "resident"), 2);
        assert_content(model.kv, expected);
        assert_int_equal(mz_core_option_set(model.core, "kv", "exact"), 0);
        evict_all(&model);
        assert_content(model.kv, expected);
        assert_int_equal(model_count(&model, MZ_KIND_KV, "resident"), 0);
        free(expected);
        model_free(&model);
    }
}

static void whole_units_need_nothing_back(void **state)
{
    (void)state;
    struct model model;
    uint8_t *bytes = malloc(2 * MODEL_CHUNK_BYTES);
    written_model(&model, true, false);
    evict_all(&model);
    uint8_t *expected = read_all(model.kv);
    uint64_t at = cache_at(&model, 1, 1, 0), live = mz_store_live_bytes(model.core->store);
    mz_fault_plan(MZ_FAULT_READ, 1, EIO, true);
    memset(bytes, 0x3D, 2 * MODEL_CHUNK_BYTES);
    assert_int_equal(mz_region_write(model.kv, at, bytes, 2 * MODEL_CHUNK_BYTES), 0);
    assert_int_equal(mz_region_fill(model.kv, at + 2 * MODEL_CHUNK_BYTES, 0x3E, MODEL_CHUNK_BYTES), 0);
    assert_int_equal(mz_region_fill(model.kv, cache_at(&model, 0, 0, 0), 0, MODEL_CHUNK_BYTES), 0);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(mz_store_live_bytes(model.core->store), live - 4 * MODEL_CHUNK_BYTES);
    memset(expected + at, 0x3D, 2 * MODEL_CHUNK_BYTES);
    memset(expected + at + 2 * MODEL_CHUNK_BYTES, 0x3E, MODEL_CHUNK_BYTES);
    memset(expected + cache_at(&model, 0, 0, 0), 0, MODEL_CHUNK_BYTES);
    assert_true(mz_unit_is_empty(mz_tensor_unit(model.cache[0][0], 0))); /* zeros take no memory */
    assert_content(model.kv, expected);
    evict_all(&model);
    assert_content(model.kv, expected);
    free(expected);
    free(bytes);
    model_free(&model);
}

static void filling(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    evict_all(&model);
    uint8_t *expected = read_all(model.kv);
    uint64_t from = cache_at(&model, 1, 0, 1) + 77, bytes = 3 * MODEL_CHUNK_BYTES + 5;
    assert_int_equal(mz_region_fill(model.kv, from, 0xAB, bytes), 0);
    memset(expected + from, 0xAB, bytes);
    assert_content(model.kv, expected);
    assert_int_equal(mz_region_fill(model.kv, from + 1, 0, bytes - 2), 0);
    memset(expected + from + 1, 0, bytes - 2);
    evict_all(&model);
    assert_content(model.kv, expected);
    assert_int_equal(mz_region_fill(model.kv, 0, 1, UINT64_MAX), -ERANGE);
    assert_int_equal(mz_region_fill(model.kv, UINT64_MAX, 1, 2), -ERANGE);
    assert_int_equal(mz_region_write(model.kv, mz_region_bytes(model.kv) - 1, "ab", 2), -ERANGE);
    assert_int_equal(mz_region_read(model.kv, mz_region_bytes(model.kv) + 1, expected, 0), -ERANGE);
    assert_int_equal(mz_region_write(model.kv, mz_region_bytes(model.kv), "", 0), 0);
    free(expected);
    model_free(&model);
}

/* What lies between tensors is plain memory, but for the rest of their pages. */
static void gaps(void **state)
{
    (void)state;
    struct model model;
    struct mz_region *region = NULL;
    struct mz_tensor *tensor = NULL;
    static uint8_t bytes[4 * 65536], back[4 * 65536];
    written_model(&model, true, false);
    assert_int_equal(mz_region_create(model.core, sizeof(bytes), MZ_KIND_OTHER, &region), 0);
    for (uint64_t i = 0; i < 2; i++) {
        struct mz_tensor_desc desc = {.name = i ? "b" : "a", .offset = 65536 + i * 100000, .bytes = 65000,
                                      .kind = MZ_KIND_OTHER, .layer = -1};
        assert_int_equal(mz_region_add(region, &desc, &tensor), 0);
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 13 + i / 251);
    assert_int_equal(mz_region_write(region, 0, bytes, sizeof(bytes)), 0);
    memset(bytes + 65536 + 65000, 0, 131072 - 65536 - 65000); /* padding in the pages of tensors holds nothing */
    memset(bytes + 163840, 0, 165536 - 163840);
    memset(bytes + 165536 + 65000, 0, 233472 - 165536 - 65000);
    for (int evicted = 0; evicted < 2; evicted++) {
        if (evicted)
            evict_all(&model);
        assert_int_equal(mz_region_read(region, 0, back, sizeof(back)), 0);
        assert_memory_equal(back, bytes, sizeof(back));
    }
    assert_int_equal(mz_region_fill(region, 131072 - 10, 5, 163840 + 10 - 131072 + 10), 0);
    memset(bytes + 131072, 5, 163840 - 131072);
    assert_int_equal(mz_region_read(region, 0, back, sizeof(back)), 0);
    assert_memory_equal(back, bytes, sizeof(back));
    mz_region_destroy(region);
    model_free(&model);
}

/* ---- clearing */

static void assert_cleared(struct model *model)
{
    uint8_t *zeros = calloc(1, mz_region_bytes(model->kv));
    assert_content(model->kv, zeros);
    free(zeros);
    struct mz_core_status status = model_status(model);
    assert_int_equal(status.kind[MZ_KIND_KV].counted_bytes, 0);
    assert_int_equal(status.kind[MZ_KIND_KV].total_bytes, 0);
    assert_int_equal(mz_store_live_bytes(model->core->store), 0);
    assert_int_equal(status.stack_used_bytes, 0);
}

static void clear_and_use(struct model *model, uint8_t seed)
{
    assert_int_equal(mz_region_clear(model->kv, 0), 0);
    assert_cleared(model);
    memset(model->seed, 0, sizeof(model->seed));
    for (uint32_t c = 0; c < 3; c++)
        model_write_chunk(model, c, seed);
    assert_int_equal(model_pass(model, 0, NULL, NULL), 0);
}

static void clearing_what_is_anywhere(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    clear_and_use(&model, 1); /* in memory */
    evict_all(&model);
    clear_and_use(&model, 2); /* in the swap file */
    assert_int_equal(mz_core_clean(model.core, UINT64_MAX, NULL), 0);
    clear_and_use(&model, 3); /* in both */
    assert_int_equal(mz_core_option_set(model.core, "kv", "q8"), 0);
    for (uint32_t level = 10000; model_count(&model, MZ_KIND_KV, "stack") == 0; level -= 100) {
        assert_true(level > 0);
        assert_int_equal(mz_core_evict_to(model.core, level, "test", NULL), 0);
    }
    clear_and_use(&model, 4); /* on the stack */
    evict_all(&model);
    clear_and_use(&model, 5); /* images in the swap file */
    assert_int_equal(mz_region_clear(model.kv, 7), 0); /* another value is content */
    uint8_t *sevens = malloc(mz_region_bytes(model.kv));
    memset(sevens, 7, mz_region_bytes(model.kv));
    assert_content(model.kv, sevens);
    free(sevens);
    model_free(&model);
}

static void clearing_without_release(void **state)
{
    (void)state;
    struct model model;
    uint8_t *zeros;
    written_model(&model, true, false);
    assert_int_equal(mz_core_evict(model.core, 2 * MODEL_CHUNK_BYTES, "test", NULL), 0);
    mz_fault_plan(MZ_FAULT_MADVISE, 1, EINVAL, false);
    assert_int_equal(mz_region_clear(model.kv, 0), 0);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    zeros = calloc(1, mz_region_bytes(model.kv));
    assert_content(model.kv, zeros);
    assert_memory_equal(mz_region_base(model.kv), zeros, mz_region_bytes(model.kv));
    free(zeros);
    model_free(&model);
}

struct task {
    struct model *model;
    atomic_bool done;
};

static void *clear_it(void *arg)
{
    struct task *task = arg;
    assert_int_equal(mz_region_clear(task->model->kv, 0), 0);
    atomic_store(&task->done, true);
    return NULL;
}

/* A copy of a unit is being written (the test plays that): its extent is not given away meanwhile. */
static void clearing_waits_for_cleaning(void **state)
{
    (void)state;
    struct model model;
    pthread_t thread;
    struct task task = {.model = &model};
    written_model(&model, true, false);
    struct mz_unit *unit = mz_tensor_unit(model.cache[3][1], 2);
    pthread_mutex_lock(&model.core->lock);
    unit->cleaning = true;
    model.core->n_moving++;
    pthread_mutex_unlock(&model.core->lock);
    assert_int_equal(pthread_create(&thread, NULL, clear_it, &task), 0);
    while (model_count(&model, MZ_KIND_KV, "resident") > 1)
        usleep(1000);
    assert_false(atomic_load(&task.done));
    pthread_mutex_lock(&model.core->lock);
    unit->cleaning = false;
    model.core->n_moving--;
    pthread_cond_broadcast(&model.core->changed);
    pthread_mutex_unlock(&model.core->lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_cleared(&model);
    model_free(&model);
}

/* ---- copying */

static void copies_keep_what_was_never_written(void **state)
{
    (void)state;
    struct model model, *m = &model;
    struct mz_region *region = NULL;
    struct mz_tensor *tensors[2 * MODEL_LAYERS];
    written_model(m, true, false);
    evict_all(m);
    uint8_t *expected = read_all(m->kv);
    assert_int_equal(mz_region_create(m->core, mz_region_bytes(m->kv), MZ_KIND_OTHER, &region), 0);
    for (uint32_t i = 0; i < 2 * MODEL_LAYERS; i++) {
        struct mz_tensor_desc desc = {.name = "saved", .offset = i * MODEL_CHUNKS * MODEL_CHUNK_BYTES,
                                      .bytes = MODEL_CHUNKS * MODEL_CHUNK_BYTES, .kind = MZ_KIND_OTHER,
                                      .cut_bytes = MODEL_CHUNK_BYTES, .layer = -1};
        assert_int_equal(mz_region_add(region, &desc, &tensors[i]), 0);
    }
    assert_int_equal(mz_region_fill(region, 5 * MODEL_CHUNK_BYTES, 9, MODEL_CHUNK_BYTES), 0); /* copied over by zeros */
    expected[5 * MODEL_CHUNK_BYTES] = 0;
    assert_int_equal(mz_region_copy(region, 0, m->kv, 0, mz_region_bytes(m->kv)), 0);
    assert_content(region, expected);
    assert_int_equal(model_count(m, MZ_KIND_KV, "resident"), 0); /* nothing came back for it */
    for (uint32_t i = 0; i < 2 * MODEL_LAYERS; i++)
        for (uint32_t u = 0; u < MODEL_CHUNKS; u++)
            if (i > 0 || u != 5)
                assert_int_equal(mz_unit_is_empty(mz_tensor_unit(tensors[i], u)), u >= 3);
    /* A part, to elsewhere. */
    uint64_t at = 11 * MODEL_CHUNK_BYTES + 3, bytes = 2 * MODEL_CHUNK_BYTES + 1;
    assert_int_equal(mz_region_copy(m->kv, at, region, 100, bytes), 0);
    memcpy(expected + at, expected + 100, bytes);
    assert_content(m->kv, expected);
    uint64_t size = mz_region_bytes(region);
    assert_int_equal(mz_region_copy(m->kv, 0, region, size, 1), -ERANGE);
    assert_int_equal(mz_region_copy(m->kv, 0, region, size - 1, 2), -ERANGE);
    assert_int_equal(mz_region_copy(m->kv, 0, region, size + 1, UINT64_MAX), -ERANGE);
    assert_int_equal(mz_region_copy(m->kv, size, region, 0, 4096), -ERANGE);
    mz_fault_plan(MZ_FAULT_ALLOC, 1, ENOMEM, false);
    assert_int_equal(mz_region_copy(m->kv, 0, region, 0, 1), -ENOMEM);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_content(m->kv, expected);
    mz_region_destroy(region);
    free(expected);
    model_free(m);
}

/* ---- reading */

static void small_pieces_take_one_read(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    evict_all(&model);
    uint8_t *expected = read_all(model.kv), piece[64];
    uint64_t from = cache_at(&model, 1, 1, 1);
    (void)mz_region_read(model.kv, 0, piece, 1); /* another unit is the last one read */
    count_reads();
    for (uint64_t at = from; at < from + MODEL_CHUNK_BYTES; at += sizeof(piece)) {
        assert_int_equal(mz_region_read(model.kv, at, piece, sizeof(piece)), 0);
        assert_memory_equal(piece, expected + at, sizeof(piece));
    }
    assert_int_equal(reads_counted(), 1);
    /* What was read last is not given for what was written since. */
    assert_int_equal(mz_region_fill(model.kv, from, 0x11, MODEL_CHUNK_BYTES), 0);
    evict_all(&model);
    assert_int_equal(mz_region_read(model.kv, from, piece, 1), 0);
    assert_int_equal(piece[0], 0x11);
    assert_int_equal(mz_region_write(model.kv, from, "\x22", 1), 0);
    assert_int_equal(mz_region_read(model.kv, from, piece, 2), 0);
    assert_true(piece[0] == 0x22 && piece[1] == 0x11);
    assert_int_equal(mz_region_clear(model.kv, 0), 0);
    assert_int_equal(mz_region_read(model.kv, from, piece, 1), 0);
    assert_int_equal(piece[0], 0);
    free(expected);
    model_free(&model);
}

/* What is read through takes no memory of the unit's own, and none is counted. */
static void reading_through_counts_nothing(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        struct model model;
        written_model(&model, true, packed);
        evict_all(&model);
        pthread_mutex_lock(&model.core->lock);
        uint64_t ledger = model.core->ledger_peak_bytes = mz_room_ledger(model.core);
        pthread_mutex_unlock(&model.core->lock);
        model_check_by_reading(&model);
        assert_int_equal(model_status(&model).ledger_peak_bytes, ledger);
        assert_int_equal(model_status(&model).remaining_bytes, 0);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        model_free(&model);
    }
}

static void an_unreadable_unit_among_others(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    uint8_t *expected = read_all(model.kv);
    evict_all(&model);
    uint8_t *bytes = malloc(mz_region_bytes(model.kv));
    mz_fault_plan(MZ_FAULT_READ, 1, EIO, true);
    assert_int_equal(mz_region_read(model.kv, cache_at(&model, 0, 1, 1), bytes, 10), -EIO);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(mz_region_read(model.kv, 0, bytes, mz_region_bytes(model.kv)), -EIO); /* the rest is right */
    memset(expected + cache_at(&model, 0, 1, 1), 0xFF, MODEL_CHUNK_BYTES);
    assert_memory_equal(bytes, expected, mz_region_bytes(model.kv));
    free(bytes);
    free(expected);
    model_free(&model);
}

/* What was rounded once is not rounded again, whichever way it goes later. */
static void losses_do_not_add_up(void **state)
{
    (void)state;
    static const char *const formats[] = {"q8", "exact", "q8", "q8", "exact"};
    static const uint32_t levels[] = {8800, 0, 8800, 0, 5000};
    struct model model;
    written_model(&model, true, false);
    assert_int_equal(mz_core_option_set(model.core, "kv", "q8"), 0);
    evict_all(&model);
    uint8_t *expected = read_all(model.kv);
    for (int i = 0; i < ROUNDS(10); i++) {
        assert_int_equal(mz_core_restore(model.core, true), 0);
        assert_content(model.kv, expected);
        assert_int_equal(mz_core_option_set(model.core, "kv", formats[i % 5]), 0);
        assert_int_equal(mz_core_evict_to(model.core, levels[i % 5], "test", NULL), 0);
        assert_content(model.kv, expected);
    }
    free(expected);
    model_free(&model);
}

/* ---- the layout of weights */

static void set_all(struct model *model, const struct mz_form *form)
{
    for (uint32_t l = 0; l < MODEL_LAYERS; l++)
        for (uint32_t w = 0; w < 2; w++) {
            assert_int_equal(mz_tensor_set_form(model->weight[l][w], form), 0);
            assert_ptr_equal(mz_tensor_form(model->weight[l][w]), form);
        }
}

static void both_layouts_and_back(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS(4); i++) {
        struct model model;
        written_model(&model, i / 2, i % 2);
        for (int round = 0; round < 3; round++) {
            set_all(&model, round % 2 == i % 2 ? fake_form() : NULL);
            if (round == 1)
                assert_int_equal(mz_core_restore(model.core, true), 0);
            if (round == 2)
                assert_int_equal(mz_core_evict_to(model.core, 3000, "test", NULL), 0);
            model_check_by_reading(&model);
            assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        }
        model_free(&model);
    }
}

static void stop_restoring(struct model *model)
{
    mz_core_restore_stop(model->core);
    while (model_count(model, MZ_KIND_WEIGHT, "moving") + model_count(model, MZ_KIND_KV, "moving") > 0)
        usleep(1000);
}

/* What could not be written or given back keeps its layout, and all of it. */
static void failing_changes_of_layout(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, false, false);
    static const struct {
        enum mz_fault_kind kind;
        uint64_t nth;
        int err;
    } plans[] = {{MZ_FAULT_WRITE, 1, ENOSPC}, {MZ_FAULT_WRITE, 2, EIO}, {MZ_FAULT_MADVISE, 1, EINVAL},
                 {MZ_FAULT_MADVISE, 3, EINVAL}};
    for (size_t i = 0; i < sizeof(plans) / sizeof(*plans); i++) {
        const struct mz_form *before = i % 2 && i > 1 ? fake_form() : NULL;
        set_all(&model, before);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        if (plans[i].kind == MZ_FAULT_WRITE) /* no copies yet */
            for (uint64_t at = 0; at < 2 * MODEL_WEIGHT_BYTES; at += 4096) {
                uint8_t byte;
                assert_int_equal(mz_region_read(model.weights, at, &byte, 1), 0);
                assert_int_equal(mz_region_write(model.weights, at, &byte, 1), 0);
            }
        stop_restoring(&model); /* what comes back meanwhile would fail, too */
        mz_fault_plan(plans[i].kind, plans[i].nth, plans[i].err, true);
        int err = mz_tensor_set_form(model.weight[0][0], before ? NULL : fake_form());
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
        assert_int_equal(err, -plans[i].err);
        assert_ptr_equal(mz_tensor_form(model.weight[0][0]), before);
        model_check_by_reading(&model);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    }
    model_free(&model);
}

static uint8_t *original; /* the bytes of the weights */

/* Computes with one tensor, as a second context does: what is held has one layout. */
static void *compute_with_it(void *arg)
{
    struct task *task = arg;
    struct mz_tensor *tensor = task->model->weight[1][0];
    const uint8_t *at = (uint8_t *)mz_region_base(task->model->weights) + mz_tensor_offset(tensor);
    const uint8_t *right = original + mz_tensor_offset(tensor);
    struct mz_pin pins[8];
    uint32_t n = mz_tensor_units(tensor);

    for (uint32_t round = 0; !atomic_load(&task->done); round++) {
        for (uint32_t u = 0; u < n; u++)
            pins[u] = (struct mz_pin){.unit = mz_tensor_unit(tensor, u)};
        assert_int_equal(mz_gate_pin(task->model->core, pins, n, NULL, NULL), 0);
        uint8_t flip = mz_tensor_form(tensor) ? 0x5A : 0;
        for (uint64_t i = round % 64; i < MODEL_WEIGHT_BYTES; i += 997)
            assert_int_equal(at[i] ^ flip, right[i]);
        mz_gate_unpin(task->model->core, pins, n);
        usleep(500);
    }
    return NULL;
}

static void *read_it(void *arg)
{
    struct task *task = arg;
    uint64_t from = mz_tensor_offset(task->model->weight[1][0]);
    uint8_t bytes[3000];

    for (uint64_t at = 0; !atomic_load(&task->done); at = (at + 777777) % (MODEL_WEIGHT_BYTES - sizeof(bytes))) {
        assert_int_equal(mz_region_read(task->model->weights, from + at, bytes, sizeof(bytes)), 0);
        assert_memory_equal(bytes, original + from + at, sizeof(bytes));
        usleep(300);
    }
    return NULL;
}

static void layouts_change_beside_readers(void **state)
{
    (void)state;
    struct model model;
    struct task task = {.model = &model};
    pthread_t threads[2];
    written_model(&model, false, false);
    original = read_all(model.weights);
    assert_int_equal(pthread_create(&threads[0], NULL, compute_with_it, &task), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, read_it, &task), 0);
    for (uint32_t i = 0; i < ROUNDS(12); i++) {
        assert_int_equal(mz_tensor_set_form(model.weight[1][0], i % 2 ? NULL : fake_form()), 0);
        if (i % 3 == 0)
            assert_int_equal(mz_core_restore(model.core, false), 0);
        if (i % 4 == 0)
            evict_all(&model);
    }
    atomic_store(&task.done, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    free(original);
    model_free(&model);
}

static void writing_makes_a_packed_weight_plain(void **state)
{
    (void)state;
    for (int evicted = 0; evicted < 2; evicted++) {
        struct model model;
        uint8_t bytes[100];
        written_model(&model, evicted, true);
        uint8_t *expected = read_all(model.weights);
        if (evicted)
            evict_all(&model);
        memset(bytes, 0x77, sizeof(bytes));
        uint64_t at = mz_tensor_offset(model.weight[2][1]) + MIB - 50;
        assert_int_equal(mz_region_write(model.weights, at, bytes, sizeof(bytes)), 0);
        memcpy(expected + at, bytes, sizeof(bytes));
        assert_null(mz_tensor_form(model.weight[2][1]));
        assert_ptr_equal(mz_tensor_form(model.weight[2][0]), fake_form());
        assert_content(model.weights, expected);
        evict_all(&model);
        assert_content(model.weights, expected);
        assert_int_equal(mz_tensor_set_form(model.weight[2][1], fake_form()), 0);
        assert_int_equal(mz_core_restore(model.core, true), 0);
        assert_content(model.weights, expected);
        free(expected);
        model_free(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_what_is_evicted),
        cmocka_unit_test(whole_units_need_nothing_back),
        cmocka_unit_test(filling),
        cmocka_unit_test(gaps),
        cmocka_unit_test(clearing_what_is_anywhere),
        cmocka_unit_test(clearing_without_release),
        cmocka_unit_test(clearing_waits_for_cleaning),
        cmocka_unit_test(copies_keep_what_was_never_written),
        cmocka_unit_test(small_pieces_take_one_read),
        cmocka_unit_test(reading_through_counts_nothing),
        cmocka_unit_test(an_unreadable_unit_among_others),
        cmocka_unit_test(losses_do_not_add_up),
        cmocka_unit_test(both_layouts_and_back),
        cmocka_unit_test(failing_changes_of_layout),
        cmocka_unit_test(layouts_change_beside_readers),
        cmocka_unit_test(writing_makes_a_packed_weight_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
