#include "small_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (UINT64_C(128) << 10)

static uint8_t byte_of(uint32_t layer, uint32_t what, uint64_t i)
{
    return (uint8_t)(0x20 + ((i >> 4) * 7 + i + layer * 31 + what * 101) % 90);
}

static void fill(uint8_t *to, uint64_t bytes, uint32_t layer, uint32_t what)
{
    for (uint64_t i = 0; i < bytes; i++)
        to[i] = byte_of(layer, what, i);
}

static int add(struct small_model *m, uint32_t layer, uint32_t what, uint8_t *buffer)
{
    char name[32];
    bool weight = what == 0;
    uint64_t bytes = weight ? SMALL_WEIGHT_BYTES : SMALL_CACHE_BYTES;

    if (weight)
        (void)snprintf(name, sizeof(name), "blk.%u.ffn_up.weight", layer);
    else
        (void)snprintf(name, sizeof(name), "cache_%c_l%u", what == 1 ? 'k' : 'v', layer);
    struct mz_tensor_desc desc = {
        .name = name,
        .offset = weight ? layer * bytes : (layer * 2 + what - 1) * bytes,
        .bytes = bytes,
        .kind = weight ? MZ_KIND_WEIGHT : MZ_KIND_KV,
        .cut_bytes = weight ? 0 : CHUNK,
        .row_bytes = weight ? 0 : 512,
        .layer = (int32_t)layer,
        .is_v = what == 2,
        .fp16 = true,
    };
    struct mz_tensor **tensor = weight ? &m->weight[layer] : what == 1 ? &m->k[layer] : &m->v[layer];
    int rc = mz_region_add(weight ? m->weights : m->kv, &desc, tensor);
    fill(buffer, bytes, layer, what);
    if (rc == 0 && weight)
        rc = mz_tensor_load(*tensor, buffer, NULL, NULL);
    else if (rc == 0)
        rc = mz_region_write(m->kv, desc.offset, buffer, bytes / 2);
    return rc;
}

int small_model_make(struct small_model *m, struct mz_core *core)
{
    uint8_t *buffer = malloc(SMALL_WEIGHT_BYTES);

    *m = (struct small_model){.core = core};
    if (!buffer)
        return -ENOMEM;
    int rc = mz_region_create(core, SMALL_LAYERS * SMALL_WEIGHT_BYTES, MZ_KIND_WEIGHT, &m->weights);
    if (rc == 0)
        rc = mz_region_create(core, 2 * SMALL_LAYERS * SMALL_CACHE_BYTES, MZ_KIND_KV, &m->kv);
    for (uint32_t layer = 0; layer < SMALL_LAYERS && rc == 0; layer++)
        for (uint32_t what = 0; what < 3 && rc == 0; what++)
            rc = add(m, layer, what, buffer);
    free(buffer);
    return rc;
}

void small_model_free(struct small_model *m)
{
    mz_region_destroy(m->kv);
    mz_region_destroy(m->weights);
    *m = (struct small_model){0};
}

static int check(const struct small_model *m, uint32_t layer, uint32_t what, uint64_t bytes)
{
    struct mz_tensor *tensor = what == 0 ? m->weight[layer] : what == 1 ? m->k[layer] : m->v[layer];
    const uint8_t *at =
        (const uint8_t *)mz_region_base(what == 0 ? m->weights : m->kv) + mz_tensor_offset(tensor);

    for (uint64_t i = 0; i < bytes; i++)
        if (at[i] != byte_of(layer, what, i))
            return -EILSEQ;
    return 0;
}

static uint32_t pin_tensor(struct mz_pin *pins, uint32_t n, struct mz_tensor *tensor, uint32_t units)
{
    for (uint32_t i = 0; i < units; i++)
        pins[n++] = (struct mz_pin){.unit = mz_tensor_unit(tensor, i), .flags = MZ_PIN_READ};
    return n;
}

static int use_layer(struct small_model *m, uint32_t layer)
{
    struct mz_pin pins[32];
    uint32_t written = mz_tensor_units(m->k[layer]) / 2;
    uint32_t n = pin_tensor(pins, 0, m->weight[layer], mz_tensor_units(m->weight[layer]));

    n = pin_tensor(pins, n, m->k[layer], written);
    n = pin_tensor(pins, n, m->v[layer], written);
    int rc = mz_gate_pin(m->core, pins, n, NULL, NULL);
    if (rc < 0)
        return rc;
    rc = check(m, layer, 0, SMALL_WEIGHT_BYTES);
    for (uint32_t what = 1; what < 3 && rc == 0; what++)
        rc = check(m, layer, what, SMALL_CACHE_BYTES / 2);
    mz_gate_unpin(m->core, pins, n);
    return rc;
}

int small_model_use(struct small_model *m)
{
    int rc = 0;

    mz_gate_enter(m->core);
    for (uint32_t layer = 0; layer < SMALL_LAYERS && rc == 0; layer++)
        rc = use_layer(m, layer);
    mz_gate_leave(m->core);
    return rc;
}
