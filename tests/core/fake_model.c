#include "fake_model.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_engine.h"
#include "fake_profile.h"

/* Bytes of weights: position mixed with the tensor's number. */
static uint8_t weight_byte(uint32_t number, uint64_t i)
{
    uint64_t x = (i >> 3) * UINT64_C(0x9E3779B97F4A7C15) + number * UINT64_C(0xD1B54A32D192ED03);
    return (uint8_t)(x >> 33) ^ (uint8_t)i;
}

/* fp16 numbers between 1 and 2 with few bits, so that q8 keeps nearly all; position and seed tell them apart. */
static uint16_t kv_number(uint8_t seed, uint64_t i)
{
    return (uint16_t)(0x3C00u | ((seed * 37u + (uint32_t)(i % 97) * 8u) & 0x3F8u));
}

static uint32_t number_of(uint32_t layer, uint32_t which)
{
    return layer * 2 + which;
}

/* All weights as they should be, made once. */
static uint8_t *right;

static void make_right(void)
{
    right = malloc(2 * MODEL_LAYERS * MODEL_WEIGHT_BYTES);
    for (uint32_t n = 0; right && n < 2 * MODEL_LAYERS; n++)
        for (uint64_t i = 0; i < MODEL_WEIGHT_BYTES; i++)
            right[n * MODEL_WEIGHT_BYTES + i] = weight_byte(n, i);
}

static const uint8_t *right_weight(uint32_t number)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    assert_int_equal(pthread_once(&once, make_right), 0);
    assert_non_null(right);
    return right + number * MODEL_WEIGHT_BYTES;
}

static void fill_weight(uint8_t *to, uint32_t number)
{
    memcpy(to, right_weight(number), MODEL_WEIGHT_BYTES);
}

/* For all models of the process: one file, since direct reads of a new one would wait each time until it is on disk, and a machine
 * on which both paths are worth their while. */
static char shared_file[] = "/var/tmp/mz-weights-XXXXXX";
static struct fake_profile shared_profile;

static void remove_shared(void)
{
    unlink(shared_file);
    fake_profile_remove(&shared_profile);
}

static void make_shared(void)
{
    int fd = mkstemp(shared_file);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;

    assert_non_null(file);
    assert_int_equal(atexit(remove_shared), 0);
    assert_int_equal(fake_profile_make(&shared_profile, 1, 4), 0);
    assert_int_equal(fwrite(right_weight(0), MODEL_WEIGHT_BYTES, 2 * MODEL_LAYERS, file), 2 * MODEL_LAYERS);
    assert_int_equal(fclose(file), 0);
}

static void make_file(struct model *model)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    assert_int_equal(pthread_once(&once, make_shared), 0);
    assert_int_equal(link(shared_file, model->file), 0);
}

static void add_weights(struct model *model, bool origin, bool packed, uint8_t *buffer)
{
    struct stat st;

    assert_int_equal(stat(model->file, &st), 0);
    for (uint32_t l = 0; l < MODEL_LAYERS; l++) {
        for (uint32_t w = 0; w < 2; w++) {
            char name[32];
            snprintf(name, sizeof(name), "blk.%u.w%u.weight", l, w);
            struct mz_tensor_desc desc = {
                .name = name,
                .offset = number_of(l, w) * MODEL_WEIGHT_BYTES,
                .bytes = MODEL_WEIGHT_BYTES,
                .kind = MZ_KIND_WEIGHT,
                .layer = (int32_t)l,
                .cut_bytes = packed ? UINT64_C(1) << 20 : 0,
            };
            struct mz_origin from = {.path = model->file, .dev = st.st_dev, .inode = st.st_ino, .offset = desc.offset};
            assert_int_equal(mz_region_add(model->weights, &desc, &model->weight[l][w]), 0);
            fill_weight(buffer, number_of(l, w));
            assert_int_equal(mz_tensor_load(model->weight[l][w], buffer, origin ? &from : NULL,
                                            packed ? fake_form() : NULL), 0);
        }
    }
}

static void add_caches(struct model *model)
{
    for (uint32_t l = 0; l < MODEL_LAYERS; l++) {
        for (uint32_t w = 0; w < 2; w++) {
            char name[32];
            snprintf(name, sizeof(name), "cache_%c_l%u", w ? 'v' : 'k', l);
            struct mz_tensor_desc desc = {
                .name = name,
                .offset = number_of(l, w) * MODEL_CHUNKS * MODEL_CHUNK_BYTES,
                .bytes = MODEL_CHUNKS * MODEL_CHUNK_BYTES,
                .kind = MZ_KIND_KV,
                .cut_bytes = MODEL_CHUNK_BYTES,
                .row_bytes = 512,
                .layer = (int32_t)l,
                .is_v = w == 1,
                .fp16 = true,
            };
            assert_int_equal(mz_region_add(model->kv, &desc, &model->cache[l][w]), 0);
        }
    }
}

