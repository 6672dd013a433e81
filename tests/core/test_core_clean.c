/* Clean-ahead: copies are written in idle time, an eviction then writes nothing, writers wait, computing ends it. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/state.h"
#include "fake_model.h"
#include "os/fault.h"

#define MIB (UINT64_C(1) << 20)
#define ALL UINT64_MAX

static void written_model(struct model *model, bool origin)
{
    model_make(model, origin, false);
    for (uint32_t c = 0; c < 4; c++)
        model_write_chunk(model, c, (uint8_t)(70 + c));
    assert_int_equal(model_pass(model, 0, NULL, NULL), 0);
}

static void an_eviction_writes_nothing(void **state)
{
    (void)state;
    struct model model;
    uint64_t written = 0, again = 1;
    written_model(&model, true);
    uint64_t kv = model_status(&model).kind[MZ_KIND_KV].total_bytes;
    assert_int_equal(mz_core_clean(model.core, ALL, &written), 0);
    assert_int_equal(written, kv); /* weights have their file */
    struct mz_core_status status = model_status(&model);
    assert_int_equal(status.store_written_bytes, kv);
    assert_int_equal(status.kind[MZ_KIND_KV].clean_bytes, kv);
    assert_int_equal(status.kind[MZ_KIND_KV].resident_bytes, kv);
    assert_int_equal(mz_core_clean(model.core, ALL, &again), 0);
    assert_int_equal(again, 0);
    mz_fault_plan(MZ_FAULT_WRITE, 1, EIO, true);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    assert_int_equal(mz_fault_count(), 0);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(model_status(&model).store_written_bytes, kv);
    assert_int_equal(model_status(&model).remaining_bytes, 0);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

/* The last in the order first, and no more than was asked. */
static void the_coldest_first(void **state)
{
    (void)state;
    struct model model;
    uint64_t written = 0, units = 0;
    written_model(&model, false);
    uint64_t all = model_status(&model).kind[MZ_KIND_KV].total_bytes + model_status(&model).kind[MZ_KIND_WEIGHT].total_bytes;
    assert_int_equal(mz_core_clean(model.core, 0, &written), 0);
    assert_int_equal(written, 0);
    assert_int_equal(mz_core_clean(model.core, 3 * MODEL_CHUNK_BYTES, &written), 0);
    assert_int_equal(written, 3 * MODEL_CHUNK_BYTES);
    pthread_mutex_lock(&model.core->lock);
    for (uint32_t i = model.core->n_units; i-- > 0 && units < 3;) {
        const struct mz_unit *unit = model.core->sequence[i];
        units += unit->state == MZ_RESIDENT && mz_unit_bytes(unit) == MODEL_CHUNK_BYTES;
        if (unit->state == MZ_RESIDENT && mz_unit_bytes(unit) == MODEL_CHUNK_BYTES)
            assert_int_equal(unit->copies, MZ_COPY_STORE);
    }
    pthread_mutex_unlock(&model.core->lock);
    for (uint64_t sum = written; sum < all; sum += written) {
        assert_int_equal(mz_core_clean(model.core, 5 * MIB, &written), 0);
        assert_true(written > 0 && written <= 5 * MIB);
    }
    assert_int_equal(mz_core_clean(model.core, ALL, &written), 0);
    assert_int_equal(written, 0);
    model_free(&model);
}

