/* A model without a model: layers of weights in a file, a KV cache, and passes over both in the order of use. */
#ifndef MZ_TEST_FAKE_MODEL_H
#define MZ_TEST_FAKE_MODEL_H

#include "core/core.h"

#define MODEL_LAYERS       4u
#define MODEL_WEIGHT_BYTES (UINT64_C(5) << 20) /* of each of the two matrices of a layer: two units */
#define MODEL_CHUNK_BYTES  (UINT64_C(128) << 10)
#define MODEL_CHUNKS       8u /* of each K and V tensor */

struct model {
    struct mz_core *core;
    char folder[64];  /* made by mkdtemp: holds the weights' file and the swap file */
    char file[96];    /* a link to the file of all models of the process: whoever changes it puts it back */
    struct mz_region *weights, *kv, *scratch;
    struct mz_tensor *weight[MODEL_LAYERS][2];
    struct mz_tensor *cache[MODEL_LAYERS][2]; /* K, V */
    uint8_t seed[MODEL_LAYERS][2][MODEL_CHUNKS]; /* 0: never written, else what the chunk holds */
    uint32_t written; /* chunks of every cache that passes read */
};

/* `origin`: weights know their file; `packed`: they are stored in the packed form. Aborts the test on failure. */
void model_make(struct model *model, bool origin, bool packed);

/* The same on an engine of the caller's choice (model_make: with traps). */
void model_make_on(struct model *model, struct mz_engine *engine, bool origin, bool packed);
void model_free(struct model *model);

/* Writes chunk `chunk` of all caches with fp16 numbers made from the seed (never 0). */
void model_write_chunk(struct model *model, uint32_t chunk, uint8_t seed);

/* One pass over the model, layer by layer: pins, checks every byte, and with `append` writes chunk `written` of the
 * layer's caches with the seed. 0, or what pinning gave. */
int model_pass(struct model *model, uint8_t append, mz_abort_fn abort, void *user);

/* Reads everything through mz_region_read and checks it. */
void model_check_by_reading(struct model *model);

/* Units in a place, of a kind ("resident", "stack", ...). */
uint32_t model_count(struct model *model, enum mz_kind kind, const char *where);
uint64_t model_bytes(struct model *model, enum mz_kind kind, const char *where);
struct mz_core_status model_status(struct model *model);

#endif