void model_make_on(struct model *model, struct mz_engine *engine, bool origin, bool packed)
{
    uint8_t *buffer = malloc(MODEL_WEIGHT_BYTES);
    /* Not in /tmp: the swap file is refused on tmpfs. */
    memset(model, 0, sizeof(*model));
    strcpy(model->folder, "/var/tmp/mz-core-XXXXXX");
    assert_non_null(buffer);
    assert_non_null(mkdtemp(model->folder));
    snprintf(model->file, sizeof(model->file), "%s/weights", model->folder);
    make_file(model);
    struct mz_core_config config = {.engine = engine, .swap_folder = model->folder, .workers = 3};
    assert_int_equal(mz_core_create(&config, &model->core), 0);
    assert_int_equal(mz_region_create(model->core, 2 * MODEL_LAYERS * MODEL_WEIGHT_BYTES, MZ_KIND_WEIGHT,
                                      &model->weights), 0);
    assert_int_equal(mz_region_create(model->core, 2 * MODEL_LAYERS * MODEL_CHUNKS * MODEL_CHUNK_BYTES, MZ_KIND_KV,
                                      &model->kv), 0);
    assert_int_equal(mz_region_create(model->core, UINT64_C(8) << 20, MZ_KIND_SCRATCH, &model->scratch), 0);
    add_weights(model, origin, packed, buffer);
    add_caches(model);
    free(buffer);
}

void model_make(struct model *model, bool origin, bool packed)
{
    model_make_on(model, fake_engine(), origin, packed);
}

void model_free(struct model *model)
{
    mz_region_destroy(model->scratch);
    mz_region_destroy(model->kv);
    mz_region_destroy(model->weights);
    mz_core_destroy(model->core);
    unlink(model->file);
    rmdir(model->folder);
}

static void write_one(struct model *model, uint32_t layer, uint32_t which, uint32_t chunk, uint8_t seed)
{
    static _Thread_local uint16_t numbers[MODEL_CHUNK_BYTES / 2];

    for (uint64_t i = 0; i < MODEL_CHUNK_BYTES / 2; i++)
        numbers[i] = kv_number(seed, i);
    assert_int_equal(mz_region_write(model->kv, mz_tensor_offset(model->cache[layer][which]) + chunk * MODEL_CHUNK_BYTES,
                                     numbers, MODEL_CHUNK_BYTES), 0);
    model->seed[layer][which][chunk] = seed;
}

void model_write_chunk(struct model *model, uint32_t chunk, uint8_t seed)
{
    for (uint32_t l = 0; l < MODEL_LAYERS; l++)
        for (uint32_t w = 0; w < 2; w++)
            write_one(model, l, w, chunk, seed);
    if (chunk >= model->written)
        model->written = chunk + 1;
}

/* ---- passes */

static void check_weight(const struct model *model, uint32_t layer, uint32_t which)
{
    const uint8_t *at = (uint8_t *)mz_region_base(model->weights) + mz_tensor_offset(model->weight[layer][which]);
    const uint8_t *expected = right_weight(number_of(layer, which));
    uint8_t flip = mz_tensor_form(model->weight[layer][which]) ? 0x5A : 0;

    if (!flip && memcmp(at, expected, MODEL_WEIGHT_BYTES) == 0)
        return;
    for (uint64_t i = 0; i < MODEL_WEIGHT_BYTES; i += flip ? 61 : 1)
        if ((at[i] ^ flip) != expected[i])
            fail_msg("weight %u.%u differs at %llu", layer, which, (unsigned long long)i);
}

static void check_numbers(const struct model *model, const uint16_t *at, uint32_t layer, uint32_t which, uint32_t chunk)
{
    uint8_t seed = model->seed[layer][which][chunk];

    for (uint64_t i = 0; i < MODEL_CHUNK_BYTES / 2; i += 7) {
        uint16_t expected = seed ? kv_number(seed, i) : 0;
        /* q8 rounds to 1/127 of the largest: at most 8 units in the last place of numbers near 1 */
        int distance = abs((int)at[i] - (int)expected);
        if (distance > (seed ? 8 : 0))
            fail_msg("cache %u.%u chunk %u differs at %llu: %x, expected %x", layer, which, chunk,
                     (unsigned long long)i, at[i], expected);
    }
}

