/* Running a graph behind the gate.
 *
 * Everything it touches is in memory: it is pinned in one step and runs in one piece, or, when it will take
 * long, in slices between which an eviction may come in. Otherwise it runs slice by slice: the units of the
 * next node are waited for, those of the nodes behind it are taken as long as they are there, that run of
 * nodes is computed, and all of it is let go. A product with a large weight that is not all there is a slice of
 * its own, computed as the rows of the weight come in (rows.c). A graph that changes persistent memory in place
 * is not cut: half of it done twice, or not at all, gives wrong answers later. It starts when everything is there.
 *
 * Packed weights stand in as shadows only while their nodes are computed and their units are held. All state
 * belongs to the thread that computes. */
#include <errno.h>
#include <stdlib.h>

#include "control/process.h"
#include "ggml/graph_int.h"
#include "os/fault.h"
#include "os/log.h"
#include "os/os.h"

/* A slice of a long graph; an eviction waits for at most one of them, or for one node. */
#define SLICE_NS 50e6

/* Before anything is measured: 10 and 50 operations per ns. Slow guesses make short slices. */
static const double first_ns_per_op[2] = {0.1, 0.02};

/* Rows of a product from which on a graph counts as a batch. */
#define BATCH_ROWS 8

/* ---- computing */

int mz_graph_compute_node(struct mz_engine *stream, struct ggml_cgraph *graph, struct ggml_tensor *node)
{
    struct ggml_cgraph piece = ggml_graph_view(graph, 0, 0);

    piece.nodes = &node;
    piece.n_nodes = 1;
    return stream->ops->compute(stream, &piece, 0, 1);
}

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

/* Whether node i names its experts by what a node of [from, i) computes: the slice has to end before it. */
static bool waits_for_index(const struct run *run, int from, int i)
{
    const struct mz_plan *plan = run->plan;

    for (uint32_t s = run->special; s < plan->n_specials && plan->specials[s].node <= i; s++)
        if (plan->specials[s].node == i && plan->specials[s].kind == MZ_NODE_EXPERTS)
            return plan->specials[s].ready_at > from;
    return false;
}

/* Pins for a slice from node `from` on; *ret_end is its end. Waits for the first node that needs something only, and
 * never for all of a weight whose rows can come one run after the other: that is left to a slice of its own. */
static int pin_slice(struct run *run, int from, int *ret_end)
{
    struct mz_core *core = run->backend->core;
    int limit = slice_end(run, from), i = from;

    run->slice++;
    run->n_held = 0;
    for (; i < limit; i++) {
        if (i > from && (waits_for_index(run, from, i) || (run->n_held == 0 && mz_plan_by_rows(run->plan, i))))
            break;
        uint32_t n = mz_run_collect(run, i);
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
    int end, err;

    if (mz_plan_by_rows(run->plan, from)) {
        err = mz_rows_compute(run->backend, run->graph, from);
        *ret_next = err ? from : from + 1;
        return err;
    }
    err = pin_slice(run, from, &end);
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
    int next = 0, err = mz_run_begin(run);

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
    int err = mz_plan_for(backend, graph, &plan);
    if (!err) {
        struct run run = {.backend = backend, .graph = graph, .plan = plan};
        mz_scratch_begin(plan);
        mz_gate_enter(backend->core);
        err = run_graph(&run);
        mz_gate_leave(backend->core);
        if (!err)
            mz_scratch_end(plan);
        mz_run_free(&run);
    }
    if (err && err != -ECANCELED)
        mz_log(MZ_LOG_ERROR, "a graph of %d nodes failed: %s", graph->n_nodes, mz_log_errno(err));
    return status_of(err);
}
