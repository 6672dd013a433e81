/* Packed weights kept in the swap file: written once, read back as they were, and never needed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/state.h"
#include "fake_engine.h"
#include "fake_model.h"
#include "os/fault.h"

#define ALL_WEIGHTS (2 * MODEL_LAYERS * MODEL_WEIGHT_BYTES)

static void packed_model(struct model *model, bool origin)
{
    model_make(model, origin, true);
    assert_int_equal(mz_core_option_set(model->core, "repacked", "on"), 0);
    assert_int_equal(model_pass(model, 0, NULL, NULL), 0);
}

static void evict_all(struct model *model)
{
    assert_int_equal(mz_core_evict_to(model->core, 0, "test", NULL), 0);
    assert_int_equal(model_status(model).remaining_bytes, 0);
}

static void restore_all(struct model *model)
{
    assert_int_equal(mz_core_restore(model->core, true), 0);
    assert_int_equal(model_bytes(model, MZ_KIND_WEIGHT, "resident"), ALL_WEIGHTS);
}

static void written_once(void **state)
{
    (void)state;
    for (int origin = 0; origin < 2; origin++) {
        struct model model;
        struct mz_evict_report report;
        packed_model(&model, origin);
        uint64_t before = model_status(&model).store_written_bytes; /* without a file the plain bytes were */
        assert_int_equal(before, origin ? 0 : ALL_WEIGHTS);
        assert_int_equal(model_status(&model).store_packed_bytes, 0);
        assert_int_equal(model_status(&model).kind[MZ_KIND_WEIGHT].clean_bytes, 0);
        assert_int_equal(mz_core_evict_to(model.core, 0, "test", &report), 0);
        assert_int_equal(report.to_store_bytes, ALL_WEIGHTS);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(model_status(&model).store_written_bytes, before + ALL_WEIGHTS);
            assert_int_equal(model_status(&model).store_packed_bytes, ALL_WEIGHTS);
            assert_int_equal(mz_store_live_bytes(model.core->store), before + ALL_WEIGHTS);
            assert_int_equal(model_bytes(&model, MZ_KIND_WEIGHT, "store"), ALL_WEIGHTS);
            model_check_by_reading(&model); /* the plain bytes come from where they were */
            restore_all(&model);
            assert_int_equal(model_status(&model).kind[MZ_KIND_WEIGHT].clean_bytes, ALL_WEIGHTS);
            assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
            evict_all(&model);
        }
        model_free(&model);
    }
}

/* Each image with a byte turned. */
static void damage(struct model *model)
{
    const struct mz_file *file = mz_store_file(model->core->store);
    uint8_t block[4096];

    for (uint64_t at = 0; at < ALL_WEIGHTS; at += UINT64_C(1) << 20) {
        assert_int_equal(mz_file_read(file, block, sizeof(block), at), 0);
        block[77] ^= 1;
        assert_int_equal(mz_file_write(file, block, sizeof(block), at), 0);
    }
}

