/* The gate: waiting, giving up, late pins, and evictions that want what computing holds. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/state.h"
#include "fake_model.h"
#include "os/fault.h"

static void written_model(struct model *model)
{
    model_make(model, true, false);
    for (uint32_t c = 0; c < 3; c++)
        model_write_chunk(model, c, (uint8_t)(20 + c));
    assert_int_equal(model_pass(model, 0, NULL, NULL), 0);
}

static bool give_up(void *user)
{
    atomic_int *asked = user;
    return atomic_fetch_add(asked, 1) >= 2;
}

static void abort_is_polled(void **state)
{
    (void)state;
    struct model model;
    atomic_int asked = 0;
    written_model(&model);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    mz_fault_slow_reads(300);
    assert_int_equal(model_pass(&model, 0, give_up, &asked), -ECANCELED);
    mz_fault_slow_reads(0);
    assert_true(atomic_load(&asked) >= 3);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

/* There is no memory for what a graph waits for, and it gives up: nobody looks for that memory any more. */
static void who_gives_up_wants_nothing(void **state)
{
    (void)state;
    struct model model;
    atomic_int asked = 0;
    written_model(&model);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    mz_fault_plan(MZ_FAULT_POPULATE, 1, ENOMEM, true);
    assert_int_equal(model_pass(&model, 0, give_up, &asked), -ECANCELED);
    pthread_mutex_lock(&model.core->lock);
    assert_null(model.core->want_head);
    pthread_mutex_unlock(&model.core->lock);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void nothing_is_held_after_an_error(void **state)
{
    (void)state;
    struct model model;
    written_model(&model);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    mz_fault_plan(MZ_FAULT_READ, 1, EIO, true);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), -EIO);
    assert_int_equal(mz_core_restore(model.core, true), -EIO); /* the rest of it fails too before the disk works again */
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    struct mz_core_status status = model_status(&model);
    assert_true(status.kind[MZ_KIND_WEIGHT].lost_bytes > 0);
    /* A lost unit never gives plausible bytes. */
    uint8_t byte = 0;
    int lost = 0;
    for (uint64_t at = 0; at < 2 * MODEL_LAYERS * MODEL_WEIGHT_BYTES; at += 1 << 20)
        if (mz_region_read(model.weights, at, &byte, 1) == -EIO) {
            assert_int_equal(byte, 0xFF);
            lost++;
        }
    assert_true(lost > 0);
    /* The disk works again: restoring tries once more. */
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_int_equal(model_status(&model).kind[MZ_KIND_WEIGHT].lost_bytes, 0);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

struct evictor {
    struct model *model;
    struct mz_evict_report report;
    atomic_bool done;
};

static void *evict_all(void *arg)
{
    struct evictor *evictor = arg;
    assert_int_equal(mz_core_evict_to(evictor->model->core, 0, "test", &evictor->report), 0);
    atomic_store(&evictor->done, true);
    return NULL;
}

static void pinned_units_stay_until_the_border(void **state)
{
    (void)state;
    struct model model;
    written_model(&model);
    struct mz_pin pin = {.unit = mz_tensor_unit(model.weight[0][0], 0)};
    struct evictor evictor = {.model = &model};
    pthread_t thread;
    assert_int_equal(mz_gate_pin(model.core, &pin, 1, NULL, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, evict_all, &evictor), 0);
    while (model_count(&model, MZ_KIND_WEIGHT, "resident") > 1 || !mz_gate_cut_wanted(model.core))
        usleep(1000);
    assert_false(atomic_load(&evictor.done));
    assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "resident"), 1);
    mz_gate_unpin(model.core, &pin, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "resident"), 0);
    assert_false(mz_gate_cut_wanted(model.core));
    model_free(&model);
}

static void try_and_late_pins(void **state)
{
    (void)state;
    struct model model;
    written_model(&model);
    struct mz_pin pin = {.unit = mz_tensor_unit(model.cache[1][0], 0)};
    assert_int_equal(mz_gate_try_pin(model.core, &pin, 1), 0);
    mz_gate_unpin(model.core, &pin, 1);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    assert_int_equal(mz_gate_try_pin(model.core, &pin, 1), -EAGAIN);
    assert_false(pin.held);
    assert_int_equal(mz_gate_pin_late(model.core, &pin, false, NULL, NULL), -EAGAIN);
    assert_int_equal(mz_gate_pin_late(model.core, &pin, true, NULL, NULL), 0);
    assert_true(pin.held);
    mz_gate_unpin(model.core, &pin, 1);
    assert_false(pin.held);
    model_free(&model);
}

static void wanted_units_come_without_a_graph(void **state)
{
    (void)state;
    struct model model;
    written_model(&model);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    struct mz_unit *units[] = {mz_tensor_unit(model.weight[3][1], 1), mz_tensor_unit(model.cache[0][1], 2)};
    mz_gate_want(model.core, units, 2);
    while (model_count(&model, MZ_KIND_WEIGHT, "resident") + model_count(&model, MZ_KIND_KV, "resident") < 2)
        usleep(1000);
    assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "resident"), 1);
    model_free(&model);
}

static void overlap_modes_give_the_same_bytes(void **state)
{
    (void)state;
    static const char *const overlaps[] = {"full", "none", "alloc-reload", "reload-prefill"};
    static const char *const paths[] = {"parallel", "sequential"};
    struct model model;
    written_model(&model);
    assert_int_equal(mz_core_option_set(model.core, "kv", "q8"), 0);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(mz_core_option_set(model.core, "overlap", overlaps[i % 4]), 0);
        assert_int_equal(mz_core_option_set(model.core, "paths", paths[i / 4 % 2]), 0);
        assert_int_equal(mz_core_option_set(model.core, "rule", i / 8 ? "published" : "exact"), 0);
        assert_int_equal(mz_core_evict_to(model.core, i % 3 * 3000, "test", NULL), 0);
        assert_int_equal(model_pass(&model, i == 7 ? 50 : 0, NULL, NULL), 0);
    }
    model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_is_polled),
        cmocka_unit_test(who_gives_up_wants_nothing),
        cmocka_unit_test(nothing_is_held_after_an_error),
        cmocka_unit_test(pinned_units_stay_until_the_border),
        cmocka_unit_test(try_and_late_pins),
        cmocka_unit_test(wanted_units_come_without_a_graph),
        cmocka_unit_test(overlap_modes_give_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
