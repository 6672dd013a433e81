/* What of a compute buffer is worth something when a graph is done.
 *
 * Nothing, one would think; but a backend never knows that a graph is done. ggml's scheduler calls once per
 * split, with input copies written between, and with an eval callback once per few nodes, after which the
 * program may read any tensor (ggml-backend.cpp: ggml_backend_sched_compute_splits). So everything is kept
 * unless the graph is known to be the whole: it has a uid, which views made for callbacks have not, and every
 * tensor that the scheduler's hash set holds is a node of it or a leaf. Then what survives are leaves (inputs
 * that a program may set once), nodes flagged as outputs, and nodes that nothing reads, or that something
 * else than this graph reads (use_counts counts all readers). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/glue.h"
#include "os/fault.h"

static struct mz_keep *keep_of(struct mz_plan *plan, struct mz_buffer *buffer)
{
    for (uint32_t i = 0; i < plan->n_keeps; i++)
        if (plan->keeps[i].buffer == buffer)
            return &plan->keeps[i];
    struct mz_keep *keeps = mz_grow(plan->keeps, plan->n_keeps, &plan->keeps_room, sizeof(*keeps));
    if (!keeps)
        return NULL;
    plan->keeps = keeps;
    plan->keeps[plan->n_keeps] = (struct mz_keep){.buffer = buffer};
    return &plan->keeps[plan->n_keeps++];
}

static int keep_range(struct mz_keep *keep, const struct ggml_tensor *tensor)
{
    uint64_t(*ranges)[2] = mz_grow(keep->ranges, keep->n, &keep->room, sizeof(*ranges));
    if (!ranges)
        return -ENOMEM;
    keep->ranges = ranges;
    uint64_t from = (uint64_t)((char *)tensor->data - keep->buffer->base);
    keep->ranges[keep->n][0] = from;
    keep->ranges[keep->n++][1] = from + ggml_nbytes(tensor);
    return 0;
}

/* By slot of the hash set: how often this graph reads the tensor, and whether it is a node or leaf of it. */
struct census {
    const struct ggml_cgraph *graph;
    uint32_t *uses;
    uint8_t *seen;
    uint64_t n_seen;
    bool stranger; /* a tensor that the hash set does not hold */
};

static size_t slot_of(struct census *census, const struct ggml_tensor *tensor)
{
    const struct ggml_hash_set *set = &census->graph->visited_hash_set;
    size_t slot = set->size ? ggml_hash_find(set, tensor) : GGML_HASHSET_FULL;

    if (slot == GGML_HASHSET_FULL || !ggml_bitset_get(set->used, slot)) {
        census->stranger = true;
        return GGML_HASHSET_FULL;
    }
    return slot;
}

static void see(struct census *census, size_t slot)
{
    census->n_seen += !census->seen[slot];
    census->seen[slot] = 1;
}

static void count_node(struct census *census, const struct ggml_tensor *node)
{
    size_t slot = slot_of(census, node);

    if (slot != GGML_HASHSET_FULL)
        see(census, slot);
    for (int s = 0; s < GGML_MAX_SRC; s++) {
        if (!node->src[s])
            continue;
        slot = slot_of(census, node->src[s]);
        if (slot == GGML_HASHSET_FULL)
            continue;
        census->uses[slot]++;
        if (node->src[s]->op == GGML_OP_NONE)
            see(census, slot);
    }
}

static bool is_whole(const struct census *census)
{
    const struct ggml_hash_set *set = &census->graph->visited_hash_set;
    uint64_t used = 0;

    for (size_t i = 0; i < ggml_bitset_size(set->size); i++)
        used += (uint64_t)__builtin_popcount(set->used[i]);
    return census->graph->uid != 0 && !census->stranger && used == census->n_seen;
}

static bool survives(struct census *census, const struct ggml_tensor *tensor)
{
    if (tensor->op == GGML_OP_NONE || (tensor->flags & GGML_TENSOR_FLAG_OUTPUT) ||
        !(tensor->flags & GGML_TENSOR_FLAG_COMPUTE))
        return true;
    size_t slot = slot_of(census, tensor);
    return slot == GGML_HASHSET_FULL || census->uses[slot] == 0 ||
           (int64_t)census->uses[slot] != census->graph->use_counts[slot];
}

static int consider(struct mz_plan *plan, struct census *census, const struct ggml_tensor *tensor)
{
    struct mz_buffer *buffer = mz_buffer_of(tensor);

    if (!buffer || !atomic_load(&buffer->scratch) || !tensor->data)
        return 0;
    struct mz_keep *keep = keep_of(plan, buffer);
    if (!keep)
        return -ENOMEM;
    return !plan->keep_all && survives(census, tensor) ? keep_range(keep, tensor) : 0;
}

static int by_start(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* Sorts and joins what overlaps. */
static void tidy(struct mz_keep *keep)
{
    uint32_t n = 0;

    if (keep->n == 0)
        return;
    qsort(keep->ranges, keep->n, sizeof(*keep->ranges), by_start);
    for (uint32_t i = 1; i < keep->n; i++) {
        if (keep->ranges[i][0] > keep->ranges[n][1])
            memcpy(keep->ranges[++n], keep->ranges[i], sizeof(*keep->ranges));
        else if (keep->ranges[i][1] > keep->ranges[n][1])
            keep->ranges[n][1] = keep->ranges[i][1];
    }
    keep->n = n + 1;
}

static int consider_all(struct mz_plan *plan, struct census *census, struct ggml_cgraph *graph)
{
    int err = 0;

    for (int i = 0; i < graph->n_nodes && !err; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        err = consider(plan, census, node);
        for (int s = 0; s < GGML_MAX_SRC && !err; s++)
            if (node->src[s] && node->src[s]->op == GGML_OP_NONE)
                err = consider(plan, census, node->src[s]);
    }
    for (uint32_t i = 0; i < plan->n_keeps; i++)
        tidy(&plan->keeps[i]);
    return err;
}

int mz_scratch_plan(struct mz_plan *plan, struct ggml_cgraph *graph)
{
    size_t slots = graph->visited_hash_set.size + 1;
    struct census census = {
        .graph = graph, .uses = mz_calloc(slots, sizeof(*census.uses)), .seen = mz_calloc(slots, 1)};
    int err = census.uses && census.seen ? 0 : -ENOMEM;

    if (!err) {
        for (int i = 0; i < graph->n_nodes; i++)
            count_node(&census, graph->nodes[i]);
        plan->keep_all = !is_whole(&census);
        err = consider_all(plan, &census, graph);
    }
    free(census.uses);
    free(census.seen);
    return err;
}

void mz_scratch_begin(const struct mz_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_keeps; i++)
        mz_buffer_keep_all(plan->keeps[i].buffer);
}

void mz_scratch_end(const struct mz_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_keeps && !plan->keep_all; i++) {
        struct mz_keep *keep = &plan->keeps[i];
        atomic_store(&keep->buffer->keep_all, false);
        mz_region_keep(keep->buffer->region, (const uint64_t(*)[2])keep->ranges, keep->n, false);
    }
}
