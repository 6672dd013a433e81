/* Attention by our own kernel (attn/attn.h) inside ggml-cpu's thread team.
 *
 * A plan keeps, beside the graph's nodes, an array in which each FLASH_ATTN_EXT that the kernel takes is
 * replaced by two GGML_OP_CUSTOM nodes, one per phase; ggml-cpu puts its barrier between them. They write
 * where the replaced node writes, so its readers notice nothing. Whether a node is replaced follows from its
 * shape and types alone: never from what is in memory, since the other kernel gives other bits.
 *
 * When something is missing, the cache chunks of such a node are not waited for before its slice: the kernel
 * takes those that are there first, and the computing threads pin the others while they come in. Per chunk,
 * `state` is read without a lock; site->lock protects its change and the pins. It is taken before core's
 * lock.
 *
 * Everything else belongs to the thread that computes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "ggml/glue.h"
#include "os/fault.h"

enum { CHUNK_ASKED_NEVER, CHUNK_HELD };

/* The cache units of one chunk of one sequence: pins [first, end) of the site. */
struct chunk {
    atomic_int state;
    uint32_t first, end;
};

struct mz_site {
    struct mz_attn op;
    struct ggml_tensor partial, merge;
    int node;
    uint32_t n_chunks;    /* per sequence */
    const void **k, **v;  /* owned: [n_seq][n_chunks] */
    struct chunk *chunks; /* owned: [n_seq][n_chunks] */
    struct mz_pin *pins;  /* owned; lock */
    uint32_t n_pins, pins_room;
    pthread_mutex_t lock;
    struct mz_attend *attend; /* of the backend, set when a slice runs */
    int error;                /* of this run; written by thread 0 of the team */
};

struct mz_attend {
    struct mz_core *core;
    struct mz_backend *backend;
    atomic_bool asking; /* one of the computing threads is in the program's abort callback */
    void *workspace;    /* zeroed when it was made, then the kernel's */
    uint64_t bytes;
    uint32_t run;
};

/* ---- which nodes */

static bool rows_are_dense(const struct ggml_tensor *tensor, enum ggml_type type)
{
    return tensor->type == type && tensor->nb[0] == ggml_type_size(type);
}

/* K or V: fp16 or q8_0, elements of a row side by side. */
static bool cache_is_readable(const struct ggml_tensor *tensor)
{
    return rows_are_dense(tensor, GGML_TYPE_F16) || rows_are_dense(tensor, GGML_TYPE_Q8_0);
}

static enum mz_attn_type cache_type(const struct ggml_tensor *tensor)
{
    return tensor->type == GGML_TYPE_Q8_0 ? MZ_ATTN_Q8_0 : MZ_ATTN_F16;
}

static bool takes(const struct ggml_tensor *node)
{
    const struct ggml_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2], *mask = node->src[3];

    return node->op == GGML_OP_FLASH_ATTN_EXT && node->type == GGML_TYPE_F32 && ggml_is_contiguous(node) &&
           rows_are_dense(q, GGML_TYPE_F32) && cache_is_readable(k) && cache_is_readable(v) &&
           k->ne[1] == v->ne[1] && k->ne[2] == v->ne[2] && q->ne[3] == k->ne[3] && q->ne[3] == v->ne[3] &&
           q->ne[0] == k->ne[0] && q->ne[1] <= UINT32_MAX && k->ne[1] <= INT32_MAX &&
           (!mask ||
            (rows_are_dense(mask, GGML_TYPE_F16) && mask->ne[0] >= k->ne[1] && mask->ne[1] >= q->ne[1])) &&
           (!node->src[4] ||
            (rows_are_dense(node->src[4], GGML_TYPE_F32) && node->src[4]->ne[0] == q->ne[2]));
}

static float param(const struct ggml_tensor *node, int i)
{
    float value;

    memcpy(&value, (const char *)node->op_params + (size_t)i * sizeof(value), sizeof(value));
    return value;
}

static void describe_mask(struct mz_attn *op, const struct ggml_tensor *mask)
{
    op->mask_heads = op->mask_seqs = 1;
    if (!mask)
        return;
    op->mask = mask->data;
    op->mask_row_bytes = mask->nb[1];
    op->mask_head_bytes = mask->nb[2];
    op->mask_seq_bytes = mask->nb[3];
    op->mask_heads = (uint32_t)mask->ne[2];
    op->mask_seqs = (uint32_t)mask->ne[3];
}

