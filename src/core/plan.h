/* The plan: which units leave memory next, and where each goes. A pure function of sizes, times and what is
 * evicted already; it allocates nothing, locks nothing and takes time about linear in the number of
 * candidates.
 *
 * Two restore paths run at once: storage (model files and the swap file) and the stack (compressed KV in
 * memory). How much will be asked for in the end is unknown, so every step must leave the two paths with
 * about equal work, and KV, the only thing that can go either way, must be saved up for the weights, which
 * can only come from storage (paper, section 4.3, Algorithm 1, Figure 7):
 *
 *   KVonly   more KV than the weights' reload can hide: KV to both places, split by their times
 *   KVandW   KV onto the stack while weights are dropped
 *   Wonly    no KV left: weights
 *   CompKV   only the stack is left: it moves to storage
 *
 * Two rules. MZ_RULE_PUBLISHED is Algorithm 1 word for word on counts: T = N_W * floor(t_r(W) / t_d(KV)).
 * MZ_RULE_EXACT does the same on times: it compares the decoding time of all KV with the reading time of all
 * weights instead of counts with T, and gives each unit to the path that would finish first. It has no floor
 * to lose time in, follows layers and chunks of unequal size, and corrects itself after partial restores. */
#ifndef MZ_CORE_PLAN_H
#define MZ_CORE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"

enum mz_rule {
    MZ_RULE_EXACT,
    MZ_RULE_PUBLISHED,
};

enum mz_action {
    MZ_KEEP,  /* never part of a plan */
    MZ_DROP,  /* release: a valid copy is in the model file or the store */
    MZ_STORE, /* write to the store, then release */
    MZ_STACK, /* encode onto the stack, then release */
    MZ_SINK,  /* the slot on the stack moves to the store (of a clean unit: is dropped, nothing is written) */
};

/* One candidate: in memory or on the stack, and free to go (not pinned, nothing in flight). */
struct mz_plan_unit {
    enum mz_kind kind;     /* not scratch */
    uint32_t layer;        /* weights: which layer it counts for (published rule) */
    uint64_t memory_bytes; /* what evicting it frees, as counted; on the stack: its slot */
    uint64_t plain_bytes;
    uint64_t coded_bytes; /* KV in memory: what it will take on the stack; 0: no codec applies */
    bool clean;           /* a copy is valid */
    bool on_stack;
    double read_ns;   /* restoring it from storage (on the stack: of what sinks) */
    double decode_ns; /* restoring it from the stack */
};

struct mz_plan_input {
    const struct mz_plan_unit *units; /* in the order in which they are to leave (backward-out usually) */
    uint32_t n;
    uint64_t wanted_bytes;

    /* What is evicted already, over the whole process. Layers: of those with weights that can be evicted, the
     * ones of which nothing is in memory any more. KV: written chunks that a codec applies to. Only the
     * published rule counts. */
    uint64_t weight_layers, weight_layers_evicted;
    uint64_t kv_units, kv_on_stack, kv_on_store;

    /* Restore time outstanding on each path, nanoseconds: sums of the evicted units' read_ns and
     * decode_ns. */
    double store_ns, stack_ns;

    /* Published rule: t_r(W) of a layer, t_r(KV) and t_d(KV) of a chunk, means over all there are, evicted or
     * not. 0: the mean of the candidates, which moves as they become fewer. */
    double layer_read_ns, chunk_read_ns, chunk_decode_ns;

    enum mz_rule rule;
    bool stack_allowed; /* false: KV must stay bit-exact, all of it goes to the store */
};

struct mz_plan_step {
    uint32_t unit;  /* index into units */
    uint8_t action; /* enum mz_action */
};

/* Writes the steps, in the order in which they are to be carried out, to `steps` (room for n), their number
 * and the bytes that they free (memory_bytes, less coded_bytes for those stacked). Stops at the first step
 * that reaches wanted_bytes, so freed < wanted + the last unit; freed < wanted only when every candidate is
 * used (then each unit that is stacked by this plan is still on the stack: ask again with it as a candidate).
 * The same state gives the same plan; a plan for less is a prefix of a plan for more. Times that are negative
 * or not finite count as 0. -EINVAL: a NULL, an unknown rule or kind. */
int mz_plan_make(const struct mz_plan_input *input, struct mz_plan_step *steps, uint32_t *ret_n,
                 uint64_t *ret_freed);

/* The stage of the next step: "KVonly", "KVandW", "Wonly", "CompKV"; "OnePath" when there is KV but none that
 * may go onto the stack; "none" when there is no candidate. A constant string. */
const char *mz_plan_stage(const struct mz_plan_input *input);

#endif
