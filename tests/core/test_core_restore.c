/* Restoring: the bytes are those that were evicted, or the unit is lost and says why; and it can be stopped anywhere.
 *
 * argv[1] "uring": only that all comes back, for a run in which io_uring is refused. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/restore.h"
#include "fake_model.h"
#include "os/fault.h"
#include "os/log.h"
#include "os/os.h"
#include "os/transfer.h"

#define MIB (UINT64_C(1) << 20)

extern char **environ;

static void written_model(struct model *model, bool origin, bool packed)
{
    model_make(model, origin, packed);
    for (uint32_t c = 0; c < 3; c++)
        model_write_chunk(model, c, (uint8_t)(40 + c));
    assert_int_equal(model_pass(model, 0, NULL, NULL), 0);
}

static void evict_all(struct model *model)
{
    assert_int_equal(mz_core_evict_to(model->core, 0, "test", NULL), 0);
    assert_int_equal(model_status(model).remaining_bytes, 0);
}

static void assert_all_back(struct model *model)
{
    struct mz_core_status status = model_status(model);
    assert_int_equal(status.kind[MZ_KIND_WEIGHT].resident_bytes, status.kind[MZ_KIND_WEIGHT].total_bytes);
    assert_int_equal(status.kind[MZ_KIND_KV].resident_bytes, status.kind[MZ_KIND_KV].total_bytes);
    assert_int_equal(status.total_bytes, status.kind[MZ_KIND_WEIGHT].total_bytes + status.kind[MZ_KIND_KV].total_bytes +
                                             status.kind[MZ_KIND_OTHER].total_bytes);
}

/* The messages of a test, one behind the other. */
static char said[16384];

static void hear(enum mz_log_level level, const char *text, void *user)
{
    size_t length = strlen(said);
    (void)level;
    (void)user;
    snprintf(said + length, sizeof(said) - length, "%s\n", text);
}

static void listen_again(void)
{
    mz_log_sink(NULL, NULL);
    said[0] = 0;
    mz_log_sink(hear, NULL);
}

static void assert_said(const char *text)
{
    mz_log_sink(NULL, NULL);
    if (!strstr(said, text))
        fail_msg("nobody said \"%s\", but:\n%s", text, said);
}

static void patch(const char *path, uint64_t offset, uint8_t flip)
{
    uint8_t byte = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= flip;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    assert_int_equal(close(fd), 0);
}

/* ---- looking */

static bool is_lost(struct model *model, const struct mz_unit *unit)
{
    pthread_mutex_lock(&model->core->lock);
    bool lost = unit->state == MZ_LOST;
    pthread_mutex_unlock(&model->core->lock);
    return lost;
}

/* The bytes of a unit are those, or it is lost and gives none. */
static bool unit_is_lost(struct model *model, struct mz_region *region, const struct mz_unit *unit, const uint8_t *right)
{
    uint64_t offset = mz_unit_offset(unit), bytes = mz_unit_bytes(unit);
    uint8_t *back = malloc(bytes);
    int err = mz_region_read(region, offset, back, bytes);
    bool lost = is_lost(model, unit);

    assert_int_equal(err, lost ? -EIO : 0);
    if (lost && (back[0] != 0xFF || memcmp(back, back + 1, bytes - 1) != 0))
        fail_msg("a lost unit gives bytes");
    if (!lost)
        assert_memory_equal(back, right + offset, bytes);
    free(back);
    return lost;
}

/* Units of the region that are lost; all others give the right bytes. */
static uint32_t count_lost(struct model *model, struct mz_region *region, const uint8_t *right)
{
    uint32_t lost = 0;

    for (uint32_t l = 0; l < MODEL_LAYERS; l++) {
        for (uint32_t w = 0; w < 2; w++) {
            struct mz_tensor *tensor = region == model->kv ? model->cache[l][w] : model->weight[l][w];
            for (uint32_t u = 0; u < mz_tensor_units(tensor); u++)
                lost += unit_is_lost(model, region, mz_tensor_unit(tensor, u), right);
        }
    }
    return lost;
}

