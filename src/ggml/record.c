/* Records: how one tensor of a buffer is described to core and cut into units. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/glue.h"
#include "os/fault.h"

#define HUGE_PAGE (UINT64_C(2) << 20)

/* Units of packed weights and of experts have about this size, like core's own. */
#define UNIT_BYTES (UINT64_C(4) << 20)

/* Tokens of a KV chunk are a multiple of this: llama.cpp pads what it reads of the cache to it. */
#define CHUNK_TOKENS 256

/* "cache_k_l7", with a tag in some models: "cache_swa_k_l7". Recurrent state is called cache_r_l7 and
 * cache_s_l7. */
static bool parse_cache_name(const char *name, int32_t *ret_layer, bool *ret_v)
{
    if (strncmp(name, "cache_", 6) != 0)
        return false;
    const char *layer = strstr(name, "k_l");
    bool is_v = false;
    if (!layer) {
        layer = strstr(name, "v_l");
        is_v = true;
    }
    if (!layer || (layer[-1] != '_' && !isalnum((unsigned char)layer[-1])) ||
        !isdigit((unsigned char)layer[3]))
        return false;
    *ret_layer = atoi(layer + 3);
    *ret_v = is_v;
    return true;
}

static int32_t layer_of_weight(const char *name)
{
    return strncmp(name, "blk.", 4) == 0 && isdigit((unsigned char)name[4]) ? atoi(name + 4) : -1;
}

struct mz_record *mz_record_new(struct ggml_tensor *tensor, uint64_t offset)
{
    struct mz_record *record = mz_calloc(1, sizeof(*record));

    if (!record)
        return NULL;
    snprintf(record->name, sizeof(record->name), "%s", tensor->name);
    record->tensor = tensor;
    record->offset = offset;
    record->alloc_bytes = mz_record_alloc_bytes(tensor);
    record->bytes = ggml_nbytes(tensor);
    record->row_bytes = tensor->nb[1];
    record->plane_bytes = tensor->nb[2];
    record->planes = tensor->ne[2] * tensor->ne[3];
    record->type = tensor->type;
    if (tensor->op == GGML_OP_NONE && ggml_is_contiguous(tensor))
        record->form = mz_learn_form(tensor);
    return record;
}

void mz_record_free(struct mz_record *record)
{
    if (!record)
        return;
    mz_form_destroy(record->form);
    free(record);
}

/* The smallest multiple of `step` bytes that fills whole pages, made larger up to about `wish`. */
static uint64_t page_multiple(uint64_t step, uint64_t wish)
{
    uint64_t cut = step;

    while (cut % MZ_PAGE_BYTES)
        cut += step;
    return cut < wish ? wish / cut * cut : cut;
}

static uint64_t cut_of_weight(const struct mz_record *record)
{
    if (record->form) {
        uint64_t group = mz_form_group_bytes(record->form);
        return group >= record->bytes ? mz_round_up(record->bytes, MZ_PAGE_BYTES) : page_multiple(group, UNIT_BYTES);
    }
    /* Experts, each in units of its own. */
    if (record->planes > 1 && record->plane_bytes % MZ_PAGE_BYTES == 0)
        return record->plane_bytes <= UNIT_BYTES ? page_multiple(record->plane_bytes, 0) : 0;
    return 0;
}

struct mz_tensor_desc mz_record_desc(struct mz_record *record, enum ggml_backend_buffer_usage usage)
{
    struct mz_tensor_desc desc = {
        .name = record->name,
        .offset = record->offset,
        .bytes = record->bytes,
        .row_bytes = record->row_bytes <= UINT32_MAX ? (uint32_t)record->row_bytes : 0,
        .layer = -1,
        .fp16 = record->type == GGML_TYPE_F16,
    };

    if (usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        desc.kind = MZ_KIND_WEIGHT;
        desc.layer = layer_of_weight(record->name);
        desc.cut_bytes = cut_of_weight(record);
    } else if (parse_cache_name(record->name, &desc.layer, &desc.is_v)) {
        desc.kind = MZ_KIND_KV;
        desc.cut_bytes = page_multiple(CHUNK_TOKENS * record->row_bytes, 0);
    } else {
        desc.kind = MZ_KIND_OTHER;
    }
    record->kind = desc.kind;
    return desc;
}

static bool is_cache(const struct ggml_tensor *tensor)
{
    return strncmp(tensor->name, "cache_", 6) == 0;
}

/* Leaves only: ggml allows no operation but a few to take more than its bytes
 * (ggml_op_alloc_size_may_expand). With one page more the start of a weight can be moved to where its file
 * offset is congruent, so that direct reads need no bounce buffer. Inputs and caches are never moved. A large
 * cache ends at a huge page, so that the chunks of the next one do not share theirs with what it has not
 * written yet: addresses cost nothing. */
size_t mz_record_alloc_bytes(const struct ggml_tensor *tensor)
{
    size_t bytes = ggml_nbytes(tensor);

    if (tensor->op != GGML_OP_NONE || tensor->view_src || bytes == 0)
        return bytes;
    if (is_cache(tensor))
        return mz_round_up(bytes, bytes < HUGE_PAGE ? MZ_PAGE_BYTES : HUGE_PAGE);
    bool moves = bytes >= MZ_RECORD_SMALL_BYTES && !(tensor->flags & GGML_TENSOR_FLAG_INPUT);
    return mz_round_up(bytes, MZ_PAGE_BYTES) + (moves ? MZ_PAGE_BYTES : 0);
}
