/* Evicting: how much is freed, in which order, where it goes, and that all of it comes back. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "codec/codec.h"
#include "core/profile.h"
#include "core/profile_measure.h"
#include "core/restore.h"
#include "fake_engine.h"
#include "fake_model.h"
#include "os/fault.h"

#define MIB (UINT64_C(1) << 20)

static void written_model(struct model *model, bool origin, bool packed)
{
    model_make(model, origin, packed);
    for (uint32_t c = 0; c < 4; c++)
        model_write_chunk(model, c, (uint8_t)(10 + c));
    assert_int_equal(model_pass(model, 0, NULL, NULL), 0);
}

static void frees_what_was_asked(void **state)
{
    (void)state;
    static const uint64_t asked[] = {1, 4096, 100000, MIB, 3 * MIB + 1, 10 * MIB, 17 * MIB, 30 * MIB};
    struct model model;
    written_model(&model, true, false);
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        struct mz_evict_report report;
        uint64_t before = model_status(&model).kind[MZ_KIND_WEIGHT].counted_bytes + model_status(&model).kind[MZ_KIND_KV].counted_bytes;
        assert_int_equal(mz_core_evict(model.core, asked[i], "test", &report), 0);
        uint64_t after = model_status(&model).kind[MZ_KIND_WEIGHT].counted_bytes + model_status(&model).kind[MZ_KIND_KV].counted_bytes;
        assert_int_equal(before - after, report.freed_bytes);
        assert_true(report.freed_bytes >= asked[i]);
        assert_true(report.freed_bytes < asked[i] + 4 * MIB);
        assert_int_equal(mz_core_restore(model.core, true), 0);
        assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "file"), 0);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    }
    model_free(&model);
}

static void see_order(void *user, const struct mz_unit_view *view)
{
    /* Units still in memory come before all that left: backward-out. Exact: KV and weights by one order. */
    bool *left = user;
    if (view->kind != MZ_KIND_WEIGHT || strcmp(view->where, "empty") == 0)
        return;
    if (strcmp(view->where, "file") == 0)
        *left = true;
    else
        assert_false(*left);
}

static void weights_leave_backward(void **state)
{
    (void)state;
    struct model model;
    bool left = false;
    written_model(&model, true, false);
    assert_int_equal(mz_core_evict(model.core, 12 * MIB, "test", NULL), 0);
    mz_core_visit(model.core, see_order, &left);
    assert_true(left);
    model_free(&model);
}

static void every_level_comes_back(bool origin, bool packed, const char *kv)
{
    struct model model;
    written_model(&model, origin, packed);
    assert_int_equal(mz_core_option_set(model.core, "kv", kv), 0);
    for (uint32_t level = 0; level <= 10000; level += 1250) {
        struct mz_evict_report report;
        assert_int_equal(mz_core_evict_to(model.core, level, "test", &report), 0);
        struct mz_core_status status = model_status(&model);
        double share = (double)status.remaining_bytes / (double)status.total_bytes;
        assert_true(share <= level / 10000.0 + 1e-9);
        assert_true(share > level / 10000.0 - 10.0 * MIB / (double)status.total_bytes);
        model_check_by_reading(&model);
        assert_true(model_status(&model).remaining_bytes == status.remaining_bytes); /* reading brings nothing back */
        assert_int_equal(model_pass(&model, level == 5000 ? 77 : 0, NULL, NULL), 0);
        assert_int_equal(mz_core_restore(model.core, true), 0);
        assert_int_equal(model_status(&model).remaining_bytes >= model_status(&model).total_bytes, 1);
    }
    model_free(&model);
}

static void levels_from_file(void **state)
{
    (void)state;
    every_level_comes_back(true, false, "exact");
}

static void levels_without_origin(void **state)
{
    (void)state;
    every_level_comes_back(false, false, "exact");
}

static void levels_packed(void **state)
{
    (void)state;
    every_level_comes_back(true, true, "exact");
}

static void levels_packed_without_origin(void **state)
{
    (void)state;
    every_level_comes_back(false, true, "q8");
}