static uint8_t *read_all(struct mz_region *region)
{
    uint8_t *bytes = malloc(mz_region_bytes(region));

    assert_non_null(bytes);
    assert_int_equal(mz_region_read(region, 0, bytes, mz_region_bytes(region)), 0);
    return bytes;
}

static uint32_t moving(struct model *model)
{
    return model_count(model, MZ_KIND_WEIGHT, "moving") + model_count(model, MZ_KIND_KV, "moving");
}

/* ---- the model file */

static void all_comes_back(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    for (int i = 0; i < 3; i++) {
        evict_all(&model);
        model_check_by_reading(&model);
        if (i == 1) {
            assert_int_equal(mz_core_restore(model.core, true), 0);
            assert_all_back(&model);
        }
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    }
    model_free(&model);
}

static void a_file_changed_in_place(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        struct model model;
        written_model(&model, true, packed);
        uint8_t *right = read_all(model.weights);
        uint64_t at = mz_tensor_offset(model.weight[2][0]) + 5 * MIB / 2;
        evict_all(&model);
        patch(model.file, at, 0x10);
        listen_again();
        assert_int_equal(mz_core_restore(model.core, true), -EIO);
        assert_said("blk.2.w0.weight");
        assert_said(model.file);
        assert_said("the file was changed");
        assert_int_equal(count_lost(&model, model.weights, right), 1);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), -EIO);
        patch(model.file, at, 0x10); /* put back as it was */
        assert_int_equal(mz_core_restore(model.core, true), 0);
        assert_all_back(&model);
        assert_int_equal(count_lost(&model, model.weights, right), 0);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        free(right);
        model_free(&model);
    }
}

/* Found by reading through, too; nothing was brought back then. */
static void a_changed_file_is_read(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    uint8_t *right = read_all(model.weights);
    evict_all(&model);
    patch(model.file, 3 * MIB, 1);
    listen_again();
    assert_int_equal(count_lost(&model, model.weights, right), 1);
    assert_said("blk.0.w0.weight");
    assert_said("its checksum does not match");
    assert_int_equal(model_status(&model).remaining_bytes, 0);
    patch(model.file, 3 * MIB, 1);
    free(right);
    model_free(&model);
}

static void a_truncated_file(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    uint8_t *right = read_all(model.weights);
    uint32_t expected = 0;
    for (uint32_t l = 0; l < MODEL_LAYERS; l++)
        for (uint32_t w = 0; w < 2; w++)
            for (uint32_t u = 0; u < mz_tensor_units(model.weight[l][w]); u++) {
                struct mz_unit *unit = mz_tensor_unit(model.weight[l][w], u);
                expected += mz_unit_offset(unit) + mz_unit_bytes(unit) > 17 * MIB + 100;
            }
    evict_all(&model);
    assert_int_equal(truncate(model.file, 17 * MIB + 100), 0);
    listen_again();
    assert_int_equal(mz_core_restore(model.core, true), -EIO);
    assert_said("cannot bring back blk.");
    assert_said(model.file);
    assert_int_equal(count_lost(&model, model.weights, right), expected);
    FILE *file = fopen(model.file, "r+b");
    assert_non_null(file);
    assert_int_equal(fwrite(right, 1, mz_region_bytes(model.weights), file), mz_region_bytes(model.weights));
    fclose(file);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    free(right);
    model_free(&model);
}

