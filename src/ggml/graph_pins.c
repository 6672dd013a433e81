/* Which units a run of a graph needs: what its plan says, and the rows, tokens and experts that only this run names.
 *
 * Rows and tokens are known before the graph runs (their indices are its inputs), so their pins are added to the plan's
 * at the start. Experts are named by what the graph computes: of their pins, a slice takes those that were chosen. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/graph_int.h"
#include "os/fault.h"

/* ---- rows and tokens that this run touches */

static int add_pin(struct run *run, struct mz_unit *unit, uint8_t flags, uint32_t *ret)
{
    uint32_t i = mz_plan_find(run->plan, unit);

    for (uint32_t j = run->n; i == UINT32_MAX && j-- > run->plan->n_pins;)
        if (run->pins[j].unit == unit)
            i = j;
    if (i == UINT32_MAX) {
        struct mz_pin *pins = mz_grow(run->pins, run->n, &run->room, sizeof(*pins));
        if (!pins)
            return -ENOMEM;
        run->pins = pins;
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
    uint32_t *refs = mz_grow(run->row_refs, run->n_row_refs, &run->row_refs_room, sizeof(*refs));
    if (!refs)
        return -ENOMEM;
    run->row_refs = refs;
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

int mz_run_begin(struct run *run)
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

void mz_run_free(struct run *run)
{
    free(run->pins);
    free(run->row_refs);
    free(run->row_end);
    free(run->mark);
    free(run->held);
}

/* ---- what a node needs */

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
    struct expert_pick pick = {.run = run, .n = n};

    if (ids->type != GGML_TYPE_I32 || !mz_is_readable(ids))
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

uint32_t mz_run_collect(struct run *run, int i)
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
