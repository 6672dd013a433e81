/* K-shift: an in-place ROPE over every cell of a K cache, used or not (llama-kv-cache.cpp: build_rope_shift).
 * Run as it is, it would write, and thus give memory to, every chunk that was never written. It is run
 * instead over the tokens of the chunks that hold something, as one node per run of such tokens; what it
 * leaves out are zeros, and turning zeros gives zeros. */
#include <errno.h>

#include "ggml/glue.h"

/* A cache that starts on a page is cut into whole tokens (record.c): no token lies in two units. */
bool mz_shift_applies(const struct ggml_tensor *node)
{
    const struct ggml_tensor *src = node->src[0], *by = node->src[1];
    const struct mz_record *record = node->op == GGML_OP_ROPE ? mz_record_of(node) : NULL;

    return record && record->handle && record->kind == MZ_KIND_KV && src && by && node->data == src->data &&
           ggml_are_same_shape(node, src) && ggml_are_same_stride(node, src) && node->ne[3] == 1 &&
           by->type == GGML_TYPE_I32 && by->ne[0] == node->ne[2] && by->ne[1] == 1 &&
           node->nb[2] == record->row_bytes && record->offset % MZ_PAGE_BYTES == 0;
}

/* Whether any unit that the token's row lies in was ever written. */
static int see_written(void *user, struct mz_unit *unit)
{
    bool *written = user;

    *written = *written || !mz_unit_is_empty(unit);
    return 0;
}

static uint64_t token_bytes(const struct ggml_tensor *node)
{
    return (uint64_t)(node->ne[1] - 1) * node->nb[1] + (uint64_t)node->ne[0] * node->nb[0];
}

static const char *token_at(const struct ggml_tensor *node, int64_t token)
{
    return (const char *)node->data + (size_t)token * node->nb[2];
}

static bool is_written(const struct ggml_tensor *node, int64_t token)
{
    bool written = false;

    (void)mz_touch_range(node, token_at(node, token), token_bytes(node), see_written, &written);
    return written;
}

/* The next run of tokens [*from, *to) at or after *from that hold something. */
static bool next_run(const struct ggml_tensor *node, int64_t *from, int64_t *to)
{
    int64_t n = node->ne[2], at = *from;

    while (at < n && !is_written(node, at))
        at++;
    *from = at;
    while (at < n && is_written(node, at))
        at++;
    *to = at;
    return *from < *to;
}

int mz_shift_units(const struct ggml_tensor *node, mz_unit_fn see, void *user)
{
    int64_t from = 0, to = 0;

    for (; next_run(node, &from, &to); from = to) {
        uint64_t bytes = (uint64_t)(to - from - 1) * node->nb[2] + token_bytes(node);
        int err = mz_touch_range(node, token_at(node, from), bytes, see, user);
        if (err)
            return err;
    }
    return 0;
}

static int compute_run(struct mz_engine *stream, struct ggml_cgraph *graph, const struct ggml_tensor *node,
                       int64_t from, int64_t to)
{
    struct ggml_tensor part = *node, src = *node->src[0], by = *node->src[1];

    part.ne[2] = src.ne[2] = by.ne[0] = to - from;
    part.data = src.data = (char *)node->data + (size_t)from * node->nb[2];
    by.data = (char *)by.data + (size_t)from * by.nb[0];
    part.src[0] = &src;
    part.src[1] = &by;
    return mz_graph_compute_node(stream, graph, &part);
}

int mz_shift_compute(struct mz_engine *stream, struct ggml_cgraph *graph, int i)
{
    const struct ggml_tensor *node = graph->nodes[i];
    int64_t from = 0, to = 0;
    int err = 0;

    for (; !err && next_run(node, &from, &to); from = to)
        err = compute_run(stream, graph, node, from, to);
    return err;
}