static uint32_t layer_pins(struct model *model, uint32_t layer, bool append, struct mz_pin *pins)
{
    uint32_t n = 0;

    for (uint32_t w = 0; w < 2; w++)
        for (uint32_t u = 0; u < mz_tensor_units(model->weight[layer][w]); u++)
            pins[n++] = (struct mz_pin){.unit = mz_tensor_unit(model->weight[layer][w], u)};
    for (uint32_t w = 0; w < 2; w++)
        for (uint32_t c = 0; c < model->written + append; c++)
            pins[n++] = (struct mz_pin){.unit = mz_tensor_unit(model->cache[layer][w], c),
                                        .flags = c == model->written ? MZ_PIN_WRITE : MZ_PIN_READ};
    return n;
}

static void layer_run(struct model *model, uint32_t layer, uint8_t append)
{
    for (uint32_t w = 0; w < 2; w++) {
        uint16_t *cache = (uint16_t *)((char *)mz_region_base(model->kv) + mz_tensor_offset(model->cache[layer][w]));
        check_weight(model, layer, w);
        for (uint32_t c = 0; c < model->written; c++)
            check_numbers(model, cache + c * MODEL_CHUNK_BYTES / 2, layer, w, c);
        for (uint64_t i = 0; append && i < MODEL_CHUNK_BYTES / 2; i++)
            cache[model->written * MODEL_CHUNK_BYTES / 2 + i] = kv_number(append, i);
        if (append)
            model->seed[layer][w][model->written] = append;
    }
}

static void teach(struct model *model)
{
    struct mz_lesson lessons[MODEL_LAYERS * 2 * (MODEL_CHUNKS + 8)];
    struct mz_pin pins[2 * (MODEL_CHUNKS + 8)];
    uint32_t n = 0;

    for (uint32_t l = 0; l < MODEL_LAYERS; l++) {
        uint32_t count = layer_pins(model, l, false, pins);
        for (uint32_t i = 0; i < count; i++)
            lessons[n++] = (struct mz_lesson){.unit = pins[i].unit, .layer = l};
    }
    mz_core_teach(model->core, lessons, n);
}

int model_pass(struct model *model, uint8_t append, mz_abort_fn abort, void *user)
{
    struct mz_pin pins[2 * (MODEL_CHUNKS + 8)];
    int err = 0;

    teach(model);
    mz_gate_enter(model->core);
    for (uint32_t l = 0; l < MODEL_LAYERS && !err; l++) {
        uint32_t n = layer_pins(model, l, append != 0, pins);
        uint64_t need = 2 * MODEL_WEIGHT_BYTES + 2 * MODEL_CHUNKS * MODEL_CHUNK_BYTES;
        mz_gate_need(model->core, need);
        err = mz_gate_pin(model->core, pins, n, abort, user);
        if (!err)
            layer_run(model, l, append);
        if (!err)
            mz_gate_unpin(model->core, pins, n);
    }
    mz_gate_leave(model->core);
    if (!err && append)
        model->written++;
    return err;
}

void model_check_by_reading(struct model *model)
{
    uint8_t *buffer = malloc(MODEL_WEIGHT_BYTES);
    uint16_t *numbers = malloc(MODEL_CHUNK_BYTES);

    assert_true(buffer && numbers);
    for (uint32_t l = 0; l < MODEL_LAYERS; l++) {
        for (uint32_t w = 0; w < 2; w++) {
            assert_int_equal(mz_region_read(model->weights, mz_tensor_offset(model->weight[l][w]), buffer,
                                            MODEL_WEIGHT_BYTES), 0);
            assert_memory_equal(buffer, right_weight(number_of(l, w)), MODEL_WEIGHT_BYTES);
            for (uint32_t c = 0; c < MODEL_CHUNKS; c++) {
                assert_int_equal(mz_region_read(model->kv, mz_tensor_offset(model->cache[l][w]) + c * MODEL_CHUNK_BYTES,
                                                numbers, MODEL_CHUNK_BYTES), 0);
                check_numbers(model, numbers, l, w, c);
            }
        }
    }
    free(buffer);
    free(numbers);
}

/* ---- looking */

struct counting {
    enum mz_kind kind;
    const char *where;
    uint32_t units;
    uint64_t bytes;
};

static void see(void *user, const struct mz_unit_view *view)
{
    struct counting *counting = user;

    if (view->kind == counting->kind && strcmp(view->where, counting->where) == 0) {
        counting->units++;
        counting->bytes += view->bytes;
    }
}

uint32_t model_count(struct model *model, enum mz_kind kind, const char *where)
{
    struct counting counting = {.kind = kind, .where = where};
    mz_core_visit(model->core, see, &counting);
    return counting.units;
}

uint64_t model_bytes(struct model *model, enum mz_kind kind, const char *where)
{
    struct counting counting = {.kind = kind, .where = where};
    mz_core_visit(model->core, see, &counting);
    return counting.bytes;
}

struct mz_core_status model_status(struct model *model)
{
    struct mz_core_status status;
    mz_core_status(model->core, &status);
    return status;
}