/* Where each chunk of K or V begins. */
static void point_at_chunks(const struct mz_site *site, const struct ggml_tensor *cache, const void **ret)
{
    for (uint32_t s = 0; s < site->op.n_seq; s++)
        for (uint32_t c = 0; c < site->n_chunks; c++)
            ret[s * site->n_chunks + c] =
                (const char *)cache->data + s * cache->nb[3] + (size_t)c * MZ_ATTN_CHUNK * cache->nb[1];
}

/* The operation, from the tensors as they are now. */
static void describe(struct mz_site *site, const struct ggml_tensor *node)
{
    const struct ggml_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2];

    site->op = (struct mz_attn){
        .n_rows = (uint32_t)q->ne[1],
        .n_heads = (uint32_t)q->ne[2],
        .n_kv_heads = (uint32_t)k->ne[2],
        .n_seq = (uint32_t)q->ne[3],
        .n_kv = (uint32_t)k->ne[1],
        .dk = (uint32_t)k->ne[0],
        .dv = (uint32_t)v->ne[0],
        .k_type = cache_type(k),
        .v_type = cache_type(v),
        .q = q->data,
        .q_row_bytes = q->nb[1],
        .q_head_bytes = q->nb[2],
        .q_seq_bytes = q->nb[3],
        .k = site->k,
        .v = site->v,
        .k_row_bytes = k->nb[1],
        .k_head_bytes = k->nb[2],
        .v_row_bytes = v->nb[1],
        .v_head_bytes = v->nb[2],
        .sinks = node->src[4] ? node->src[4]->data : NULL,
        .scale = param(node, 0),
        .max_bias = param(node, 1),
        .logit_softcap = param(node, 2),
        .dst = node->data,
    };
    describe_mask(&site->op, node->src[3]);
    point_at_chunks(site, k, site->k);
    point_at_chunks(site, v, site->v);
}

/* ---- chunks that come in late */

static struct chunk *chunk_of(struct mz_site *site, uint32_t seq, uint32_t chunk)
{
    return &site->chunks[seq * site->n_chunks + chunk];
}

/* The program's callback is asked by one thread at a time, as ggml-cpu does. */
static bool abort_asked(void *user)
{
    struct mz_attend *attend = user;

    if (atomic_exchange(&attend->asking, true))
        return false;
    bool wanted = mz_abort_wanted(attend->backend);
    atomic_store(&attend->asking, false);
    return wanted;
}

/* Pins those units of a chunk that are not held. A wait happens without the lock, on a copy: other threads go
 * on with other chunks. Lock held. */
static int hold(struct mz_site *site, struct chunk *chunk, bool block)
{
    for (uint32_t i = chunk->first; i < chunk->end; i++) {
        struct mz_pin pin = site->pins[i];
        if (pin.held)
            continue;
        if (block)
            pthread_mutex_unlock(&site->lock);
        int err = mz_gate_pin_late(site->attend->core, &pin, block, abort_asked, site->attend);
        if (block)
            pthread_mutex_lock(&site->lock);
        if (err)
            return err;
        if (site->pins[i].held)
            mz_gate_unpin(site->attend->core, &pin, 1); /* another thread was faster */
        else
            site->pins[i] = pin;
    }
    return 0;
}

static int ready(void *user, uint32_t seq, uint32_t index, bool block)
{
    struct mz_site *site = user;
    struct chunk *chunk = chunk_of(site, seq, index);

    if (atomic_load_explicit(&chunk->state, memory_order_acquire) == CHUNK_HELD)
        return 0;
    pthread_mutex_lock(&site->lock);
    int err = hold(site, chunk, block);
    if (!err)
        atomic_store_explicit(&chunk->state, CHUNK_HELD, memory_order_release);
    pthread_mutex_unlock(&site->lock);
    return err == -EAGAIN ? 1 : err;
}

static void release(struct mz_site *site)
{
    mz_gate_unpin(site->attend->core, site->pins, site->n_pins);
    for (uint32_t i = 0; i < site->op.n_seq * site->n_chunks; i++)
        atomic_store_explicit(&site->chunks[i].state, CHUNK_ASKED_NEVER, memory_order_relaxed);
}

/* ---- the two nodes, on all threads of the team */

static void run_partial(struct ggml_tensor *dst, int ith, int nth, void *user)
{
    (void)dst;
    struct mz_site *site = user;
    mz_attn_partial(&site->op, site->attend->workspace, ith, nth);
}

