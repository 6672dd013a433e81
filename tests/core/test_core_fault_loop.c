/* Every call to the system fails in turn, at every place of a whole life: load, write, evict, read, compute, restore, clear.
 *
 * The process lives; no step gives a wrong byte (it fails, or it is right); once the system works again everything
 * is restored and right, but for what was lost, and that gives no bytes. The default run takes a sample of the places;
 * argv[1] "all" takes all of them, a number takes that share (every n-th).
 *
 * The model is a small one, so that one life takes milliseconds. */
#include <errno.h>
#include <fcntl.h>
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

#include "core/core.h"
#include "fake_engine.h"
#include "fake_profile.h"
#include "os/fault.h"
#include "os/log.h"

#define KIB          UINT64_C(1024)
#define WEIGHTS      3u
#define WEIGHT_BYTES (128 * KIB)
#define CACHES       4u
#define CHUNKS       3u
#define CHUNK_BYTES  (32 * KIB)
#define CACHE_BYTES  (CHUNKS * CHUNK_BYTES)

#if defined(__SANITIZE_THREAD__)
#define SAMPLES 5u
#elif defined(__SANITIZE_ADDRESS__)
#define SAMPLES 12u
#else
#define SAMPLES 16u
#endif

static uint64_t every; /* n-th place; 0: SAMPLES of them */

/* A chunk holds the numbers of a seed; UNKNOWN after a write that failed. */
enum { NEVER = 0, UNKNOWN = 255 };

struct life {
    struct mz_core *core;
    struct mz_region *weights, *kv, *saved;
    struct mz_tensor *weight[WEIGHTS], *cache[CACHES], *copy;
    bool loaded[WEIGHTS];
    uint8_t seed[CACHES][CHUNKS];
    bool packed;
};

static char folder[] = "/var/tmp/mz-fault-XXXXXX";
static char path[64];
static struct fake_profile profile; /* so that no life measures the machine */
static uint8_t right[WEIGHTS][WEIGHT_BYTES];

static uint16_t number(uint8_t seed, uint64_t i)
{
    return seed == NEVER ? 0 : (uint16_t)(0x3C00u | ((seed * 37u + (uint32_t)(i % 97) * 8u) & 0x3F8u));
}

/* ---- steps; each returns 0 or the error that it met */

static int make(struct life *life)
{
    struct mz_core_config config = {.engine = fake_engine(), .swap_folder = folder, .workers = 2};
    int err = mz_core_create(&config, &life->core);

    if (!err)
        err = mz_region_create(life->core, WEIGHTS * WEIGHT_BYTES, MZ_KIND_WEIGHT, &life->weights);
    if (!err)
        err = mz_region_create(life->core, CACHES * CACHE_BYTES, MZ_KIND_KV, &life->kv);
    if (!err)
        err = mz_region_create(life->core, CACHE_BYTES, MZ_KIND_OTHER, &life->saved);
    return err;
}

static int load(struct life *life)
{
    struct stat st;
    static uint8_t bytes[WEIGHT_BYTES + 8192];
    uint8_t *plain = bytes + (4096 - (uintptr_t)bytes % 4096) % 4096;
    int first = 0;

    assert_int_equal(stat(path, &st), 0);
    for (uint32_t i = 0; i < WEIGHTS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "w%u", i);
        struct mz_tensor_desc desc = {.name = name, .offset = i * WEIGHT_BYTES, .bytes = WEIGHT_BYTES,
                                      .kind = MZ_KIND_WEIGHT, .cut_bytes = 64 * KIB, .layer = (int32_t)i};
        /* The last one has no file. */
        struct mz_origin origin = {.path = path, .dev = st.st_dev, .inode = st.st_ino, .offset = i * WEIGHT_BYTES};
        int err = mz_region_add(life->weights, &desc, &life->weight[i]);
        memcpy(plain, right[i], WEIGHT_BYTES);
        if (!err)
            err = mz_tensor_load(life->weight[i], plain, i + 1 < WEIGHTS ? &origin : NULL, life->packed ? fake_form() : NULL);
        life->loaded[i] = err == 0;
        first = first ? first : err;
    }
    return first;
}

