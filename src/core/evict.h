/* Evicting, inside. Private to evict*.c. */
#ifndef MZ_CORE_EVICT_H
#define MZ_CORE_EVICT_H

#include "core/plan.h"
#include "core/state.h"

/* Units copied and released together, at most; from half of them on a group ends at the border of a huge page. */
#define MZ_GROUP 32u

/* One eviction. Belongs to the thread that holds evict_turn. */
struct mz_eviction {
    struct mz_core *core;
    uint64_t wanted, freed,
        stack_before; /* freed: released by now; the stack's growth is taken off at the end */
    struct mz_evict_report report;
    struct mz_transfer *transfer; /* of MZ_GROUP requests; NULL: none could be opened */
    bool no_store, no_stack;      /* writing or stacking failed: go on without */
    int err;
};

/* ---- evict_release.c; without the lock */

/* What the page tables have in [lo, hi) of a region, in bytes. */
uint64_t mz_evict_count(struct mz_region *region, uint64_t lo, uint64_t hi);

/* Releases [lo, hi) of a region. Adds what was counted to *freed. */
int mz_evict_release(struct mz_region *region, uint64_t lo, uint64_t hi, uint64_t *freed);

/* Says once that memory cannot be released, and what to do. */
void mz_evict_say_locked(int err);

/* ---- evict_input.c; lock held */

/* Released pages, less what the stack grew by, or with what it shrank by. */
uint64_t mz_evict_net_freed(const struct mz_eviction *eviction);

/* Everything that may leave now, as the plan wants to see it. Unit i of it is core->plan_from[i]. */
void mz_evict_input(struct mz_eviction *eviction, struct mz_plan_input *ret);

/* ---- evict_group.c */

/* Runs the n steps of core->plan_steps. Returns whether any unit left. Lock held, dropped meanwhile. */
bool mz_evict_carry_out(struct mz_eviction *eviction, uint32_t n);

#endif