static void run_merge(struct ggml_tensor *dst, int ith, int nth, void *user)
{
    (void)dst;
    struct mz_site *site = user;
    mz_attn_merge(&site->op, site->attend->workspace, ith, nth);
    if (ith == 0)
        site->error = mz_attn_status(&site->op, site->attend->workspace);
}

static void make_custom(struct ggml_tensor *to, const struct ggml_tensor *node, ggml_custom_op_t fun,
                        struct mz_site *site)
{
    struct ggml_custom_op_params params = {.fun = fun, .n_tasks = GGML_N_TASKS_MAX, .userdata = site};

    *to = *node;
    to->op = GGML_OP_CUSTOM;
    memset(to->op_params, 0, sizeof(to->op_params));
    memcpy(to->op_params, &params, sizeof(params));
}

/* ---- sites of a plan */

static void site_free(struct mz_site *site)
{
    if (!site)
        return;
    pthread_mutex_destroy(&site->lock);
    free(site->k);
    free(site->v);
    free(site->chunks);
    free(site->pins);
    free(site);
}

static int add_pin(void *user, struct mz_unit *unit)
{
    struct mz_site *site = user;

    struct mz_pin *pins = mz_grow(site->pins, site->n_pins, &site->pins_room, sizeof(*pins));
    if (!pins)
        return -ENOMEM;
    site->pins = pins;
    site->pins[site->n_pins++] = (struct mz_pin){.unit = unit};
    return 0;
}

static int map_chunk(struct mz_site *site, const struct ggml_tensor *node, uint32_t seq, uint32_t index)
{
    struct chunk *chunk = chunk_of(site, seq, index);
    int64_t first = (int64_t)index * MZ_ATTN_CHUNK, left = node->src[1]->ne[1] - first;
    int64_t tokens = left < MZ_ATTN_CHUNK ? left : MZ_ATTN_CHUNK;
    int err = 0;

    chunk->first = site->n_pins;
    for (int s = 1; s <= 2 && !err; s++) {
        struct ggml_tensor part = *node->src[s];
        part.ne[1] = tokens;
        part.ne[3] = 1;
        part.data = (char *)part.data + seq * part.nb[3] + (size_t)first * part.nb[1];
        err = mz_touch_range(&part, part.data, ggml_nbytes(&part), add_pin, site);
    }
    chunk->end = site->n_pins;
    return err;
}

static int site_new(const struct ggml_tensor *node, int i, struct mz_site **ret)
{
    struct mz_site *site = mz_calloc(1, sizeof(*site));
    if (!site)
        return -ENOMEM;
    uint32_t n_seq = (uint32_t)node->src[0]->ne[3];
    site->n_chunks = (uint32_t)((node->src[1]->ne[1] + MZ_ATTN_CHUNK - 1) / MZ_ATTN_CHUNK);
    uint64_t n = (uint64_t)n_seq * site->n_chunks + 1;
    pthread_mutex_init(&site->lock, NULL);
    site->node = i;
    site->k = mz_calloc(n, sizeof(*site->k));
    site->v = mz_calloc(n, sizeof(*site->v));
    site->chunks = mz_calloc(n, sizeof(*site->chunks));
    int err = site->k && site->v && site->chunks ? 0 : -ENOMEM;
    for (uint32_t s = 0; s < n_seq; s++)
        for (uint32_t c = 0; c < site->n_chunks && !err; c++)
            err = map_chunk(site, node, s, c);
    if (err) {
        site_free(site);
        return err;
    }
    describe(site, node);
    site->op.run = 1;
    make_custom(&site->partial, node, run_partial, site);
    make_custom(&site->merge, node, run_merge, site);
    *ret = site;
    return 0;
}

/* Our kernel is on unless MZ_ATTN=ggml: for comparing. Read once. */
static bool is_switched_off(void)
{
    const char *value = getenv("MZ_ATTN");

    return value && strcmp(value, "ggml") == 0;
}

static int add_site(struct mz_plan *plan, const struct ggml_tensor *node, int i)
{
    struct mz_site *site = NULL;
    int err = site_new(node, i, &site);

    if (err)
        return err;
    if (mz_attn_check(&site->op) || !mz_attn_wins(&site->op, MZ_ATTN_ISA_BEST)) {
        site_free(site);
        return 0;
    }
    struct mz_site **more = mz_realloc(plan->sites, (plan->n_sites + 1) * sizeof(struct mz_site *));
    if (!more) {
        site_free(site);
        return -ENOMEM;
    }
    plan->sites = more;
    plan->sites[plan->n_sites++] = site;
    return 0;
}