/* That they are noticed shows that images are what is read. */
static void damaged_images_are_made_again(void **state)
{
    (void)state;
    struct model model;
    packed_model(&model, true);
    evict_all(&model);
    damage(&model);
    restore_all(&model);
    assert_int_equal(model_status(&model).store_packed_bytes, 0);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    evict_all(&model);
    assert_int_equal(model_status(&model).store_packed_bytes, ALL_WEIGHTS);
    restore_all(&model);
    assert_int_equal(model_status(&model).store_packed_bytes, ALL_WEIGHTS);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

/* What could not be written comes from the model file; no more is tried until the option is set again. */
static void a_full_disk(void **state)
{
    (void)state;
    static const uint64_t nth[] = {1, 2, 7, 20};
    for (size_t i = 0; i < sizeof(nth) / sizeof(*nth); i++) {
        struct model model;
        packed_model(&model, true);
        mz_fault_plan(MZ_FAULT_WRITE, nth[i], ENOSPC, true);
        evict_all(&model);
        assert_true(mz_fault_count() > 0);
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
        uint64_t packed = model_status(&model).store_packed_bytes;
        assert_true(packed < ALL_WEIGHTS);
        assert_int_equal(mz_store_live_bytes(model.core->store), packed);
        assert_int_equal(model_status(&model).store_written_bytes, packed);
        restore_all(&model);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        evict_all(&model);
        assert_int_equal(model_status(&model).store_packed_bytes, packed);
        restore_all(&model);
        assert_int_equal(mz_core_option_set(model.core, "repacked", "on"), 0);
        evict_all(&model);
        assert_int_equal(model_status(&model).store_packed_bytes, ALL_WEIGHTS);
        restore_all(&model);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        model_free(&model);
    }
}

static void failing_reads(void **state)
{
    (void)state;
    struct model model;
    packed_model(&model, true);
    for (uint64_t nth = 1; nth < 12; nth += 2) {
        evict_all(&model);
        mz_fault_plan(MZ_FAULT_READ, nth, EIO, false);
        int err = mz_core_restore(model.core, true);
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
        assert_int_equal(err, 0);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    }
    model_free(&model);
}

static uint64_t dirty_bytes(struct model *model)
{
    struct mz_core_brief brief;

    mz_core_brief(model->core, &brief);
    return brief.dirty_bytes;
}

static void written_ahead(void **state)
{
    (void)state;
    struct model model;
    uint64_t written = 0;
    packed_model(&model, true);
    assert_int_equal(dirty_bytes(&model), ALL_WEIGHTS); /* what makes an idle process write ahead */
    assert_int_equal(mz_core_clean(model.core, UINT64_C(3) << 20, &written), 0);
    assert_int_equal(written, UINT64_C(3) << 20);
    assert_int_equal(mz_core_clean(model.core, UINT64_MAX, &written), 0);
    assert_int_equal(written, ALL_WEIGHTS - (UINT64_C(3) << 20));
    assert_int_equal(dirty_bytes(&model), 0);
    mz_fault_plan(MZ_FAULT_WRITE, 1, EIO, true);
    evict_all(&model);
    assert_int_equal(mz_fault_count(), 0);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    restore_all(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void ahead_on_a_full_disk(void **state)
{
    (void)state;
    struct model model;
    uint64_t written = 1;
    packed_model(&model, true);
    mz_fault_plan(MZ_FAULT_WRITE, 1, ENOSPC, true);
    assert_int_equal(mz_core_clean(model.core, UINT64_MAX, &written), 0); /* nothing is missing */
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(written, 0);
    assert_int_equal(model_status(&model).kind[MZ_KIND_WEIGHT].clean_bytes, ALL_WEIGHTS);
    evict_all(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void off_gives_the_disk_back(void **state)
{
    (void)state;
    for (int evicted = 0; evicted < 2; evicted++) {
        struct model model;
        packed_model(&model, true);
        evict_all(&model);
        if (!evicted)
            restore_all(&model);
        assert_int_equal(mz_core_option_set(model.core, "repacked", "off"), 0);
        assert_int_equal(model_status(&model).store_packed_bytes, 0);
        assert_int_equal(mz_store_live_bytes(model.core->store), 0);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        evict_all(&model);
        assert_int_equal(model_bytes(&model, MZ_KIND_WEIGHT, "file"), ALL_WEIGHTS);
        assert_int_equal(mz_store_live_bytes(model.core->store), 0);
        model_free(&model);
    }
}

static void another_layout(void **state)
{
    (void)state;
    struct model model;
    packed_model(&model, true);
    evict_all(&model);
    assert_int_equal(mz_tensor_set_form(model.weight[1][0], NULL), 0);
    assert_int_equal(model_status(&model).store_packed_bytes, ALL_WEIGHTS - MODEL_WEIGHT_BYTES);
    restore_all(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    evict_all(&model);
    assert_int_equal(mz_tensor_set_form(model.weight[1][0], fake_form()), 0);
    restore_all(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    evict_all(&model);
    assert_int_equal(model_status(&model).store_packed_bytes, ALL_WEIGHTS);
    model_check_by_reading(&model);
    model_free(&model);
}

static void under_a_limit(void **state)
{
    (void)state;
    struct model model;
    uint64_t floor = 0;
    packed_model(&model, true);
    (void)mz_core_limit(model.core, 1, &floor);
    assert_int_equal(mz_core_limit(model.core, floor + (UINT64_C(2) << 20), NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        assert_true(model_status(&model).ledger_bytes <= model_status(&model).limit_bytes);
        assert_true(model_status(&model).store_written_bytes <= ALL_WEIGHTS); /* each once */
    }
    assert_true(model_status(&model).store_packed_bytes > 0);
    model_free(&model);
}

/* What is read ahead makes room by what needs no writing: a weight whose image is to be written is none of that. */
static void room_ahead_writes_nothing(void **state)
{
    (void)state;
    struct model model;
    packed_model(&model, true);
    struct mz_core *core = model.core;
    pthread_mutex_lock(&core->lock);
    core->limit_bytes = mz_room_ledger(core);
    assert_int_equal(mz_room_make(core, MODEL_WEIGHT_BYTES, 1), -EAGAIN);
    pthread_mutex_unlock(&core->lock);
    assert_int_equal(model_status(&model).store_written_bytes, 0);
    pthread_mutex_lock(&core->lock);
    assert_true(mz_room_make(core, MODEL_WEIGHT_BYTES, 0) >= 0);
    pthread_mutex_unlock(&core->lock);
    assert_true(model_status(&model).store_packed_bytes > 0);
    model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_once),
        cmocka_unit_test(damaged_images_are_made_again),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(failing_reads),
        cmocka_unit_test(written_ahead),
        cmocka_unit_test(ahead_on_a_full_disk),
        cmocka_unit_test(off_gives_the_disk_back),
        cmocka_unit_test(another_layout),
        cmocka_unit_test(under_a_limit),
        cmocka_unit_test(room_ahead_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
