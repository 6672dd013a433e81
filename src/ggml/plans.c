/* The plans of one backend: the last few, by graph uid, and the room that each says it needs at once. State belongs to the
 * thread that computes. */
#include "ggml/glue.h"

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

/* What the graph has to hold at once: the units of its largest node or run of rows, or all that a graph touches
 * which cannot be cut. Of a node with experts that is all of them, though a slice pins only those that the router chose.
 * Which these are is not known yet. Their number is (n_expert_used for each token, as many as there are at most), but it
 * would bound nothing that lasts: a batch of n_expert / n_expert_used tokens, as every prompt is, may choose each, and
 * llama.cpp's warm-up does. A floor that is right while single tokens are generated would let a limit be set that the
 * next prompt raises. */
static uint64_t need_of(const struct mz_plan *plan, const struct ggml_cgraph *graph)
{
    uint64_t most = 0;

    for (uint32_t p = 0; plan->in_place && p < plan->n_pins; p++)
        most += mz_unit_span_bytes(plan->pins[p].unit);
    for (int i = 0; !plan->in_place && i < plan->n_nodes; i++) {
        uint64_t bytes = mz_plan_by_rows(plan, i)
                             ? mz_rows_need(graph->nodes[i], plan->threads)
                             : pins_bytes(plan, i > 0 ? plan->ref_end[i - 1] : 0, plan->ref_end[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* A graph without a uid takes a place, too, and is never found again. */
int mz_plan_for(struct mz_backend *backend, struct ggml_cgraph *graph, struct mz_plan **ret)
{
    for (int i = 0; i < MZ_PLANS_KEPT; i++) {
        if (backend->plans[i] && mz_plan_is_for(backend->plans[i], graph, backend->threads)) {
            *ret = backend->plans[i];
            (*ret)->age = ++backend->age;
            return 0;
        }
    }
    struct mz_plan **place = oldest(backend), *plan;
    int err = mz_plan_create(graph, backend->threads, &plan);
    if (err)
        return err;
    mz_plan_destroy(*place);
    *place = plan;
    plan->age = ++backend->age;
    mz_gate_need(backend->core, need_of(plan, graph));
    *ret = plan;
    return 0;
}

void mz_plans_forget(struct mz_backend *backend)
{
    for (int i = 0; i < MZ_PLANS_KEPT; i++) {
        mz_plan_destroy(backend->plans[i]);
        backend->plans[i] = NULL;
    }
}