static void levels_with_stack(void **state)
{
    (void)state;
    every_level_comes_back(true, false, "q8");
}

/* Chunks that were written ahead and then went onto the stack leave it without another write. */
static void reports_what_was_written(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    assert_int_equal(mz_core_option_set(model.core, "kv", "q8"), 0);
    for (uint32_t round = 0; round < 4; round++) {
        struct mz_evict_report report;
        uint64_t before = model_status(&model).store_written_bytes;
        assert_int_equal(mz_core_evict_to(model.core, 0, "test", &report), 0);
        assert_int_equal(report.to_store_bytes, model_status(&model).store_written_bytes - before);
        assert_int_equal(mz_core_restore(model.core, true), 0);
        assert_int_equal(mz_core_clean(model.core, UINT64_MAX, NULL), 0);
    }
    model_free(&model);
}

static void all_stages_pass(void **state)
{
    (void)state;
    struct model model;
    bool stack = false, sunk = false;
    written_model(&model, true, false);
    assert_int_equal(mz_core_option_set(model.core, "kv", "q8"), 0);
    for (uint32_t level = 9900; level <= 10000; level -= 100) {
        assert_int_equal(mz_core_evict_to(model.core, level, "test", NULL), 0);
        stack = stack || model_count(&model, MZ_KIND_KV, "stack") > 0;
        sunk = sunk || (stack && model_count(&model, MZ_KIND_KV, "stack") == 0);
        if (level == 0)
            break;
    }
    assert_true(stack);
    assert_true(sunk);
    assert_int_equal(model_status(&model).remaining_bytes, 0);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

/* The profile is read at the first eviction, or measured behind it. */
static struct mz_profile known_profile(struct model *model)
{
    struct mz_profile profile;

    do {
        usleep(10000);
        mz_core_profile(model->core, &profile);
    } while (profile.when == 0);
    return profile;
}

/* Measuring takes memory right after an eviction, which mostly means that there is none. */
static void measures_where_there_is_room(void **state)
{
    (void)state;
    struct model model;
    char folder[] = "/var/tmp/mz-profile-XXXXXX", path[4096], known[4096];
    assert_non_null(mkdtemp(folder));
    written_model(&model, true, false);
    snprintf(known, sizeof(known), "%s", getenv("XDG_CACHE_HOME"));
    setenv("XDG_CACHE_HOME", folder, 1); /* of a machine that was never measured */
    assert_int_equal(mz_core_option_set(model.core, "kv", "q8"), 0);
    uint64_t ledger = model_status(&model).ledger_bytes;
    assert_int_equal(mz_core_limit(model.core, ledger + MZ_PROFILE_MEMORY_BYTES / 2, NULL), 0);
    assert_int_equal(mz_core_evict(model.core, 1, "test", NULL), 0);
    assert_false(model.core->profile_started);
    /* Everything has left, but computing will need its part of the limit soon. */
    uint64_t floor = 0;
    (void)mz_core_limit(model.core, 1, &floor);
    assert_int_equal(mz_core_limit(model.core, floor + MZ_PROFILE_MEMORY_BYTES - MZ_MIB, NULL), 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    assert_false(model.core->profile_started);
    assert_int_equal(mz_core_limit(model.core, 0, NULL), 0);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_int_equal(mz_core_evict(model.core, 1, "test", NULL), 0);
    assert_true(model.core->profile_started);
    assert_true(model_status(&model).ledger_peak_bytes >= MZ_PROFILE_MEMORY_BYTES);
    struct mz_profile profile = known_profile(&model);
    while (model_status(&model).bounce_bytes > 0) /* workers rest, too */
        usleep(1000);
    assert_int_equal(mz_profile_path(profile.device, path, sizeof(path)), 0);
    model_free(&model); /* it is saved by now */
    assert_int_equal(unlink(path), 0);
    *strrchr(path, '/') = 0;
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
    setenv("XDG_CACHE_HOME", known, 1);
}

static void both_paths_are_learned_from(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    for (uint32_t c = 4; c < MODEL_CHUNKS; c++)
        model_write_chunk(&model, c, (uint8_t)(10 + c));
    assert_int_equal(mz_core_option_set(model.core, "kv", "q8"), 0);
    assert_int_equal(mz_core_evict(model.core, 1, "test", NULL), 0);
    struct mz_profile before = known_profile(&model), after;
    assert_int_equal(mz_core_restore(model.core, true), 0);
    uint64_t stacked = 0, stored = 0; /* less than 1 MiB teaches nothing */
    for (uint32_t level = 9000; level > 0 && (stacked < 2 * MIB || stored < 2 * MIB); level -= 500) {
        assert_int_equal(mz_core_evict_to(model.core, level, "test", NULL), 0);
        stacked = model_bytes(&model, MZ_KIND_KV, "stack");
        stored = model_bytes(&model, MZ_KIND_KV, "store") + model_bytes(&model, MZ_KIND_WEIGHT, "file");
    }
    assert_true(stacked >= 2 * MIB && stored >= 2 * MIB);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    mz_core_profile(model.core, &after);
    assert_true(after.read_factor != before.read_factor);
    assert_true(after.decode_factor[MZ_CODEC_Q8] != before.decode_factor[MZ_CODEC_Q8]);
    model_free(&model);
}

static void clean_copies_are_not_written_again(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    uint64_t written = model_status(&model).store_written_bytes;
    assert_true(written > 0);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    assert_int_equal(model_status(&model).store_written_bytes, written);
    assert_int_equal(model_pass(&model, 99, NULL, NULL), 0); /* writes one chunk of each cache */
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    assert_int_equal(model_status(&model).store_written_bytes, written + 2 * MODEL_LAYERS * MODEL_CHUNK_BYTES);
    model_free(&model);
}

static void sunk_images_are_not_written_again(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    assert_int_equal(mz_core_option_set(model.core, "kv", "q8"), 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    uint64_t written = model_status(&model).store_written_bytes;
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    assert_int_equal(model_status(&model).store_written_bytes, written);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void never_written_costs_nothing(void **state)
{
    (void)state;
    struct model model;
    model_make(&model, true, false);
    struct mz_core_status status = model_status(&model);
    assert_int_equal(status.kind[MZ_KIND_KV].counted_bytes, 0);
    assert_int_equal(status.kind[MZ_KIND_KV].total_bytes, 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    assert_int_equal(model_status(&model).store_written_bytes, 0);
    model_free(&model);
}

static void scratch_goes_first_but_not_what_is_kept(void **state)
{
    (void)state;
    struct model model;
    struct mz_evict_report report;
    char text[] = "an input of the next graph";
    char *scratch;
    model_make(&model, true, false);
    scratch = mz_region_base(model.scratch);
    memset(scratch, 1, 8 * MIB);
    assert_int_equal(mz_region_write(model.scratch, 3 * MIB, text, sizeof(text)), 0);
    assert_int_equal(mz_core_evict(model.core, 7 * MIB, "test", &report), 0);
    assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "file"), 0);
    assert_string_equal(scratch + 3 * MIB, text);
    assert_true(report.freed_bytes >= 7 * MIB && report.freed_bytes <= 8 * MIB - 4096);
    memset(scratch, 1, 8 * MIB);
    mz_region_keep(model.scratch, NULL, 0, true);
    assert_int_equal(mz_core_evict(model.core, MIB, "test", &report), 0);
    assert_int_equal(scratch[5 * MIB], 1);
    assert_true(model_count(&model, MZ_KIND_WEIGHT, "file") > 0);
    model_free(&model);
}

/* While all comes back, whole huge pages are committed, with memory of units whose turn has not come. */
static void early_memory_is_given_back(void **state)
{
    (void)state;
    struct model model;
    model_make_on(&model, fake_engine_without_traps(), true, false);
    model_write_chunk(&model, 0, 3);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
        struct mz_core_status status = model_status(&model);
        assert_int_equal(status.kind[MZ_KIND_WEIGHT].counted_bytes + status.kind[MZ_KIND_KV].counted_bytes, 0);
        assert_int_equal(status.ledger_bytes - status.bounce_bytes, status.kind[MZ_KIND_SCRATCH].total_bytes);
        mz_fault_slow_reads(10);
        assert_int_equal(mz_core_restore(model.core, false), 0);
        while (model_count(&model, MZ_KIND_WEIGHT, "resident") < 1 + (uint32_t)i)
            usleep(1000);
        mz_core_restore_stop(model.core);
        mz_fault_slow_reads(0);
    }
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

/* Freeing it is no reason to leave a unit in memory. */
static void early_memory_stands_for_no_unit(void **state)
{
    (void)state;
    struct model model;
    struct mz_pin pin = {.flags = MZ_PIN_READ};
    uint64_t lo, hi;
    model_make_on(&model, fake_engine_without_traps(), true, false);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    pin.unit = mz_tensor_unit(model.weight[0][0], 1); /* 1 MiB comes back, and 4 MiB are committed early */
    assert_int_equal(mz_gate_pin(model.core, &pin, 1, NULL, NULL), 0);
    mz_gate_unpin(model.core, &pin, 1);
    struct mz_unit *early = mz_tensor_unit(model.weight[3][1], 1);
    pthread_mutex_lock(&model.core->lock);
    mz_unit_span(early, &lo, &hi);
    mz_unit_early(early, true);
    pthread_mutex_unlock(&model.core->lock);
    assert_int_equal(hi - lo, 4 * MIB);
    assert_int_equal(mz_restore_commit(model.weights, lo, hi), 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    assert_int_equal(model_status(&model).remaining_bytes, 0);
    assert_int_equal(model_status(&model).kind[MZ_KIND_WEIGHT].counted_bytes, 0);
    model_free(&model);
}

static void more_than_there_is(void **state)
{
    (void)state;
    struct model model;
    struct mz_evict_report report;
    written_model(&model, true, false);
    assert_int_equal(mz_core_evict(model.core, UINT64_C(1) << 40, "test", &report), 0);
    assert_int_equal(report.remaining_bytes, 0);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void failing_writes_leave_kv_in_memory(void **state)
{
    (void)state;
    struct model model;
    struct mz_evict_report report;
    written_model(&model, true, false);
    mz_fault_plan(MZ_FAULT_WRITE, 1, ENOSPC, true);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", &report), 0);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(report.err, -ENOSPC);
    assert_int_equal(model_count(&model, MZ_KIND_KV, "store"), 0);
    assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "resident"), 0);
    assert_true(report.freed_bytes >= 2 * MODEL_LAYERS * MODEL_WEIGHT_BYTES);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void the_model_is_named(void **state)
{
    (void)state;
    struct model model;
    char path[96], none[96] = "?";
    model_make(&model, true, false);
    mz_core_model(model.core, path, sizeof path);
    assert_string_equal(path, model.file);
    mz_core_model(model.core, path, 3); /* does not fit */
    assert_string_equal(path, "");
    model_free(&model);
    model_make(&model, false, false); /* as without mmap */
    mz_core_model(model.core, none, sizeof none);
    assert_string_equal(none, "");
    model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frees_what_was_asked),
        cmocka_unit_test(weights_leave_backward),
        cmocka_unit_test(levels_from_file),
        cmocka_unit_test(levels_without_origin),
        cmocka_unit_test(levels_packed),
        cmocka_unit_test(levels_packed_without_origin),
        cmocka_unit_test(levels_with_stack),
        cmocka_unit_test(reports_what_was_written),
        cmocka_unit_test(all_stages_pass),
        cmocka_unit_test(measures_where_there_is_room),
        cmocka_unit_test(both_paths_are_learned_from),
        cmocka_unit_test(clean_copies_are_not_written_again),
        cmocka_unit_test(sunk_images_are_not_written_again),
        cmocka_unit_test(never_written_costs_nothing),
        cmocka_unit_test(scratch_goes_first_but_not_what_is_kept),
        cmocka_unit_test(early_memory_is_given_back),
        cmocka_unit_test(early_memory_stands_for_no_unit),
        cmocka_unit_test(more_than_there_is),
        cmocka_unit_test(failing_writes_leave_kv_in_memory),
        cmocka_unit_test(the_model_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
