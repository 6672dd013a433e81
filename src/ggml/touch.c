/* Plans: which units each node of a graph reads and writes, worked out once per graph uid.
 *
 * Only what lies in our persistent buffers counts; scratch and host memory are there anyway. A view of a KV
 * cache is limited to what it covers, per stream. Rows that a SET_ROWS or GET_ROWS names by an index that is
 * there before the graph are looked up at each run (graph_pins.c); here only the node is noted. A plan belongs to
 * one backend's thread. Pointers to units in it are followed only while a graph of its uid runs, thus while
 * its buffers live. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/glue.h"
#include "os/fault.h"
#include "os/log.h"

/* Streams further apart than this are taken one by one. */
#define PIECE_GAP  4096
#define PIECES_MAX 64

/* Shorter rows are not looked up one by one. */
#define ROW_BYTES_MIN 64

/* ---- ranges to units */

int mz_touch_range(const struct ggml_tensor *tensor, const void *from, uint64_t bytes, mz_unit_fn see,
                   void *user)
{
    struct mz_record *record = mz_record_of(tensor);
    const struct mz_buffer *buffer = mz_buffer_of(tensor);
    uint32_t first, end;

    if (!record || !record->handle || bytes == 0)
        return 0;
    uint64_t at = (uint64_t)((const char *)from - buffer->base) - mz_tensor_offset(record->handle);
    mz_tensor_range(record->handle, at, bytes, &first, &end);
    for (uint32_t i = first; i < end; i++) {
        int err = see(user, mz_tensor_unit(record->handle, i));
        if (err)
            return err;
    }
    return 0;
}

int mz_touch_all(const struct ggml_tensor *tensor, mz_unit_fn see, void *user)
{
    struct ggml_tensor plane = *tensor;
    int64_t n = tensor->ne[3];

    plane.ne[3] = 1;
    uint64_t bytes = ggml_nbytes(&plane);
    if (n == 1 || n > PIECES_MAX || tensor->nb[3] < bytes + PIECE_GAP)
        return mz_touch_range(tensor, tensor->data, ggml_nbytes(tensor), see, user);
    for (int64_t i = 0; i < n; i++) {
        int err = mz_touch_range(tensor, (char *)tensor->data + (size_t)i * tensor->nb[3], bytes, see, user);
        if (err)
            return err;
    }
    return 0;
}

int64_t mz_index_at(const struct ggml_tensor *index, int64_t i)
{
    const char *at = (const char *)index->data + (size_t)i * index->nb[0];

    return index->type == GGML_TYPE_I64 ? *(const int64_t *)(const void *)at
                                        : *(const int32_t *)(const void *)at;
}

/* ---- the growing plan */

void *mz_grow(void *old, uint32_t n, uint32_t *room, size_t size)
{
    if (n < *room)
        return old;
    uint32_t more = *room ? 2 * *room : 64;
    void *fresh = mz_realloc(old, more * size);
    if (fresh)
        *room = more;
    return fresh;
}

