/* The consumption order: the rank of every unit, learned from graphs.
 *
 * A pass is one run over the model: the splits of one decode, each taught in turn, merged until a unit is heard twice. A
 * pass replaces the order when it covers as many units as the one that gave it, so that an adapter or an encoder does not
 * reorder the model. Units that no adopted pass read keep their former order behind all others: unread for long is first
 * out. Before the first graph the order is by address. Lock: core->lock. */
#include <stdlib.h>

#include "core/state.h"

void mz_order_changed(struct mz_core *core)
{
    core->sequence_stale = true;
}

static const char *address(const struct mz_unit *unit)
{
    return (const char *)unit->tensor->region->base + mz_unit_offset(unit);
}

static int by_rank(const void *a, const void *b)
{
    const struct mz_unit *x = *(struct mz_unit *const *)a, *y = *(struct mz_unit *const *)b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return address(x) < address(y) ? -1 : address(x) > address(y);
}

/* core->sequence has room for all units since they were added. */
int mz_order_refresh(struct mz_core *core)
{
    if (!core->sequence_stale)
        return 0;
    uint32_t n = 0;
    for (struct mz_region *region = core->regions; region; region = region->next)
        for (uint32_t i = 0; i < region->n; i++)
            for (uint32_t u = 0; u < region->tensors[i]->n; u++)
                core->sequence[n++] = &region->tensors[i]->units[u];
    qsort(core->sequence, n, sizeof(struct mz_unit *), by_rank);
    for (uint32_t i = 0; i < n; i++)
        core->sequence[i]->order = i;
    core->sequence_stale = false;
    core->cursor = 0;
    return 0;
}

uint32_t mz_order_here(const struct mz_core *core)
{
    return core->position < core->adopted ? core->position : 0;
}

uint32_t mz_order_behind(const struct mz_core *core)
{
    return core->position < core->adopted ? core->adopted - core->position : 0;
}

struct mz_unit *mz_order_next(const struct mz_core *core, uint32_t k)
{
    uint32_t ahead = core->adopted - mz_order_here(core);

    if (k < core->adopted)
        k = k < ahead ? k + mz_order_here(core) : k - ahead;
    return core->sequence[k];
}

uint32_t mz_order_place(const struct mz_core *core, const struct mz_unit *unit)
{
    uint32_t here = mz_order_here(core), rank = unit->order;

    if (rank >= core->adopted)
        return rank;
    return rank >= here ? rank - here : rank + core->adopted - here;
}

/* The tensor's units leave: out of the pass, and the order is rebuilt before it is used again. */
void mz_order_forget(struct mz_core *core, struct mz_tensor *tensor)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < tensor->n; i++) {
        core->adopted -= tensor->units[i].adopted;
        tensor->units[i].adopted = false;
    }

    for (uint32_t i = 0; i < core->n_pass; i++)
        if (core->pass[i]->tensor != tensor)
            core->pass[kept++] = core->pass[i];
    core->n_pass = kept;
    core->sequence_stale = true;
}

static void adopt(struct mz_core *core)
{
    mz_order_refresh(core);
    for (uint32_t i = 0; i < core->n_units; i++) {
        core->sequence[i]->order = core->n_pass + core->sequence[i]->order;
        core->sequence[i]->adopted = false;
    }
    for (uint32_t i = 0; i < core->n_pass; i++) {
        core->pass[i]->order = i;
        core->pass[i]->adopted = true;
    }
    core->adopted = core->n_pass;
    core->sequence_stale = true;
    mz_order_refresh(core);
}

void mz_core_teach(struct mz_core *core, const struct mz_lesson *lessons, uint32_t n)
{
    pthread_mutex_lock(&core->lock);
    bool again = core->pass_number == 0;
    for (uint32_t i = 0; i < n && !again; i++)
        again = lessons[i].unit->heard == core->pass_number;
    if (again) {
        core->pass_number++;
        core->n_pass = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct mz_unit *unit = lessons[i].unit;
        if (unit->heard == core->pass_number)
            continue;
        unit->heard = core->pass_number;
        unit->layer = lessons[i].layer;
        core->pass[core->n_pass++] = unit;
    }
    if (core->n_pass >= core->adopted)
        adopt(core);
    pthread_mutex_unlock(&core->lock);
}