static int add_caches(struct life *life)
{
    int first = 0;

    for (uint32_t i = 0; i <= CACHES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "cache_%u", i);
        struct mz_tensor_desc desc = {.name = name, .offset = i % CACHES * CACHE_BYTES, .bytes = CACHE_BYTES,
                                      .kind = i < CACHES ? MZ_KIND_KV : MZ_KIND_OTHER, .cut_bytes = CHUNK_BYTES,
                                      .row_bytes = 512, .layer = (int32_t)(i / 2), .is_v = i % 2, .fp16 = true};
        int err = mz_region_add(i < CACHES ? life->kv : life->saved, &desc, i < CACHES ? &life->cache[i] : &life->copy);
        first = first ? first : err;
    }
    return first;
}

static int write_chunks(struct life *life, uint32_t chunk, uint8_t seed)
{
    static uint16_t numbers[CHUNK_BYTES / 2];
    int first = 0;

    for (uint64_t i = 0; i < CHUNK_BYTES / 2; i++)
        numbers[i] = number(seed, i);
    for (uint32_t c = 0; c < CACHES; c++) {
        int err = life->cache[c] ? mz_region_write(life->kv, c * CACHE_BYTES + chunk * CHUNK_BYTES, numbers, CHUNK_BYTES) : 0;
        life->seed[c][chunk] = life->cache[c] ? (err ? UNKNOWN : seed) : NEVER;
        first = first ? first : err;
    }
    return first;
}

static void check_numbers(const uint16_t *at, uint8_t seed, const char *where)
{
    if (seed == UNKNOWN)
        return;
    for (uint64_t i = 0; i < CHUNK_BYTES / 2; i += 3)
        if (abs((int)at[i] - (int)number(seed, i)) > (seed ? 8 : 0))
            fail_msg("%s: a cache holds %x, expected %x", where, at[i], number(seed, i));
}

/* Reads through everything. Failing reads give no plausible bytes. */
static int read_through(struct life *life)
{
    static uint8_t bytes[WEIGHT_BYTES];
    int first = 0;

    for (uint32_t i = 0; i < WEIGHTS; i++) {
        int err = life->loaded[i] ? mz_region_read(life->weights, i * WEIGHT_BYTES, bytes, WEIGHT_BYTES) : 0;
        for (uint64_t at = 0; life->loaded[i] && at < WEIGHT_BYTES; at += 64 * KIB)
            if (memcmp(bytes + at, right[i] + at, 64 * KIB) != 0 && (!err || bytes[at] != 0xFF))
                fail_msg("reading a weight gave wrong bytes");
        first = first ? first : err;
    }
    for (uint32_t c = 0; c < CACHES; c++) {
        for (uint32_t k = 0; life->cache[c] && k < CHUNKS; k++) {
            int err = mz_region_read(life->kv, c * CACHE_BYTES + k * CHUNK_BYTES, bytes, CHUNK_BYTES);
            if (!err)
                check_numbers((uint16_t *)(void *)bytes, life->seed[c][k], "read");
            else
                assert_true(bytes[0] == 0xFF && bytes[CHUNK_BYTES - 1] == 0xFF);
            first = first ? first : err;
        }
    }
    return first;
}

/* Memory that never comes: the user gives up. */
static bool give_up(void *user)
{
    uint32_t *asked = user;
    return mz_fault_hits() > 0 && ++*asked > 2;
}

static uint32_t pins_of(struct life *life, uint32_t i, bool append, struct mz_pin *pins)
{
    uint32_t n = 0;

    for (uint32_t u = 0; life->loaded[i] && u < mz_tensor_units(life->weight[i]); u++)
        pins[n++] = (struct mz_pin){.unit = mz_tensor_unit(life->weight[i], u)};
    for (uint32_t u = 0; life->cache[i] && u < CHUNKS; u++)
        pins[n++] = (struct mz_pin){.unit = mz_tensor_unit(life->cache[i], u),
                                    .flags = append && u == CHUNKS - 1 ? MZ_PIN_WRITE : MZ_PIN_READ};
    return n;
}

