/* Limits: the ledger never exceeds one, not even at its peak, and a model larger than its limit goes on. */
#include <errno.h>
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

#include "core/restore.h"
#include "core/state.h"
#include "fake_engine.h"
#include "fake_model.h"

#define MIB (UINT64_C(1) << 20)

static void below_the_floor_is_refused(void **state)
{
    (void)state;
    struct model model;
    uint64_t floor = 0;
    model_make(&model, true, false);
    model_write_chunk(&model, 0, 5);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    assert_int_equal(mz_core_limit(model.core, 1 * MIB, &floor), -ERANGE);
    assert_true(floor > 8 * MIB);
    assert_int_equal(model_status(&model).limit_bytes, 0);
    assert_int_equal(mz_core_limit(model.core, floor, &floor), 0);
    assert_true(model_status(&model).ledger_bytes <= floor);
    model_free(&model);
}

/* A machine with many processors has many workers, of which two work under a limit. */
static void workers_do_not_raise_the_floor(void **state)
{
    (void)state;
    struct model model;
    model_make(&model, true, false);
    pthread_mutex_lock(&model.core->lock);
    uint64_t floor = mz_room_floor(model.core);
    model.core->n_workers += 5;
    uint64_t with_more = mz_room_floor(model.core);
    model.core->n_workers -= 5;
    pthread_mutex_unlock(&model.core->lock);
    assert_int_equal(with_more, floor);
    model_free(&model);
}

static void streaming_stays_below_the_limit(void **state)
{
    (void)state;
    struct model model;
    model_make(&model, true, false);
    for (uint32_t c = 0; c < 4; c++)
        model_write_chunk(&model, c, (uint8_t)(30 + c));
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    uint64_t floor = 0;
    (void)mz_core_limit(model.core, 1, &floor);
    assert_true(floor < model_status(&model).ledger_bytes);
    assert_int_equal(mz_core_limit(model.core, floor + 2 * MIB, NULL), 0);
    uint64_t before = model_status(&model).ledger_peak_bytes;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(model_pass(&model, i < 3 ? (uint8_t)(60 + i) : 0, NULL, NULL), 0);
        struct mz_core_status status = model_status(&model);
        assert_true(status.ledger_bytes <= status.limit_bytes);
        uint64_t counted = status.kind[MZ_KIND_WEIGHT].counted_bytes + status.kind[MZ_KIND_KV].counted_bytes;
        assert_true(counted <= status.limit_bytes);
    }
    assert_int_equal(model_status(&model).ledger_peak_bytes, before); /* it was reached before the limit was set */
    assert_true(model_count(&model, MZ_KIND_WEIGHT, "file") > 0);
    assert_int_equal(mz_core_restore(model.core, true), 0); /* as far as the limit allows */
    assert_true(model_status(&model).ledger_bytes <= model_status(&model).limit_bytes);
    assert_int_equal(mz_core_limit(model.core, 0, NULL), 0);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "file"), 0);
    model_free(&model);
}

/* Packed weights come through a buffer of each job, which the limit bounds like everything else. */
static void buffers_stay_below_the_limit(void **state)
{
    (void)state;
    struct model model;
    uint64_t floor = 0;

    model_make(&model, true, true);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    (void)mz_core_limit(model.core, 1, &floor);
    assert_int_equal(mz_core_limit(model.core, floor + 2 * MIB, NULL), 0);
    pthread_mutex_lock(&model.core->lock);
    model.core->ledger_peak_bytes = 0; /* that of the time before the limit */
    pthread_mutex_unlock(&model.core->lock);
    for (int i = 0; i < 6; i++)
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    struct mz_core_status status = model_status(&model);
    assert_true(status.read_bytes > 0);
    assert_true(status.ledger_peak_bytes > 0 && status.ledger_peak_bytes <= status.limit_bytes);
    model_free(&model);
}