static void a_file_replaced_by_another(void **state)
{
    (void)state;
    struct model model;
    char other[128];
    written_model(&model, true, false);
    evict_all(&model);
    snprintf(other, sizeof(other), "%s/other", model.folder);
    FILE *file = fopen(other, "wb");
    assert_non_null(file);
    fputs("an update of the model", file);
    fclose(file);
    assert_int_equal(rename(other, model.file), 0);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    assert_int_equal(unlink(model.file), 0);
    evict_all(&model);
    model_check_by_reading(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

/* ---- the swap file and the stack */

static void patch_store(struct model *model, const struct mz_unit *unit, uint64_t at)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", mz_store_file(model->core->store)->fd);
    patch(path, unit->store_offset + at, 0x40);
}

/* One KV unit's copy is damaged: it is lost, the others are right, and writing it anew heals it. */
static void damage(const char *kv, bool on_stack, const char *what)
{
    struct model model;
    written_model(&model, true, false);
    struct mz_unit *unit = mz_tensor_unit(model.cache[1][0], 1);
    assert_int_equal(mz_core_option_set(model.core, "kv", kv), 0);
    for (uint32_t level = 10000; on_stack && !(unit->copies & MZ_COPY_STACK); level -= 100) {
        assert_true(level > 0);
        assert_int_equal(mz_core_evict_to(model.core, level, "test", NULL), 0);
    }
    if (!on_stack)
        evict_all(&model);
    uint8_t *right = read_all(model.kv);
    if (on_stack)
        ((uint8_t *)mz_stack_at(&unit->slot))[unit->slot.bytes / 2] ^= 0x40;
    else
        patch_store(&model, unit, (unit->image_bytes ? unit->image_bytes : mz_unit_bytes(unit)) / 2);
    listen_again();
    assert_int_equal(mz_core_restore(model.core, true), -EIO);
    assert_said("cache_k_l1[1]");
    assert_said(what);
    assert_said("its checksum does not match");
    assert_int_equal(count_lost(&model, model.kv, right), 1);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), -EIO);
    model_write_chunk(&model, 1, 41);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    free(right);
    model_free(&model);
}

static void a_damaged_swap_file(void **state)
{
    (void)state;
    damage("exact", false, "/var/tmp/mz-core-");
}

static void a_damaged_image_in_the_swap_file(void **state)
{
    (void)state;
    damage("q8", false, "/var/tmp/mz-core-");
}

static void a_damaged_stack(void **state)
{
    (void)state;
    damage("q8", true, "memory");
}

/* ---- reads that are short, fail once, or are slow */

static void short_and_failing_reads(void **state)
{
    (void)state;
    static const struct {
        uint64_t nth;
        int err;
        bool sticky;
    } plans[] = {{1, MZ_FAULT_SHORT, false}, {2, MZ_FAULT_SHORT, true}, {1, EIO, false}, {7, EIO, false}, {3, EINTR, false}};
    struct model model;
    written_model(&model, true, false);
    for (size_t i = 0; i < sizeof(plans) / sizeof(*plans); i++) {
        evict_all(&model);
        mz_fault_plan(MZ_FAULT_READ, plans[i].nth, plans[i].err, plans[i].sticky);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        assert_true(mz_fault_hits() > 0);
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    }
    model_free(&model);
}

static void again_after_errors(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        struct model model;
        written_model(&model, true, packed);
        evict_all(&model);
        mz_fault_plan(MZ_FAULT_READ, 1, EIO, true);
        listen_again();
        assert_int_equal(mz_core_restore(model.core, true), -EIO);
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
        assert_said("Input/output error");
        assert_said("mzcache log names it"); /* all are lost: a few are named */
        uint32_t named = 0;
        for (const char *at = said; (at = strstr(at, "cannot bring back")) != NULL; at++)
            named++;
        assert_true(named > 1 && named < 8);
        struct mz_core_status status = model_status(&model);
        assert_int_equal(status.kind[MZ_KIND_WEIGHT].lost_bytes, status.kind[MZ_KIND_WEIGHT].total_bytes);
        assert_int_equal(status.kind[MZ_KIND_WEIGHT].counted_bytes, 0); /* what holds nothing takes no memory */
        assert_int_equal(mz_core_restore(model.core, true), 0);
        assert_all_back(&model);
        assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
        model_free(&model);
    }
}

static void start_slowly(struct model *model)
{
    evict_all(model);
    mz_fault_slow_reads(200);
    assert_int_equal(mz_core_restore(model->core, false), 0);
    while (moving(model) == 0)
        usleep(1000);
}