static void compute(struct life *life, uint32_t i, uint8_t append)
{
    const uint8_t *weight = (uint8_t *)mz_region_base(life->weights) + i * WEIGHT_BYTES;
    uint16_t *cache = (uint16_t *)(void *)((uint8_t *)mz_region_base(life->kv) + i * CACHE_BYTES);
    uint8_t flip = life->loaded[i] && mz_tensor_form(life->weight[i]) ? 0x5A : 0;

    for (uint64_t at = 0; life->loaded[i] && at < WEIGHT_BYTES; at += 37)
        if ((weight[at] ^ flip) != right[i][at])
            fail_msg("computing saw a wrong weight");
    for (uint32_t k = 0; life->cache[i] && k < CHUNKS - (append != 0); k++)
        check_numbers(cache + k * CHUNK_BYTES / 2, life->seed[i][k], "computing");
    for (uint64_t at = 0; life->cache[i] && append && at < CHUNK_BYTES / 2; at++)
        cache[(CHUNKS - 1) * CHUNK_BYTES / 2 + at] = number(append, at);
    if (append && life->cache[i])
        life->seed[i][CHUNKS - 1] = append;
}

static int pass(struct life *life, uint8_t append)
{
    struct mz_lesson lessons[WEIGHTS * 8];
    struct mz_pin pins[8];
    uint32_t n, taught = 0;
    int err = 0;

    for (uint32_t i = 0; i < WEIGHTS; i++) {
        n = pins_of(life, i, false, pins);
        for (uint32_t k = 0; k < n; k++)
            lessons[taught++] = (struct mz_lesson){.unit = pins[k].unit, .layer = i};
    }
    mz_core_teach(life->core, lessons, taught);
    mz_gate_enter(life->core);
    for (uint32_t i = 0; i < WEIGHTS && !err; i++) {
        uint32_t asked = 0;
        n = pins_of(life, i, append != 0, pins);
        err = mz_gate_pin(life->core, pins, n, give_up, &asked);
        if (!err)
            compute(life, i, append);
        if (!err)
            mz_gate_unpin(life->core, pins, n);
        for (uint32_t k = 0; k < n; k++)
            assert_false(pins[k].held);
    }
    mz_gate_leave(life->core);
    return err;
}

static int reform(struct life *life)
{
    int first = 0;

    for (uint32_t i = 0; i < WEIGHTS; i++) {
        const struct mz_form *form = life->loaded[i] ? mz_tensor_form(life->weight[i]) : NULL;
        int err = life->loaded[i] ? mz_tensor_set_form(life->weight[i], form ? NULL : fake_form()) : 0;
        first = first ? first : err;
    }
    return first;
}

static int copy_cache(struct life *life)
{
    return life->cache[0] && life->copy ? mz_region_copy(life->saved, 0, life->kv, 0, CACHE_BYTES) : 0;
}

static int clear(struct life *life)
{
    int err = mz_region_clear(life->kv, 0);

    for (uint32_t c = 0; c < CACHES; c++)
        memset(life->seed[c], NEVER, CHUNKS);
    return err;
}

/* ---- one life */

/* All steps, each whether or not those before it failed. */
static void live(struct life *life)
{
    if (make(life) != 0)
        return;
    (void)load(life);
    (void)add_caches(life);
    (void)write_chunks(life, 0, 11);
    (void)write_chunks(life, 1, 22);
    (void)pass(life, 0);
    (void)mz_core_clean(life->core, 2 * CHUNK_BYTES, NULL);
    (void)mz_core_evict_to(life->core, 5000, "test", NULL);
    (void)pass(life, 0);
    (void)mz_core_evict_to(life->core, 0, "test", NULL);
    (void)read_through(life);
    (void)copy_cache(life);
    (void)pass(life, 33);
    (void)reform(life);
    (void)mz_core_option_set(life->core, "kv", "q8");
    (void)mz_core_evict_to(life->core, 2000, "test", NULL);
    (void)mz_core_evict_to(life->core, 0, "test", NULL);
    (void)read_through(life);
    (void)mz_core_restore(life->core, true);
    (void)write_chunks(life, 1, 44);
    (void)mz_core_evict(life->core, 100 * KIB, "test", NULL);
}