/* What fits stays: a pass reads what does not, and a window more, and not the whole model again. */
static void streaming_reads_what_does_not_fit(void **state)
{
    (void)state;
    struct model model;
    uint64_t floor = 0;
    model_make(&model, true, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    (void)mz_core_limit(model.core, 1, &floor);
    assert_int_equal(mz_core_limit(model.core, floor, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    struct mz_core_status before = model_status(&model);
    for (int i = 0; i < 10; i++)
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    uint64_t read = (model_status(&model).read_bytes - before.read_bytes) / 10;
    uint64_t over = before.total_bytes + mz_region_bytes(model.scratch) - floor;
    /* Each of two workers may have made room with two units where a smaller one would do. */
    if (read < over || read >= over + 16 * MIB)
        fail_msg("a pass reads %llu KiB, %llu KiB do not fit", (unsigned long long)read >> 10, (unsigned long long)over >> 10);
    model_free(&model);
}

/* The matrix that is used last is two units. Released one after the other they would split the huge page that they share. */
static void neighbours_leave_in_one_piece(void **state)
{
    (void)state;
    struct model model;
    model_make(&model, true, false);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    unsigned before = fake_engine_releases();
    pthread_mutex_lock(&model.core->lock);
    model.core->limit_bytes = mz_room_ledger(model.core);
    int made = mz_room_make(model.core, MODEL_WEIGHT_BYTES, 0);
    model.core->limit_bytes = 0;
    pthread_mutex_unlock(&model.core->lock);
    assert_int_equal(made, 1);
    assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "file"), 2);
    assert_int_equal(fake_engine_releases() - before, 1);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static uint32_t evicted(const struct mz_tensor *tensor)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < tensor->n; i++)
        n += tensor->units[i].state == MZ_EVICTED;
    return n;
}

/* How many units of each layer are evicted: weights, caches. */
static void assert_evicted(const struct model *model, const uint32_t (*want)[2])
{
    for (uint32_t l = 0; l < MODEL_LAYERS; l++) {
        assert_int_equal(evicted(model->weight[l][0]) + evicted(model->weight[l][1]), want[l][0]);
        assert_int_equal(evicted(model->cache[l][0]) + evicted(model->cache[l][1]), want[l][1]);
    }
}

/* Makes room for so many bytes in a core that is full, while the pass is to use the unit of that rank next. Nobody computes. */
static void make_room_at(struct mz_core *core, uint32_t rank, uint64_t bytes)
{
    pthread_mutex_lock(&core->lock);
    core->position = rank;
    core->limit_bytes = mz_room_ledger(core);
    int made = mz_room_make(core, bytes, 0);
    core->limit_bytes = 0;
    pthread_mutex_unlock(&core->lock);
    assert_int_equal(made, 1);
}

/* A model whose every unit is in memory and has a copy. Its workers have ended: nothing comes back by itself. */
static void clean_model(struct model *model)
{
    model_make(model, true, false);
    model_write_chunk(model, 0, 7);
    model_write_chunk(model, 1, 8);
    assert_int_equal(model_pass(model, 0, NULL, NULL), 0);
    assert_int_equal(mz_core_evict_to(model->core, 0, "test", NULL), 0);
    assert_int_equal(mz_core_restore(model->core, true), 0);
    assert_int_equal(model_pass(model, 0, NULL, NULL), 0);
    mz_restore_stop(model->core);
    assert_int_equal(model->core->n_evicted, 0);
}

/* Of what a pass has used, weights leave before the cache, latest first; then the cache of the layers used; what is used next
 * stays. */
static void weights_leave_before_the_cache(void **state)
{
    (void)state;
    struct model model;
    clean_model(&model);
    uint32_t third = model.weight[2][0]->units[0].order;
    make_room_at(model.core, third, 2 * MODEL_WEIGHT_BYTES);
    assert_evicted(&model, (const uint32_t[MODEL_LAYERS][2]){{0, 0}, {4, 0}, {0, 0}, {0, 0}});
    make_room_at(model.core, third, 2 * MODEL_WEIGHT_BYTES);
    assert_evicted(&model, (const uint32_t[MODEL_LAYERS][2]){{4, 0}, {4, 0}, {0, 0}, {0, 0}});
    model_check_by_reading(&model);
    model_free(&model);
}

/* Before a pass begins there is nothing that it used, and what it uses last goes. When it is through, it used everything. */
static void what_is_behind_at_the_ends_of_a_pass(void **state)
{
    (void)state;
    struct model model;
    clean_model(&model);
    struct mz_core *core = model.core;
    const struct mz_unit *last = core->sequence[core->adopted - 1];
    make_room_at(core, 0, mz_unit_span_bytes(last));
    assert_int_equal(last->state, MZ_EVICTED);
    make_room_at(core, core->adopted, 2 * MODEL_WEIGHT_BYTES);
    assert_evicted(&model, (const uint32_t[MODEL_LAYERS][2]){{0, 0}, {0, 0}, {0, 0}, {4, 1}});
    model_free(&model);
}