/* The array of nodes with two in place of each that is replaced. */
static int make_nodes(struct mz_plan *plan, const struct ggml_cgraph *graph)
{
    plan->nodes = mz_alloc((uint64_t)(graph->n_nodes + (int)plan->n_sites) * sizeof(struct ggml_tensor *));
    plan->node_at = mz_alloc((uint64_t)(graph->n_nodes + 1) * sizeof(*plan->node_at));
    if (!plan->nodes || !plan->node_at)
        return -ENOMEM;
    int at = 0;
    uint32_t s = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        plan->node_at[i] = at;
        if (s < plan->n_sites && plan->sites[s]->node == i) {
            plan->nodes[at++] = &plan->sites[s]->partial;
            plan->nodes[at++] = &plan->sites[s++]->merge;
        } else {
            plan->nodes[at++] = graph->nodes[i];
        }
    }
    plan->node_at[graph->n_nodes] = at;
    return 0;
}

int mz_attend_plan(struct mz_plan *plan, const struct ggml_cgraph *graph)
{
    static atomic_int off; /* 0 not asked, 1 on, 2 off */
    int err = 0;

    if (atomic_load(&off) == 0)
        atomic_store(&off, is_switched_off() ? 2 : 1);
    for (int i = 0; i < graph->n_nodes && !err && atomic_load(&off) == 1; i++)
        if ((graph->nodes[i]->flags & GGML_TENSOR_FLAG_COMPUTE) && takes(graph->nodes[i]))
            err = add_site(plan, graph->nodes[i], i);
    return err || plan->n_sites == 0 ? err : make_nodes(plan, graph);
}

void mz_attend_forget(struct mz_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_sites; i++)
        site_free(plan->sites[i]);
    free(plan->sites);
    free(plan->nodes);
    free(plan->node_at);
}

/* ---- running */

int mz_attend_create(struct mz_core *core, struct mz_backend *backend, struct mz_attend **ret)
{
    struct mz_attend *attend = mz_calloc(1, sizeof(*attend));

    if (!attend)
        return -ENOMEM;
    attend->core = core;
    attend->backend = backend;
    *ret = attend;
    return 0;
}

void mz_attend_destroy(struct mz_attend *attend)
{
    if (!attend)
        return;
    free(attend->workspace);
    free(attend);
}

static int fit_workspace(struct mz_attend *attend, uint64_t bytes)
{
    if (bytes <= attend->bytes)
        return 0;
    bytes = (bytes + 4095) & ~UINT64_C(4095);
    void *fresh = aligned_alloc(64, bytes);
    if (!fresh)
        return -ENOMEM;
    memset(fresh, 0, bytes);
    free(attend->workspace);
    attend->workspace = fresh;
    attend->bytes = bytes;
    return 0;
}

int mz_attend_begin(struct mz_attend *attend, const struct mz_plan *plan, struct ggml_cgraph *graph, int from,
                    int to, int threads, bool late)
{
    int err = 0;

    for (uint32_t i = 0; i < plan->n_sites && !err; i++) {
        struct mz_site *site = plan->sites[i];
        if (site->node < from || site->node >= to)
            continue;
        describe(site, graph->nodes[site->node]);
        if (++attend->run == 0)
            attend->run = 1;
        site->op.run = attend->run;
        site->attend = attend;
        site->error = 0;
        if (late) {
            site->op.ready = ready;
            site->op.user = site;
        }
        err = fit_workspace(attend, mz_attn_workspace(&site->op, threads));
    }
    return err;
}

int mz_attend_end(const struct mz_plan *plan, int from, int to, bool late, int *ret_node)
{
    int err = 0;

    for (uint32_t i = 0; i < plan->n_sites; i++) {
        struct mz_site *site = plan->sites[i];
        if (site->node < from || site->node >= to)
            continue;
        if (late)
            release(site);
        if (site->error && !err) {
            err = site->error;
            *ret_node = site->node;
        }
    }
    return err;
}

bool mz_attend_is_site(const struct mz_plan *plan, int node)
{
    uint32_t lo = 0, hi = plan->n_sites;

    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (plan->sites[mid]->node < node)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < plan->n_sites && plan->sites[lo]->node == node;
}