static void interrupted_by_an_eviction(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    start_slowly(&model);
    evict_all(&model); /* waits for what is in flight, and for no more */
    mz_fault_slow_reads(0);
    assert_false(model_status(&model).restoring);
    model_check_by_reading(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

/* Idle time and the hold after use count from it, or the next idle step would take back at once what was asked for. */
static void asking_is_use(void **state)
{
    (void)state;
    struct model model;
    struct mz_core_brief brief;
    written_model(&model, true, false);
    evict_all(&model);
    uint64_t before = mz_os_now_ns();
    assert_int_equal(mz_core_restore(model.core, false), 0);
    mz_core_brief(model.core, &brief);
    assert_true(brief.last_use_ns >= before);
    before = mz_os_now_ns();
    assert_int_equal(mz_core_restore(model.core, true), 0);
    mz_core_brief(model.core, &brief);
    assert_true(brief.last_use_ns >= before);
    model_free(&model);
}

struct waiter {
    struct model *model;
    atomic_bool done;
    atomic_int err;
};

static void *wait_for_all(void *arg)
{
    struct waiter *waiter = arg;
    atomic_store(&waiter->err, mz_core_restore(waiter->model->core, true));
    atomic_store(&waiter->done, true);
    return NULL;
}

static void stopped(void **state)
{
    (void)state;
    struct model model;
    pthread_t thread;
    struct waiter waiter = {.model = &model};
    written_model(&model, true, false);
    start_slowly(&model);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_all, &waiter), 0);
    while (!atomic_load(&waiter.done)) { /* it may begin to wait after this stop, so once more */
        mz_core_restore_stop(model.core);
        usleep(1000);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&waiter.err), 0);
    while (moving(&model))
        usleep(1000);
    mz_fault_slow_reads(0);
    assert_false(model_status(&model).restoring);
    uint64_t remaining = model_status(&model).remaining_bytes;
    model_check_by_reading(&model);
    assert_int_equal(model_status(&model).remaining_bytes, remaining);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void destroyed_while_restoring(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    start_slowly(&model);
    for (uint32_t l = MODEL_LAYERS; l-- > 0;) { /* some of it stands in the queue */
        struct mz_unit *units[] = {mz_tensor_unit(model.cache[l][0], 0), mz_tensor_unit(model.cache[l][1], 1)};
        mz_gate_want(model.core, units, 2);
    }
    mz_region_destroy(model.kv);
    model.kv = NULL;
    mz_region_destroy(model.weights);
    model.weights = NULL;
    struct mz_core_status status = model_status(&model);
    assert_int_equal(status.total_bytes, 0);
    assert_int_equal(status.kind[MZ_KIND_WEIGHT].counted_bytes, 0);
    mz_fault_slow_reads(0);
    model_free(&model);
}

/* ---- no memory */