/* Room ahead is made for all that one read takes, however large the requests are. */
static void room_is_made_for_one_read(void **state)
{
    (void)state;
    struct model model;
    struct mz_job job = {0};
    clean_model(&model);
    struct mz_core *core = model.core;
    struct mz_unit *next = model.weight[3][0]->units;
    make_room_at(core, core->adopted, 2 * MODEL_WEIGHT_BYTES);
    assert_int_equal(next->state, MZ_EVICTED);
    pthread_mutex_lock(&core->lock);
    core->limit_bytes = mz_room_ledger(core);
    core->options.request_bytes = 2 * MZ_UNIT_BYTES;
    core->position = next->order;
    core->graphs++;
    core->ahead = true;
    bool picked = mz_job_pick(core, MZ_PATH_STORAGE, &job);
    assert_true(mz_room_ledger(core) <= core->limit_bytes);
    core->ahead = false;
    core->graphs--;
    core->limit_bytes = 0;
    for (uint32_t i = 0; i < job.n; i++)
        mz_unit_move(job.units[i], MZ_EVICTED);
    pthread_mutex_unlock(&core->lock);
    assert_true(picked && job.units[0] == next);
    assert_int_equal(job.n, 2);
    model_free(&model);
}

static void limit_below_the_need_is_raised(void **state)
{
    (void)state;
    struct model model;
    model_make(&model, true, false);
    uint64_t floor = 0;
    (void)mz_core_limit(model.core, 1, &floor); /* nothing was computed yet: the need is unknown */
    assert_int_equal(mz_core_limit(model.core, floor, NULL), 0);
    assert_int_equal(model_pass(&model, 9, NULL, NULL), 0);
    assert_true(model_status(&model).limit_bytes > floor);
    model_free(&model);
}

/* A machine with so much memory available, under a folder that is made; undone by machine_remove(). Waits until no reading of
 * another machine is used any more: 50 ms. */
static void machine_make(char *root, unsigned available_kib)
{
    char path[128];

    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof(path), "%s/proc", root);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "MemTotal: 1000000 kB\nMemFree: 1000 kB\nMemAvailable: %u kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
            available_kib);
    fclose(file);
    setenv("MZ_SYSROOT", root, 1);
    usleep(60000);
}

static void machine_remove(const char *root)
{
    char path[128];

    unsetenv("MZ_SYSROOT");
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    unlink(path);
    snprintf(path, sizeof(path), "%s/proc", root);
    rmdir(path);
    rmdir(root);
    usleep(60000);
}

/* A machine that has hardly anything left: restoring waits instead of calling the OOM killer. Less than a unit, since what is
 * made up does not shrink: each 50 ms as much could be taken again. */
static void headroom_is_respected(void **state)
{
    (void)state;
    struct model model;
    char root[] = "/var/tmp/mz-root-XXXXXX";
    model_make(&model, true, false);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    machine_make(root, 66000);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    machine_remove(root);
    assert_true(model_count(&model, MZ_KIND_WEIGHT, "file") > 0);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "file"), 0);
    model_free(&model);
}

/* What is to be kept for others stays theirs: nothing comes ahead of use, and a pass, which needs what it needs, leaves behind
 * no more than its last slice and the units on their way. */
static void what_others_keep_is_left_alone(void **state)
{
    (void)state;
    struct model model;
    char root[] = "/var/tmp/mz-root-XXXXXX";
    model_make(&model, true, false);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    uint64_t all = model_status(&model).total_bytes;
    machine_make(root, 500000);
    mz_core_keep(model.core, UINT64_C(500000) << 10);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_int_equal(model_status(&model).remaining_bytes, model_status(&model).floor_bytes);
    assert_int_equal(model_pass(&model, 1, NULL, NULL), 0);
    assert_true(model_status(&model).remaining_bytes < all / 2);
    mz_core_keep(model.core, 0);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_int_equal(model_count(&model, MZ_KIND_WEIGHT, "file"), 0);
    machine_remove(root);
    model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(below_the_floor_is_refused),
        cmocka_unit_test(workers_do_not_raise_the_floor),
        cmocka_unit_test(streaming_stays_below_the_limit),
        cmocka_unit_test(buffers_stay_below_the_limit),
        cmocka_unit_test(streaming_reads_what_does_not_fit),
        cmocka_unit_test(neighbours_leave_in_one_piece),
        cmocka_unit_test(weights_leave_before_the_cache),
        cmocka_unit_test(what_is_behind_at_the_ends_of_a_pass),
        cmocka_unit_test(room_is_made_for_one_read),
        cmocka_unit_test(limit_below_the_need_is_raised),
        cmocka_unit_test(headroom_is_respected),
        cmocka_unit_test(what_others_keep_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
