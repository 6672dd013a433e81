/* Running a graph behind the gate.
 *
 * Everything it touches is in memory: it is pinned in one step and runs in one piece, or, when it will take
 * long, in slices between which an eviction may come in. Otherwise it runs slice by slice: the units of the
 * next node are waited for, those of the nodes behind it are taken as long as they are there, that run of
 * nodes is computed, and all of it is let go. A graph that changes persistent memory in place is not cut:
 * half of it done twice, or not at all, gives wrong answers later. It starts when everything is there.
 *
 * Packed weights stand in as shadows only while their nodes are computed and their units are held. All state
 * belongs to the thread that computes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/process.h"
#include "ggml/glue.h"
#include "os/fault.h"
#include "os/log.h"
#include "os/os.h"

/* A slice of a long graph; an eviction waits for at most one of them, or for one node. */
#define SLICE_NS 50e6

/* Before anything is measured: 10 and 50 operations per ns. Slow guesses make short slices. */
static const double first_ns_per_op[2] = {0.1, 0.02};

/* Rows of a product from which on a graph counts as a batch. */
#define BATCH_ROWS 8

/* One run of one graph. */
struct run {
    struct mz_backend *backend;
    struct ggml_cgraph *graph;
    const struct mz_plan *plan;
    struct mz_pin *pins; /* those of the plan, then those of rows named by indices; owned */
    uint32_t n, room;
    uint32_t *row_refs; /* pins of special nodes, in their order; owned */
    uint32_t n_row_refs, row_refs_room;
    uint32_t *row_end; /* by special */
    uint32_t *mark;    /* by pin: the slice it was last taken for; owned */
    uint32_t slice;
    struct mz_pin *held; /* what is pinned now; owned */
    uint32_t n_held;
    uint32_t special; /* first one not before the current node */
    bool late;        /* attention takes cache chunks while they come in */
    int failed_node;  /* attention node that could not get its chunks */
};

/* ---- rows and tokens that this run touches */

static int add_pin(struct run *run, struct mz_unit *unit, uint8_t flags, uint32_t *ret)
{
    uint32_t i = mz_plan_find(run->plan, unit);

    for (uint32_t j = run->n; i == UINT32_MAX && j-- > run->plan->n_pins;)
        if (run->pins[j].unit == unit)
            i = j;
    if (i == UINT32_MAX) {
        if (run->n == run->room) {
            uint32_t room = 2 * run->room + 64;
            struct mz_pin *more = mz_realloc(run->pins, room * sizeof(*more));
            if (!more)
                return -ENOMEM;
            run->pins = more;
            run->room = room;
        }
        i = run->n++;
        run->pins[i] = (struct mz_pin){.unit = unit};
    }
    run->pins[i].flags |= flags;
    *ret = i;
    return 0;
}

struct taking {
    struct run *run;
    uint8_t flags;
    struct mz_unit *last; /* neighbouring rows mostly lie in one unit */
};