static void what_is_written_is_dirty_again(void **state)
{
    (void)state;
    struct model model;
    uint64_t written = 0;
    written_model(&model, true);
    assert_int_equal(mz_core_clean(model.core, ALL, NULL), 0);
    model_write_chunk(&model, 2, 99);
    assert_int_equal(mz_core_clean(model.core, ALL, &written), 0);
    assert_int_equal(written, 2 * MODEL_LAYERS * MODEL_CHUNK_BYTES);
    assert_int_equal(mz_store_live_bytes(model.core->store), model_status(&model).kind[MZ_KIND_KV].total_bytes);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    model_check_by_reading(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void computing_ends_it(void **state)
{
    (void)state;
    struct model model;
    uint64_t written = 1;
    written_model(&model, true);
    mz_gate_enter(model.core);
    assert_int_equal(mz_core_clean(model.core, ALL, &written), 0);
    assert_int_equal(written, 0);
    mz_gate_leave(model.core);
    assert_int_equal(mz_core_option_set(model.core, "clean", "off"), 0);
    assert_int_equal(mz_core_clean(model.core, ALL, &written), 0);
    assert_int_equal(written, 0);
    assert_int_equal(mz_core_option_set(model.core, "clean", "on"), 0);
    struct mz_pin pin = {.unit = mz_tensor_unit(model.cache[0][0], 0)}; /* held by somebody: not now */
    assert_int_equal(mz_gate_pin(model.core, &pin, 1, NULL, NULL), 0);
    assert_int_equal(mz_core_clean(model.core, ALL, &written), 0);
    assert_int_equal(written, (8 * 4 - 1) * MODEL_CHUNK_BYTES);
    mz_gate_unpin(model.core, &pin, 1);
    model_free(&model);
}

/* ---- writers wait for the one write */

struct writer {
    struct model *model;
    struct mz_unit *unit;
    atomic_bool done;
};

static void *write_it(void *arg)
{
    struct writer *writer = arg;
    struct mz_pin pin = {.unit = writer->unit, .flags = MZ_PIN_WRITE};
    assert_int_equal(mz_gate_pin(writer->model->core, &pin, 1, NULL, NULL), 0);
    atomic_store(&writer->done, true);
    mz_gate_unpin(writer->model->core, &pin, 1);
    return NULL;
}

static void set_cleaning(struct model *model, struct mz_unit *unit, bool cleaning)
{
    pthread_mutex_lock(&model->core->lock);
    unit->cleaning = cleaning;
    model->core->n_moving += cleaning ? 1 : UINT32_MAX;
    pthread_cond_broadcast(&model->core->changed);
    pthread_mutex_unlock(&model->core->lock);
}

/* The write is played by the test, so that it takes as long as it likes. */
static void a_writer_waits(void **state)
{
    (void)state;
    struct model model;
    pthread_t thread;
    written_model(&model, true);
    struct writer writer = {.model = &model, .unit = mz_tensor_unit(model.cache[1][1], 2)};
    struct mz_pin pin = {.unit = writer.unit};
    set_cleaning(&model, writer.unit, true);
    assert_int_equal(mz_gate_try_pin(model.core, &pin, 1), 0); /* readers do not wait */
    mz_gate_unpin(model.core, &pin, 1);
    pin.flags = MZ_PIN_WRITE;
    assert_int_equal(mz_gate_try_pin(model.core, &pin, 1), -EAGAIN);
    assert_int_equal(pthread_create(&thread, NULL, write_it, &writer), 0);
    while (model_status(&model).gate_waits == 0)
        usleep(1000);
    assert_false(atomic_load(&writer.done));
    set_cleaning(&model, writer.unit, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&writer.done));
    model_free(&model);
}

static void *append_and_compute(void *arg)
{
    struct writer *writer = arg;
    for (uint8_t i = 0; i < 4; i++)
        assert_int_equal(model_pass(writer->model, (uint8_t)(80 + i), NULL, NULL), 0);
    atomic_store(&writer->done, true);
    return NULL;
}

/* Both at once: what was copied is what was checksummed. */
static void cleaning_beside_computing(void **state)
{
    (void)state;
    struct model model;
    pthread_t thread;
    struct writer writer = {.model = &model};
    written_model(&model, true);
    assert_int_equal(pthread_create(&thread, NULL, append_and_compute, &writer), 0);
    while (!atomic_load(&writer.done)) {
        assert_int_equal(mz_core_clean(model.core, MIB, NULL), 0);
        usleep(100);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(mz_core_clean(model.core, ALL, NULL), 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    model_check_by_reading(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void a_full_disk(void **state)
{
    (void)state;
    struct model model;
    uint64_t written = 0;
    written_model(&model, true);
    mz_fault_plan(MZ_FAULT_WRITE, 5, ENOSPC, true);
    assert_int_equal(mz_core_clean(model.core, ALL, &written), -ENOSPC);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(model_status(&model).kind[MZ_KIND_KV].clean_bytes, written);
    assert_int_equal(mz_store_live_bytes(model.core->store), written);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    uint64_t rest = 0;
    assert_int_equal(mz_core_clean(model.core, ALL, &rest), 0);
    assert_int_equal(written + rest, model_status(&model).kind[MZ_KIND_KV].total_bytes);
    model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_eviction_writes_nothing),
        cmocka_unit_test(the_coldest_first),
        cmocka_unit_test(what_is_written_is_dirty_again),
        cmocka_unit_test(computing_ends_it),
        cmocka_unit_test(a_writer_waits),
        cmocka_unit_test(cleaning_beside_computing),
        cmocka_unit_test(a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
