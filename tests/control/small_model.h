/* A few layers of weights and KV on a core that somebody else made: enough for status, evict and restore to
 * mean something. */
#ifndef MZ_TEST_SMALL_MODEL_H
#define MZ_TEST_SMALL_MODEL_H

#include <stdint.h>

#include "core/core.h"

#define SMALL_LAYERS       4u
#define SMALL_WEIGHT_BYTES (UINT64_C(2) << 20)
#define SMALL_CACHE_BYTES  (UINT64_C(512) << 10) /* of K and of V of each layer, half of it written */

struct small_model {
    struct mz_core *core;
    struct mz_region *weights, *kv;
    struct mz_tensor *weight[SMALL_LAYERS], *k[SMALL_LAYERS], *v[SMALL_LAYERS];
};

/* 0, or the first error. */
int small_model_make(struct small_model *model, struct mz_core *core);
void small_model_free(struct small_model *model);

/* Pins everything once, as a graph does, and checks the bytes. 0, the gate's error, or -EILSEQ: wrong bytes.
 */
int small_model_use(struct small_model *model);

#endif