static uint32_t hash_of(const struct mz_unit *unit, uint32_t size)
{
    return (uint32_t)(((uintptr_t)unit >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (size - 1);
}

uint32_t mz_plan_find(const struct mz_plan *plan, const struct mz_unit *unit)
{
    if (plan->map_size == 0)
        return UINT32_MAX;
    for (uint32_t i = hash_of(unit, plan->map_size);; i = (i + 1) & (plan->map_size - 1)) {
        if (plan->map[i] == 0)
            return UINT32_MAX;
        if (plan->pins[plan->map[i] - 1].unit == unit)
            return plan->map[i] - 1;
    }
}

static void map_put(struct mz_plan *plan, uint32_t index)
{
    uint32_t i = hash_of(plan->pins[index].unit, plan->map_size);

    while (plan->map[i])
        i = (i + 1) & (plan->map_size - 1);
    plan->map[i] = index + 1;
}

static int map_room(struct mz_plan *plan)
{
    if (2 * (plan->n_pins + 1) <= plan->map_size)
        return 0;
    uint32_t size = plan->map_size ? 2 * plan->map_size : 256;
    uint32_t *map = mz_calloc(size, sizeof(*map));
    if (!map)
        return -ENOMEM;
    free(plan->map);
    plan->map = map;
    plan->map_size = size;
    for (uint32_t i = 0; i < plan->n_pins; i++)
        map_put(plan, i);
    return 0;
}

/* What one node adds. */
struct adding {
    struct mz_plan *plan;
    uint8_t flags;
    uint32_t layer;
    struct mz_lesson *lessons; /* owned by build() */
    uint32_t n_lessons, lessons_room;
    uint8_t *read; /* by pin: already a lesson */
    uint32_t read_room;
};

static int add_pin(struct mz_plan *plan, struct mz_unit *unit, uint32_t *ret)
{
    struct mz_pin *pins = mz_grow(plan->pins, plan->n_pins, &plan->pins_room, sizeof(*pins));

    if (!pins)
        return -ENOMEM;
    plan->pins = pins;
    if (map_room(plan))
        return -ENOMEM;
    plan->pins[plan->n_pins] = (struct mz_pin){.unit = unit};
    map_put(plan, plan->n_pins);
    *ret = plan->n_pins++;
    return 0;
}

static int add_lesson(struct adding *adding, uint32_t pin, struct mz_unit *unit)
{
    if (pin >= adding->read_room) {
        uint32_t room = 2 * pin + 64;
        uint8_t *read = mz_realloc(adding->read, room);
        if (!read)
            return -ENOMEM;
        memset(read + adding->read_room, 0, room - adding->read_room);
        adding->read = read;
        adding->read_room = room;
    }
    if (adding->read[pin])
        return 0;
    struct mz_lesson *lessons =
        mz_grow(adding->lessons, adding->n_lessons, &adding->lessons_room, sizeof(*lessons));
    if (!lessons)
        return -ENOMEM;
    adding->lessons = lessons;
    adding->lessons[adding->n_lessons++] = (struct mz_lesson){.unit = unit, .layer = adding->layer};
    adding->read[pin] = 1;
    return 0;
}

static int add_unit(void *user, struct mz_unit *unit)
{
    struct adding *adding = user;
    struct mz_plan *plan = adding->plan;
    uint32_t pin = mz_plan_find(plan, unit);
    int err = pin == UINT32_MAX ? add_pin(plan, unit, &pin) : 0;

    if (err)
        return err;
    plan->pins[pin].flags |= adding->flags;
    uint32_t *refs = mz_grow(plan->refs, plan->n_refs, &plan->refs_room, sizeof(*refs));
    if (!refs)
        return -ENOMEM;
    plan->refs = refs;
    plan->refs[plan->n_refs++] = pin;
    return adding->flags == MZ_PIN_READ ? add_lesson(adding, pin, unit) : 0;
}

static int add_special(struct mz_plan *plan, int node, enum mz_node_kind kind, int ready_at)
{
    struct mz_special *specials =
        mz_grow(plan->specials, plan->n_specials, &plan->specials_room, sizeof(*specials));

    if (!specials)
        return -ENOMEM;
    plan->specials = specials;
    plan->specials[plan->n_specials++] =
        (struct mz_special){.node = node, .kind = kind, .ready_at = ready_at};
    return 0;
}

static int add_swap(struct mz_plan *plan, int node, struct mz_record *record)
{
    struct mz_swap *swaps = mz_grow(plan->swaps, plan->n_swaps, &plan->swaps_room, sizeof(*swaps));

    if (!swaps)
        return -ENOMEM;
    plan->swaps = swaps;
    plan->swaps[plan->n_swaps++] = (struct mz_swap){.node = node, .record = record};
    return 0;
}

/* ---- what a node touches */

static bool is_attention(const struct ggml_tensor *node)
{
    return node->op == GGML_OP_FLASH_ATTN_EXT || (node->op == GGML_OP_SOFT_MAX && node->src[1]);
}

static double cost_of(const struct ggml_tensor *node)
{
    double out = (double)ggml_nelements(node);

    switch (node->op) {
    case GGML_OP_MUL_MAT:
    case GGML_OP_MUL_MAT_ID:
        return 2.0 * out * (double)node->src[0]->ne[0];
    case GGML_OP_FLASH_ATTN_EXT:
        return 4.0 * out * (double)node->src[1]->ne[1];
    default:
        return 8.0 * out;
    }
}

bool mz_is_readable(const struct ggml_tensor *tensor)
{
    const struct mz_buffer *ours = mz_buffer_of(tensor);
    ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;

    return (ours && atomic_load(&ours->scratch)) || (buffer && ggml_backend_buffer_is_host(buffer));
}

/* An index that is known before the graph runs: a leaf in memory that we can read, one dimension. */
static bool known_before(const struct ggml_tensor *index)
{
    return index->op == GGML_OP_NONE && (index->type == GGML_TYPE_I64 || index->type == GGML_TYPE_I32) &&
           index->ne[1] == 1 && index->ne[2] == 1 && index->ne[3] == 1 &&
           mz_is_readable(index);
}

/* Whether only named rows of the tensor in persistent memory are touched: of node itself (SET_ROWS), of
 * src[0] (GET_ROWS). Rows of single elements, as those of a transposed V cache, are all over the tensor. */
static bool touches_rows(const struct ggml_tensor *node)
{
    const struct ggml_tensor *rows = node->op == GGML_OP_SET_ROWS ? node : node->src[0];

    return (node->op == GGML_OP_SET_ROWS || node->op == GGML_OP_GET_ROWS) && known_before(node->src[1]) &&
           rows->ne[2] == 1 && rows->ne[3] == 1 && mz_record_of(rows) && rows->nb[1] >= ROW_BYTES_MIN;
}

/* The experts' index may be a view of what a node of this graph computes. */
static int computed_at(const struct ggml_cgraph *graph, const struct ggml_tensor *tensor, int before)
{
    const struct ggml_tensor *root = tensor->view_src ? tensor->view_src : tensor;

    for (int i = before - 1; i >= 0; i--)
        if (graph->nodes[i] == root || graph->nodes[i] == tensor)
            return i + 1;
    return 0;
}

/* A packed weight whose reader cannot use the layout goes back to plain, for good. */
static int check_form(struct mz_plan *plan, int i, const struct ggml_tensor *node, int source)
{
    struct mz_record *record = mz_record_of(node->src[source]);

    if (!record || !mz_record_shadow(record))
        return 0;
    if (source == 0 && !node->src[0]->view_src && mz_form_fits(mz_glue_engine(), record->form, node))
        return add_swap(plan, i, record);
    mz_log(MZ_LOG_INFO, "%s is also read by %s: it stays in the plain layout", record->name,
           ggml_op_desc(node));
    return mz_record_make_plain(record);
}

static int ready(const struct ggml_tensor *tensor)
{
    struct mz_buffer *buffer = mz_buffer_of(tensor);

    if (!buffer || atomic_load(&buffer->scratch))
        return 0;
    int err = mz_buffer_settle(buffer);
    if (!err && atomic_load(&buffer->broken)) {
        mz_log(MZ_LOG_ERROR, "%s lies in a buffer whose content could not be taken", tensor->name);
        err = -EIO;
    }
    return err;
}

static int add_sources(struct adding *adding, int i, const struct ggml_tensor *node, bool rows)
{
    int err = 0;

    adding->flags = MZ_PIN_READ;
    for (int s = 0; s < GGML_MAX_SRC && !err; s++) {
        const struct ggml_tensor *src = node->src[s];
        if (!src || !mz_buffer_of(src))
            continue;
        err = ready(src);
        if (!err)
            err = check_form(adding->plan, i, node, s);
        /* What is reached by rows: the destination of SET_ROWS, which is its third source too, or what
         * GET_ROWS reads. */
        if (!err && !(rows && s == (node->op == GGML_OP_SET_ROWS ? 2 : 0)))
            err = mz_touch_all(src, add_unit, adding);
    }
    return err;
}

static int add_node(struct adding *adding, struct ggml_cgraph *graph, int i)
{
    const struct ggml_tensor *node = graph->nodes[i];
    struct mz_plan *plan = adding->plan;
    bool writes = mz_buffer_of(node) && !atomic_load(&mz_buffer_of(node)->scratch);
    int err = writes ? ready(node) : 0;

    if (!err && mz_shift_applies(node)) {
        plan->in_place = true;
        return add_special(plan, i, MZ_NODE_SHIFT, 0);
    }
    bool rows = !err && touches_rows(node);
    if (rows)
        err = add_special(plan, i, MZ_NODE_ROWS, 0);
    if (!err && node->op == GGML_OP_MUL_MAT_ID && mz_record_of(node->src[0]))
        err = add_special(plan, i, MZ_NODE_EXPERTS, computed_at(graph, node->src[2], i));
    if (!err)
        err = add_sources(adding, i, node, rows);
    if (!err && mz_rows_apply(node, plan->threads)) /* its weight's layout is settled by now */
        err = add_special(plan, i, MZ_NODE_BY_ROWS, 0);
    if (!err && writes && node->op != GGML_OP_SET_ROWS)
        plan->in_place = true;
    if (!err && writes && !rows) {
        adding->flags = MZ_PIN_WRITE;
        err = mz_touch_all(node, add_unit, adding);
    }
    return err;
}

static bool runs(const struct ggml_tensor *node)
{
    return !ggml_op_is_empty(node->op) && (node->flags & GGML_TENSOR_FLAG_COMPUTE);
}

static int add_nodes(struct adding *adding, struct ggml_cgraph *graph)
{
    struct mz_plan *plan = adding->plan;
    int err = 0;

    for (int i = 0; i < graph->n_nodes && !err; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        if (runs(node)) {
            plan->cost[i] = cost_of(node);
            plan->total_cost += plan->cost[i];
            if (node->op == GGML_OP_MUL_MAT && node->ne[1] > plan->batch_rows && node->ne[1] <= INT32_MAX)
                plan->batch_rows = (int)node->ne[1];
            err = add_node(adding, graph, i);
            adding->layer += is_attention(node);
        }
        plan->ref_end[i] = plan->n_refs;
    }
    return err;
}

/* ---- plans */

/* Views (uid 0) are what is left when a program looks at every node, and teach nothing about order. */
static int build(struct mz_plan *plan, struct ggml_cgraph *graph)
{
    struct adding adding = {.plan = plan};
    int err = add_nodes(&adding, graph);

    if (!err && graph->uid != 0 && adding.n_lessons)
        mz_core_teach(mz_glue_core(), adding.lessons, adding.n_lessons);
    free(adding.lessons);
    free(adding.read);
    if (!err)
        err = mz_scratch_plan(plan, graph);
    return err ? err : mz_attend_plan(plan, graph);
}

int mz_plan_create(struct ggml_cgraph *graph, int threads, struct mz_plan **ret)
{
    struct mz_plan *plan = mz_calloc(1, sizeof(*plan));
    uint64_t n = graph->n_nodes > 0 ? (uint64_t)graph->n_nodes : 1;

    if (!plan)
        return -ENOMEM;
    plan->broken = atomic_load(&mz_buffers_broken);
    plan->uid = graph->uid;
    plan->threads = threads;
    plan->n_nodes = graph->n_nodes;
    plan->first = graph->n_nodes ? graph->nodes[0] : NULL;
    plan->last = graph->n_nodes ? graph->nodes[graph->n_nodes - 1] : NULL;
    plan->ref_end = mz_calloc(n, sizeof(*plan->ref_end));
    plan->cost = mz_calloc(n, sizeof(*plan->cost));
    int err = plan->ref_end && plan->cost ? build(plan, graph) : -ENOMEM;
    if (err)
        mz_plan_destroy(plan);
    else
        *ret = plan;
    return err;
}

void mz_plan_destroy(struct mz_plan *plan)
{
    if (!plan)
        return;
    mz_attend_forget(plan);
    for (uint32_t i = 0; i < plan->n_keeps; i++)
        free(plan->keeps[i].ranges);
    free(plan->keeps);
    free(plan->pins);
    free(plan->map);
    free(plan->refs);
    free(plan->ref_end);
    free(plan->cost);
    free(plan->specials);
    free(plan->swaps);
    free(plan);
}

bool mz_plan_by_rows(const struct mz_plan *plan, int node)
{
    for (uint32_t s = 0; s < plan->n_specials && plan->specials[s].node <= node; s++)
        if (plan->specials[s].node == node && plan->specials[s].kind == MZ_NODE_BY_ROWS)
            return true;
    return false;
}

bool mz_plan_is_for(const struct mz_plan *plan, const struct ggml_cgraph *graph, int threads)
{
    return plan->uid != 0 && plan->uid == graph->uid && plan->threads == threads && plan->broken == atomic_load(&mz_buffers_broken) &&
           plan->n_nodes == graph->n_nodes && plan->first == graph->nodes[0] &&
           plan->last == graph->nodes[graph->n_nodes - 1];
}