static void without_memory_nothing_is_lost(void **state)
{
    (void)state;
    struct model model;
    written_model(&model, true, false);
    evict_all(&model);
    mz_fault_plan(MZ_FAULT_POPULATE, 1, ENOMEM, true);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    for (int i = 0; i < 2000 && model_status(&model).remaining_bytes; i++)
        usleep(10000); /* a worker that wakes late tries once more */
    assert_int_equal(model_status(&model).remaining_bytes, 0);
    /* The workers do not try again and again. */
    uint64_t before, calls = mz_fault_count();
    do {
        before = calls;
        usleep(50000);
        calls = mz_fault_count();
    } while (calls != before);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_all_back(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static bool give_up(void *user)
{
    uint32_t *asked = user;
    return ++*asked > 1000; /* 20 s */
}

/* A unit that was wanted when its region was cleared can be wanted again. */
static void cleared_while_wanted(void **state)
{
    (void)state;
    struct model model;
    uint32_t asked = 0;
    written_model(&model, true, false);
    evict_all(&model);
    struct mz_unit *unit = mz_tensor_unit(model.cache[2][1], 2);
    mz_fault_plan(MZ_FAULT_POPULATE, 1, ENOMEM, true);
    mz_gate_want(model.core, &unit, 1);
    assert_int_equal(mz_region_clear(model.kv, 0), 0);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    model.written = 0;
    memset(model.seed, 0, sizeof(model.seed));
    model_check_by_reading(&model);
    for (uint32_t c = 0; c < 3; c++)
        model_write_chunk(&model, c, 66);
    evict_all(&model);
    struct mz_pin pin = {.unit = unit};
    assert_int_equal(mz_gate_pin(model.core, &pin, 1, give_up, &asked), 0);
    mz_gate_unpin(model.core, &pin, 1);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

/* ---- plain calls */

static void without_uring(void **state)
{
    (void)state;
    struct model model;
    setenv("MZ_URING", "off", 1);
    written_model(&model, true, false);
    unsetenv("MZ_URING");
    evict_all(&model);
    assert_int_equal(mz_core_restore(model.core, true), 0);
    assert_all_back(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

static void uring_is_refused(void **state)
{
    (void)state;
    struct model model;
    assert_false(mz_transfer_uring(NULL));
    written_model(&model, true, false);
    evict_all(&model);
    model_check_by_reading(&model);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

/* Whether it works is found out once in a process: this takes another one. */
static void with_uring_refused(void **state)
{
    (void)state;
    char *const argv[] = {"test_core_restore", "uring", NULL};
    pid_t child;
    int status = 0;
    setenv("MZ_FAULT", "uring:1:ENOSYS:sticky", 1);
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    unsetenv("MZ_FAULT");
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* What is brought back ahead of use is what the pass has ahead, also when the start of the model left meanwhile. */
static void ahead_of_where_the_pass_is(void **state)
{
    (void)state;
    struct model model;
    struct mz_job job = {.n = 0};
    model_make(&model, true, false);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    assert_int_equal(mz_core_evict_to(model.core, 0, "test", NULL), 0);
    pthread_mutex_lock(&model.core->lock); /* no worker picks meanwhile */
    for (uint32_t position = 0; position <= model.core->adopted; position++) {
        model.core->position = position;
        model.core->ahead = true;
        assert_true(mz_job_pick(model.core, MZ_PATH_STORAGE, &job));
        assert_int_equal(job.units[0]->order, position % model.core->adopted);
        model.core->ahead = false;
        for (uint32_t i = 0; i < job.n; i++)
            mz_unit_move(job.units[i], MZ_EVICTED);
    }
    pthread_mutex_unlock(&model.core->lock);
    assert_int_equal(model_pass(&model, 0, NULL, NULL), 0);
    model_free(&model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_comes_back),
        cmocka_unit_test(ahead_of_where_the_pass_is),
        cmocka_unit_test(a_file_changed_in_place),
        cmocka_unit_test(a_changed_file_is_read),
        cmocka_unit_test(a_truncated_file),
        cmocka_unit_test(a_file_replaced_by_another),
        cmocka_unit_test(a_damaged_swap_file),
        cmocka_unit_test(a_damaged_image_in_the_swap_file),
        cmocka_unit_test(a_damaged_stack),
        cmocka_unit_test(short_and_failing_reads),
        cmocka_unit_test(again_after_errors),
        cmocka_unit_test(interrupted_by_an_eviction),
        cmocka_unit_test(stopped),
        cmocka_unit_test(destroyed_while_restoring),
        cmocka_unit_test(without_memory_nothing_is_lost),
        cmocka_unit_test(cleared_while_wanted),
        cmocka_unit_test(asking_is_use),
        cmocka_unit_test(without_uring),
        cmocka_unit_test(with_uring_refused),
    };
    const struct CMUnitTest refused[] = {
        cmocka_unit_test(uring_is_refused),
    };
    if (argc > 1 && strcmp(argv[1], "uring") == 0)
        return cmocka_run_group_tests(refused, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