static int take_unit(void *user, struct mz_unit *unit)
{
    struct taking *taking = user;
    struct run *run = taking->run;
    uint32_t pin;

    if (unit == taking->last)
        return 0;
    taking->last = unit;
    int err = add_pin(run, unit, taking->flags, &pin);
    if (err)
        return err;
    if (run->n_row_refs == run->row_refs_room) {
        uint32_t room = run->row_refs_room ? 2 * run->row_refs_room : 128;
        uint32_t *more = mz_realloc(run->row_refs, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        run->row_refs = more;
        run->row_refs_room = room;
    }
    run->row_refs[run->n_row_refs++] = pin;
    return 0;
}

static int take_rows(struct run *run, const struct ggml_tensor *node)
{
    bool writes = node->op == GGML_OP_SET_ROWS;
    const struct ggml_tensor *rows = writes ? node : node->src[0], *index = node->src[1];
    struct taking taking = {.run = run, .flags = writes ? MZ_PIN_WRITE : MZ_PIN_READ};
    size_t bytes = ggml_row_size(rows->type, rows->ne[0]);
    int err = 0;

    for (int64_t i = 0; i < index->ne[0] && !err; i++) {
        int64_t row = mz_index_at(index, i);
        if (row >= 0 && row < rows->ne[1])
            err = mz_touch_range(rows, (char *)rows->data + (size_t)row * rows->nb[1], bytes, take_unit,
                                 &taking);
    }
    return err;
}

static int take_special(struct run *run, const struct mz_special *special)
{
    const struct ggml_tensor *node = run->graph->nodes[special->node];
    struct taking taking = {.run = run, .flags = MZ_PIN_WRITE};

    switch (special->kind) {
    case MZ_NODE_ROWS:
        return take_rows(run, node);
    case MZ_NODE_SHIFT:
        return mz_shift_units(node, take_unit, &taking);
    default:
        return 0;
    }
}

static int run_begin(struct run *run)
{
    const struct mz_plan *plan = run->plan;
    int err = 0;

    run->room = plan->n_pins + 2 * plan->n_specials + 16;
    run->pins = mz_alloc(run->room * sizeof(*run->pins));
    run->row_end = mz_calloc(plan->n_specials + 1, sizeof(*run->row_end));
    if (!run->pins || !run->row_end)
        return -ENOMEM;
    run->n = plan->n_pins;
    if (plan->n_pins)
        memcpy(run->pins, plan->pins, plan->n_pins * sizeof(*run->pins));
    for (uint32_t i = 0; i < plan->n_specials && !err; i++) {
        err = take_special(run, &plan->specials[i]);
        run->row_end[i] = run->n_row_refs;
    }
    return err;
}

static void run_free(struct run *run)
{
    free(run->pins);
    free(run->row_refs);
    free(run->row_end);
    free(run->mark);
    free(run->held);
}

/* ---- computing */

static int compute_plain(struct run *run, int from, int to)
{
    const struct mz_plan *plan = run->plan;
    struct mz_engine *stream = run->backend->stream;

    if (from >= to)
        return 0;
    if (plan->n_sites == 0)
        return stream->ops->compute(stream, run->graph, from, to);
    struct ggml_cgraph graph = *run->graph; /* the same graph with other nodes for attention */
    graph.nodes = plan->nodes;
    graph.n_nodes = plan->node_at[plan->n_nodes];
    return stream->ops->compute(stream, &graph, plan->node_at[from], plan->node_at[to]);
}

/* Nodes [from, to) with those among them that are computed in another way. */
static int compute_nodes(struct run *run, int from, int to)
{
    const struct mz_plan *plan = run->plan;
    int err = 0;

    for (uint32_t i = 0; i < plan->n_specials && plan->specials[i].node < to && !err; i++) {
        int node = plan->specials[i].node;
        if (node < from || plan->specials[i].kind != MZ_NODE_SHIFT)
            continue;
        err = compute_plain(run, from, node);
        if (!err)
            err = mz_shift_compute(run->backend->stream, run->graph, node);
        from = node + 1;
    }
    return err ? err : compute_plain(run, from, to);
}

static void learn_speed(struct run *run, int from, int to, uint64_t ns)
{
    double ops = 0, *known = &run->backend->ns_per_op[run->plan->batch_rows >= BATCH_ROWS];

    for (int i = from; i < to; i++)
        ops += run->plan->cost[i];
    if (ops >= 1e6)
        *known = 0.7 * *known + 0.3 * ((double)ns / ops);
}

/* First swap of a node not before `from`. */
static uint32_t first_swap(const struct mz_plan *plan, int from)
{
    uint32_t lo = 0, hi = plan->n_swaps;

    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (plan->swaps[mid].node < from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Units of the nodes are held. The weights' own tensors are back in their places whatever happens. */
static int compute(struct run *run, int from, int to)
{
    const struct mz_plan *plan = run->plan;
    struct ggml_tensor **nodes = run->graph->nodes;
    uint32_t first = first_swap(plan, from), end = first;
    struct ggml_tensor **own = mz_alloc((plan->n_swaps + 1) * sizeof(struct ggml_tensor *));

    if (!own)
        return -ENOMEM;
    for (; end < plan->n_swaps && plan->swaps[end].node < to; end++) {
        struct ggml_tensor *shadow = mz_record_shadow(plan->swaps[end].record);
        own[end] = nodes[plan->swaps[end].node]->src[0];
        if (shadow)
            nodes[plan->swaps[end].node]->src[0] = shadow;
    }
    uint64_t start = mz_os_now_ns();
    int err =
        mz_attend_begin(run->backend->attend, plan, run->graph, from, to, run->backend->threads, run->late);
    if (!err) {
        err = compute_nodes(run, from, to);
        int failed = mz_attend_end(plan, from, to, run->late, &run->failed_node);
        err = err ? err : failed;
    }
    if (!err && !run->late) /* attention may have waited */
        learn_speed(run, from, to, mz_os_now_ns() - start);
    for (uint32_t i = first; i < end; i++)
        nodes[plan->swaps[i].node]->src[0] = own[i];
    free(own);
    return err;
}

/* The end of a slice that starts at `from`: at most SLICE_NS, at least one node that does something. */
static int slice_end(const struct run *run, int from)
{
    const struct mz_plan *plan = run->plan;
    double ns_per_op = run->backend->ns_per_op[plan->batch_rows >= BATCH_ROWS], ns = 0;
    int i = from;

    for (; i < plan->n_nodes; i++) {
        double more = plan->cost[i] * ns_per_op;
        if (ns > 0 && ns + more > SLICE_NS)
            break;
        ns += more;
    }
    return i;
}

/* ---- everything is there */

/* Runs all, or up to a slice border where memory is wanted; *ret_next is the node to go on with. */
static int run_pinned(struct run *run, int *ret_next)
{
    const struct mz_plan *plan = run->plan;
    double ns = plan->total_cost * run->backend->ns_per_op[plan->batch_rows >= BATCH_ROWS];
    int i = 0, err = 0;

    *ret_next = plan->n_nodes;
    if (plan->in_place || ns <= 2 * SLICE_NS)
        return compute(run, 0, plan->n_nodes);
    while (i < plan->n_nodes && !err) {
        int end = slice_end(run, i);
        err = compute(run, i, end);
        i = end;
        if (mz_gate_cut_wanted(run->backend->core))
            break;
    }
    *ret_next = i;
    return err;
}

/* ---- something is missing */

bool mz_abort_wanted(void *user)
{
    const struct mz_backend *backend = user;

    return backend->abort && backend->abort(backend->abort_data);
}

/* Puts pin `i` among those to be held with the next node, once per slice. */
static void collect(struct run *run, uint32_t i, uint32_t *n)
{
    if (run->mark[i] == run->slice)
        return;
    run->mark[i] = run->slice;
    run->held[run->n_held + (*n)++] = run->pins[i];
}

struct expert_pick {
    struct run *run;
    uint32_t *n;
};

static int collect_unit(void *user, struct mz_unit *unit)
{
    struct expert_pick *pick = user;
    uint32_t i = mz_plan_find(pick->run->plan, unit);

    if (i != UINT32_MAX)
        collect(pick->run, i, pick->n);
    return 0;
}

/* Only the experts that the index names; it is computed by now. False: it lies where we cannot read it. */
static bool collect_experts(struct run *run, const struct ggml_tensor *node, uint32_t *n)
{
    const struct ggml_tensor *ids = node->src[2], *weights = node->src[0];
    const struct mz_buffer *ours = mz_buffer_of(ids);
    ggml_backend_buffer_t buffer = ids->view_src ? ids->view_src->buffer : ids->buffer;
    struct expert_pick pick = {.run = run, .n = n};

    if (ids->type != GGML_TYPE_I32 ||
        !((ours && atomic_load(&ours->scratch)) || (buffer && ggml_backend_buffer_is_host(buffer))))
        return false;
    for (int64_t t = 0; t < ids->ne[1]; t++) {
        for (int64_t e = 0; e < ids->ne[0]; e++) {
            const char *at = (const char *)ids->data + (size_t)t * ids->nb[1] + (size_t)e * ids->nb[0];
            int64_t expert = *(const int32_t *)(const void *)at;
            if (expert >= 0 && expert < weights->ne[2])
                (void)mz_touch_range(weights, (char *)weights->data + (size_t)expert * weights->nb[2],
                                     weights->nb[2], collect_unit, &pick);
        }
    }
    return true;
}

/* Whether the pin belongs to the experts' tensor, which collect_experts() already chose from. */
static bool is_of(const struct mz_unit *unit, const struct mz_record *record)
{
    uint32_t n = mz_tensor_units(record->handle);

    return unit >= mz_tensor_unit(record->handle, 0) && unit <= mz_tensor_unit(record->handle, n - 1);
}

/* What node i needs and the slice does not hold yet, behind what is held. */
static uint32_t collect_node(struct run *run, int i)
{
    const struct mz_plan *plan = run->plan;
    const struct mz_record *experts = NULL;
    uint32_t n = 0;

    while (run->special < plan->n_specials && plan->specials[run->special].node < i)
        run->special++;
    for (uint32_t s = run->special; s < plan->n_specials && plan->specials[s].node == i; s++) {
        if (plan->specials[s].kind == MZ_NODE_EXPERTS) {
            if (collect_experts(run, run->graph->nodes[i], &n))
                experts = mz_record_of(run->graph->nodes[i]->src[0]);
            continue;
        }
        for (uint32_t r = s ? run->row_end[s - 1] : 0; r < run->row_end[s]; r++)
            collect(run, run->row_refs[r], &n);
    }
    if (run->late && mz_attend_is_site(plan, i))
        return n; /* the computing threads pin what it needs */
    for (uint32_t r = i ? plan->ref_end[i - 1] : 0; r < plan->ref_end[i]; r++)
        if (!experts || !is_of(run->pins[plan->refs[r]].unit, experts))
            collect(run, plan->refs[r], &n);
    return n;
}

/* Whether node i names its experts by what a node of [from, i) computes: the slice has to end before it. */
static bool waits_for_index(const struct run *run, int from, int i)
{
    const struct mz_plan *plan = run->plan;

    for (uint32_t s = run->special; s < plan->n_specials && plan->specials[s].node <= i; s++)
        if (plan->specials[s].node == i && plan->specials[s].kind == MZ_NODE_EXPERTS)
            return plan->specials[s].ready_at > from;
    return false;
}

/* Pins for a slice from node `from` on; *ret_end is its end. Waits for the first node only. */
static int pin_slice(struct run *run, int from, int *ret_end)
{
    struct mz_core *core = run->backend->core;
    int limit = slice_end(run, from), i = from;

    run->slice++;
    run->n_held = 0;
    for (; i < limit; i++) {
        if (i > from && waits_for_index(run, from, i))
            break;
        uint32_t n = collect_node(run, i);
        if (run->late && mz_attend_is_site(run->plan, i))
            limit =
                i +
                1; /* computed again if it fails, so nothing behind it may have reused its inputs' memory */
        if (n == 0)
            continue;
        int err = run->n_held == 0 ? mz_gate_pin(core, run->held, n, mz_abort_wanted, run->backend)
                                   : mz_gate_try_pin(core, run->held + run->n_held, n);
        if (err && run->n_held == 0)
            return err;
        if (err)
            break;
        run->n_held += n;
    }
    *ret_end = i;
    return 0;
}

/* One slice from node `from` on. */
static int run_slice(struct run *run, int from, int *ret_next)
{
    int end, err = pin_slice(run, from, &end);

    if (err)
        return err;
    err = compute(run, from, end);
    mz_gate_unpin(run->backend->core, run->held, run->n_held);
    if (!err)
        *ret_next = end;
    return err;
}

/* Attention that takes chunks late holds them beside what else its slice holds, and under a limit both may be
 * too much. It is then computed again in a slice that begins with it and waits for them as for anything else.
 */
static int run_slices(struct run *run, int from)
{
    const struct mz_plan *plan = run->plan;
    int err = 0, i = from, alone = -1;

    run->mark = mz_calloc(run->n + 1, sizeof(*run->mark));
    run->held = mz_calloc(run->n + 1, sizeof(*run->held));
    if (!run->mark || !run->held)
        return -ENOMEM;
    while (i < plan->n_nodes && !err) {
        run->late = i != alone;
        run->failed_node = -1;
        err = run_slice(run, i, &i);
        if (err == -ENOSPC && run->failed_node >= 0) {
            alone = i = run->failed_node;
            err = 0;
        }
    }
    return err;
}

static int run_graph(struct run *run)
{
    struct mz_core *core = run->backend->core;
    int next = 0, err = run_begin(run);

    if (err)
        return err;
    err = mz_gate_try_pin(core, run->pins, run->n);
    if (err && run->plan->in_place)
        err = mz_gate_pin(core, run->pins, run->n, mz_abort_wanted, run->backend);
    else if (err)
        return run_slices(run, 0);
    if (err)
        return err;
    err = run_pinned(run, &next);
    mz_gate_unpin(core, run->pins, run->n);
    return err || next >= run->plan->n_nodes ? err : run_slices(run, next);
}

/* ---- plans */

static struct mz_plan **oldest(struct mz_backend *backend)
{
    struct mz_plan **old = &backend->plans[0];

    for (int i = 0; i < MZ_PLANS_KEPT; i++) {
        if (!backend->plans[i])
            return &backend->plans[i];
        if (backend->plans[i]->age < (*old)->age)
            old = &backend->plans[i];
    }
    return old;
}

static uint64_t pins_bytes(const struct mz_plan *plan, uint32_t from, uint32_t to)
{
    uint64_t bytes = 0;

    for (uint32_t r = from; r < to; r++)
        bytes += mz_unit_span_bytes(plan->pins[plan->refs[r]].unit);
    return bytes;
}

/* What the graph has to hold at once: the units of its largest node, or all that a graph touches which cannot
 * be cut. Of a node with experts that is all of them, though a slice pins only those that the router chose:
 * which these are is not known yet, and a batch of n_expert / n_expert_used tokens, as every prompt is, may
 * need each. A floor that is right while single tokens are generated would be raised by the next prompt. */
static uint64_t need_of(const struct mz_plan *plan)
{
    uint64_t most = 0;

    for (uint32_t p = 0; plan->in_place && p < plan->n_pins; p++)
        most += mz_unit_span_bytes(plan->pins[p].unit);
    for (int i = 0; !plan->in_place && i < plan->n_nodes; i++) {
        uint64_t bytes = pins_bytes(plan, i > 0 ? plan->ref_end[i - 1] : 0, plan->ref_end[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The plan for a graph, from the cache or new; one without a uid takes a place in it too, and is never found
 * again. */
static int plan_for(struct mz_backend *backend, struct ggml_cgraph *graph, struct mz_plan **ret)
{
    for (int i = 0; i < MZ_PLANS_KEPT; i++) {
        if (backend->plans[i] && mz_plan_is_for(backend->plans[i], graph)) {
            *ret = backend->plans[i];
            (*ret)->age = ++backend->age;
            return 0;
        }
    }
    struct mz_plan **place = oldest(backend), *plan;
    int err = mz_plan_create(graph, &plan);
    if (err)
        return err;
    mz_plan_destroy(*place);
    *place = plan;
    plan->age = ++backend->age;
    mz_gate_need(backend->core, need_of(plan));
    *ret = plan;
    return 0;
}

void mz_graph_forget(struct mz_backend *backend)
{
    for (int i = 0; i < MZ_PLANS_KEPT; i++) {
        mz_plan_destroy(backend->plans[i]);
        backend->plans[i] = NULL;
    }
}

static enum ggml_status status_of(int err)
{
    switch (err) {
    case 0:
        return GGML_STATUS_SUCCESS;
    case -ECANCELED:
        return GGML_STATUS_ABORTED;
    case -ENOMEM:
        return GGML_STATUS_ALLOC_FAILED;
    default:
        return GGML_STATUS_FAILED;
    }
}

enum ggml_status mz_graph_compute(struct mz_backend *backend, struct ggml_cgraph *graph)
{
    struct mz_plan *plan = NULL;

    if (graph->n_nodes == 0)
        return GGML_STATUS_SUCCESS;
    if (mz_process_forked()) {
        mz_log(MZ_LOG_ERROR, "a forked child cannot compute: it has not the model's memory");
        return GGML_STATUS_FAILED;
    }
    for (int i = 0; i < 2; i++)
        if (backend->ns_per_op[i] <= 0)
            backend->ns_per_op[i] = first_ns_per_op[i];
    int err = plan_for(backend, graph, &plan);
    if (!err) {
        struct run run = {.backend = backend, .graph = graph, .plan = plan};
        mz_scratch_begin(plan);
        mz_gate_enter(backend->core);
        err = run_graph(&run);
        mz_gate_leave(backend->core);
        if (!err)
            mz_scratch_end(plan);
        run_free(&run);
    }
    if (err && err != -ECANCELED)
        mz_log(MZ_LOG_ERROR, "a graph of %d nodes failed: %s", graph->n_nodes, mz_log_errno(err));
    return status_of(err);
}