/* The system works again. */
static void recover(struct life *life)
{
    struct mz_core_status status;

    if (!life->core || !life->saved)
        return;
    assert_int_equal(mz_core_restore(life->core, true), 0); /* what was lost was lost for a while only */
    mz_core_status(life->core, &status);
    for (int kind = 0; kind < MZ_KINDS; kind++)
        assert_int_equal(status.kind[kind].lost_bytes, 0);
    assert_int_equal(pass(life, 0), 0);
    assert_int_equal(read_through(life), 0);
    assert_int_equal(mz_core_evict_to(life->core, 0, "test", NULL), 0);
    assert_int_equal(read_through(life), 0);
    assert_int_equal(clear(life), 0);
    assert_int_equal(read_through(life), 0);
    assert_int_equal(write_chunks(life, 0, 55), 0);
    assert_int_equal(pass(life, 66), 0);
}

static void end(struct life *life)
{
    mz_region_destroy(life->saved);
    mz_region_destroy(life->kv);
    mz_region_destroy(life->weights);
    mz_core_destroy(life->core);
}

/* Returns whether the failure came; with `calls` how many calls there were. */
static bool one_life(bool packed, uint64_t nth, int err, bool sticky, uint64_t *calls)
{
    struct life life = {.packed = packed};

    mz_fault_plan(MZ_FAULT_ANY, nth, err, sticky);
    live(&life);
    bool came = mz_fault_hits() > 0;
    if (calls)
        *calls = mz_fault_count();
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    recover(&life);
    end(&life);
    return came;
}

/* ---- the loop */

static uint32_t descriptors(void)
{
    uint32_t n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void loop(bool packed, int err, bool sticky)
{
    uint64_t calls = 0, lives = 0;

    (void)one_life(packed, UINT64_MAX, EIO, false, &calls);
    assert_true(calls > 100);
    uint32_t before = descriptors();
    uint64_t step = every ? every : calls / SAMPLES + 1;
    for (uint64_t nth = 1; one_life(packed, nth, err, sticky, NULL); nth += step)
        lives++;
    assert_true(lives >= (step == 1 ? calls / 2 : 2)); /* threads change the number of calls a little */
    assert_int_equal(descriptors(), before);
    print_message("%llu lives, each %llu-th of about %llu calls\n", (unsigned long long)lives, (unsigned long long)step,
                  (unsigned long long)calls);
}

static void one_after_the_other(void **state)
{
    (void)state;
    loop(false, EIO, false);
    loop(true, ENOMEM, false);
    loop(false, ENOSPC, false);
    loop(true, MZ_FAULT_SHORT, false);
}

static void and_all_that_follow(void **state)
{
    (void)state;
    loop(false, ENOMEM, true);
    loop(true, EIO, true);
    loop(true, ENOSPC, true);
    loop(false, MZ_FAULT_SHORT, true);
}

static void quiet(enum mz_log_level level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder) || fake_profile_make(&profile, 1, 4))
        return 1;
    snprintf(path, sizeof(path), "%s/weights", folder);
    for (uint32_t n = 0; n < WEIGHTS; n++)
        for (uint64_t i = 0; i < WEIGHT_BYTES; i++)
            right[n][i] = (uint8_t)(n * 83 + i * 7 + (i >> 8) * 11);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(right, 1, sizeof(right), file) != sizeof(right) || fclose(file) != 0)
        return 1;
    mz_log_sink(quiet, NULL); /* thousands of expected messages */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mz_log_sink(NULL, NULL);
    fake_profile_remove(&profile);
    unlink(path);
    return rmdir(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(and_all_that_follow),
    };
    if (argc > 1)
        every = strcmp(argv[1], "all") == 0 ? 1 : strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
