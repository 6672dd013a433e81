/* The plan: a pure function over the candidates. No state outlives a call, nothing is locked or allocated.
 *
 * Candidates fall into four queues, each in the caller's order: KV that a codec applies to ("coded", the
 * lever), what only storage can bring back (weights, and KV without a codec), other persistent units, and
 * slots on the stack. Two sums say how long each path will be busy restoring what is evicted, two more what
 * the candidates would add.
 *
 * Where the paper is silent:
 *
 * - Decoding slower than reading a layer (t_d > t_r(W)). The published floor is 0 then, and T too: all KV
 *   leaves in KVonly and the weights in Wonly, unbalanced. The exact rule has no floor.
 * - No weights that can be evicted. T is 0: KVonly for all KV, then CompKV. Both rules.
 * - Weights gone and KV left (after partial restores or new tokens; Algorithm 1 would go on to CompKV with KV
 *   still in memory). KV goes to both places as in KVonly: nothing has to be saved up any more.
 * - Tiny models, layers of unequal size, several contexts. The exact rule looks at each unit's own times and
 *   at nothing else. The published rule takes means over all; a layer counts as dropped with its last unit.
 * - KV without a codec (quantised, or the user asked for exact bytes). It can only come from storage, like a
 *   weight: it leaves in the same queue, in the order of use, and the coded KV is saved up for it too. With
 *   no coded KV at all there is one path, every order costs the same time, and strict backward order lets
 *   computing start earliest.
 * - Other units (recurrent state, adapters). They leave last among what is in memory: a graph that changes
 *   such a unit in place cannot start before all of it is back, so each of them delays the first layer.
 * - A KV chunk with a valid copy in the store. Where it goes is decided by time alone; if to the store,
 *   nothing is written.
 * - CompKV. Backward as well, so that what is left on the stack is what is needed first. */
#include "core/plan.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>

enum queue { CODED, FIXED, OTHERS, STACKED, QUEUES };
enum stage { KV_ONLY, KV_AND_W, W_ONLY, ONE_PATH, COMP_KV, NONE };

struct planner {
    const struct mz_plan_input *in;
    struct mz_plan_step *steps; /* NULL: only the stage is asked for */
    uint32_t n_steps;
    uint64_t freed_bytes;
    uint32_t next[QUEUES]; /* first unit of each queue that is left, or in->n */
    uint64_t fixed_kv;     /* KV units left in FIXED */

    /* Nanoseconds: outstanding on each path; what the candidates left would add: decoding of CODED, reading
     * of FIXED and OTHERS. */
    double store_ns, stack_ns, coded_left_ns, fixed_left_ns;

    /* Published rule only. */
    double layer_read_ns, chunk_read_ns, chunk_decode_ns;
    uint64_t chunks_per_layer;                /* floor(t_r(W) / t_d(KV)) */
    uint64_t threshold;                       /* T */
    uint64_t kv_total, kv_stacked, kv_stored; /* chunks */
    uint64_t layers_dropped;
};

/* -------------------------------------------------------------------------------- the queues */

static double time_of(double ns)
{
    return isfinite(ns) && ns > 0 ? ns : 0;
}

static double read_ns(const struct planner *p, uint32_t i)
{
    return time_of(p->in->units[i].read_ns);
}

static double decode_ns(const struct planner *p, uint32_t i)
{
    return time_of(p->in->units[i].decode_ns);
}

static enum queue queue_of(const struct mz_plan_input *in, const struct mz_plan_unit *unit)
{
    if (unit->on_stack)
        return STACKED;
    if (unit->kind == MZ_KIND_OTHER)
        return OTHERS;
    bool coded = unit->kind == MZ_KIND_KV && in->stack_allowed && unit->coded_bytes > 0 &&
                 unit->coded_bytes < unit->memory_bytes;
    return coded ? CODED : FIXED;
}

/* The first unit of the queue from `i` on, or n. */
static uint32_t seek(const struct mz_plan_input *in, enum queue queue, uint32_t i)
{
    while (i < in->n && queue_of(in, &in->units[i]) != queue)
        i++;
    return i;
}

static bool has(const struct planner *p, enum queue queue)
{
    return p->next[queue] < p->in->n;
}

/* Whether no weight of the unit's layer comes after it. Weights of a layer stand together or nearly so in any
 * order worth having: the search is short but for the last one. */
static bool is_last_of_layer(const struct mz_plan_input *in, uint32_t i)
{
    for (uint32_t j = i + 1; j < in->n; j++)
        if (in->units[j].kind == MZ_KIND_WEIGHT && in->units[j].layer == in->units[i].layer)
            return false;
    return true;
}

static int check(const struct mz_plan_input *in)
{
    if (!in || (in->n && !in->units) || (in->rule != MZ_RULE_EXACT && in->rule != MZ_RULE_PUBLISHED))
        return -EINVAL;
    for (uint32_t i = 0; i < in->n; i++) {
        enum mz_kind kind = in->units[i].kind;
        if (kind != MZ_KIND_WEIGHT && kind != MZ_KIND_KV && kind != MZ_KIND_OTHER)
            return -EINVAL;
    }
    return 0;
}

/* -------------------------------------------------------------------------------- the start */

static double mean(double sum, uint64_t n)
{
    return n ? sum / (double)n : 0;
}

/* t_r(W), t_r(KV), t_d(KV): as given, else the candidates' means. */
static void unit_times(struct planner *p)
{
    double layer_sum = 0, read_sum = 0, decode_sum = 0;
    uint64_t layers = 0, chunks = 0;
    const struct mz_plan_input *in = p->in;
    for (uint32_t i = 0; i < in->n; i++) {
        if (in->units[i].kind == MZ_KIND_WEIGHT) {
            layer_sum += read_ns(p, i);
            layers += is_last_of_layer(in, i);
        } else if (queue_of(in, &in->units[i]) == CODED) {
            read_sum += read_ns(p, i);
            decode_sum += decode_ns(p, i);
            chunks++;
        }
    }
    double layer = time_of(in->layer_read_ns), read = time_of(in->chunk_read_ns),
           decode = time_of(in->chunk_decode_ns);
    p->layer_read_ns = layer > 0 ? layer : mean(layer_sum, layers);
    p->chunk_read_ns = read > 0 ? read : mean(read_sum, chunks);
    p->chunk_decode_ns = decode > 0 ? decode : mean(decode_sum, chunks);
}

/* T = N_W * floor(t_r(W) / t_d(KV)). Decoding that takes no time covers any number of chunks. */
static void threshold(struct planner *p, uint64_t coded)
{
    const struct mz_plan_input *in = p->in;
    unit_times(p);
    double ratio = p->chunk_decode_ns > 0 ? floor(p->layer_read_ns / p->chunk_decode_ns) : (double)UINT32_MAX;
    p->chunks_per_layer = ratio < (double)UINT32_MAX ? (uint64_t)ratio : UINT32_MAX;
    uint64_t most = p->chunks_per_layer ? UINT64_MAX / p->chunks_per_layer : UINT64_MAX;
    p->threshold = in->weight_layers > most ? UINT64_MAX : in->weight_layers * p->chunks_per_layer;
    p->kv_stacked = in->kv_on_stack;
    p->kv_stored = in->kv_on_store;
    p->kv_total = in->kv_on_stack + in->kv_on_store + coded; /* at least */
    if (p->kv_total < in->kv_units)
        p->kv_total = in->kv_units;
    p->layers_dropped = in->weight_layers_evicted;
}

static void start(struct planner *p, const struct mz_plan_input *in, struct mz_plan_step *steps)
{
    uint64_t coded = 0;
    *p = (struct planner){.in = in, .steps = steps};
    p->store_ns = time_of(in->store_ns);
    p->stack_ns = time_of(in->stack_ns);
    for (int q = 0; q < QUEUES; q++)
        p->next[q] = seek(in, (enum queue)q, 0);
    for (uint32_t i = 0; i < in->n; i++) {
        enum queue queue = queue_of(in, &in->units[i]);
        if (queue == CODED) {
            p->coded_left_ns += decode_ns(p, i);
            coded++;
        } else if (queue != STACKED) {
            p->fixed_left_ns += read_ns(p, i);
            p->fixed_kv += in->units[i].kind == MZ_KIND_KV;
        }
    }
    if (in->rule == MZ_RULE_PUBLISHED)
        threshold(p, coded);
}

/* -------------------------------------------------------------------------------- one step */

/* Takes the first unit of the queue; `stack`: a coded one goes onto the stack and not to the store. */
static void take(struct planner *p, enum queue queue, bool stack)
{
    uint32_t i = p->next[queue];
    const struct mz_plan_unit *unit = &p->in->units[i];
    uint8_t action = unit->clean ? MZ_DROP : MZ_STORE;
    uint64_t freed = unit->memory_bytes;
    if (queue == CODED) {
        p->coded_left_ns -= decode_ns(p, i);
    } else if (queue != STACKED) {
        p->fixed_left_ns -= read_ns(p, i);
        p->fixed_kv -= unit->kind == MZ_KIND_KV;
    }
    if (stack) {
        action = MZ_STACK;
        freed -= unit->coded_bytes;
        p->stack_ns += decode_ns(p, i);
    } else {
        p->store_ns += read_ns(p, i);
    }
    if (queue == STACKED) {
        action = MZ_SINK;
        p->stack_ns = time_of(p->stack_ns - decode_ns(p, i));
    }
    p->next[queue] = seek(p->in, queue, i + 1);
    p->steps[p->n_steps++] = (struct mz_plan_step){.unit = i, .action = action};
    p->freed_bytes += freed;
}

/* Whether the next coded chunk can go to the store without the KV that is left becoming too little to keep
 * the stack's path busy while all the rest is read. Nothing left to read: nothing to save up for. */
static bool can_spare(const struct planner *p)
{
    uint32_t i = p->next[CODED];
    if (!has(p, FIXED) && !has(p, OTHERS))
        return true;
    return p->stack_ns + p->coded_left_ns - decode_ns(p, i) >= p->store_ns + p->fixed_left_ns + read_ns(p, i);
}

/* Chunks not yet evicted, as Algorithm 1 counts them. */
static uint64_t chunks_left(const struct planner *p)
{
    return p->kv_total - p->kv_stacked - p->kv_stored;
}

static enum stage stage_of(const struct planner *p)
{
    if (has(p, CODED)) {
        bool more_than_needed = p->in->rule == MZ_RULE_EXACT ? can_spare(p) : chunks_left(p) > p->threshold;
        return more_than_needed || !has(p, FIXED) ? KV_ONLY : KV_AND_W;
    }
    if (has(p, FIXED))
        return p->fixed_kv ? ONE_PATH : W_ONLY;
    if (has(p, OTHERS))
        return W_ONLY;
    return has(p, STACKED) ? COMP_KV : NONE;
}

/* Exact: the choice after which the later of the two paths ends earlier. A tie goes to the stack, which
 * writes nothing, and to the weight, which frees more. */
static void exact_kv_only(struct planner *p)
{
    double read = read_ns(p, p->next[CODED]), decode = decode_ns(p, p->next[CODED]);
    double if_store = fmax(p->store_ns + read, p->stack_ns),
           if_stack = fmax(p->store_ns, p->stack_ns + decode);
    take(p, CODED, !can_spare(p) || if_stack <= if_store);
}

static void exact_kv_and_w(struct planner *p)
{
    double read = read_ns(p, p->next[FIXED]), decode = decode_ns(p, p->next[CODED]);
    double if_weight = fmax(p->store_ns + read, p->stack_ns),
           if_stack = fmax(p->store_ns, p->stack_ns + decode);
    if (if_weight <= if_stack)
        take(p, FIXED, false);
    else
        take(p, CODED, true);
}

/* Published: KVonly splits in inverse proportion to the chunk's two times, so that both paths' sums stay
 * equal. The first time round the sums are these chunks alone; later the reading of dropped layers is part of
 * them. */
static void published_kv_only(struct planner *p)
{
    bool stack = p->stack_ns + p->chunk_decode_ns <= p->store_ns + p->chunk_read_ns;
    take(p, CODED, stack);
    if (stack)
        p->kv_stacked++;
    else
        p->kv_stored++;
}

static void published_drop(struct planner *p)
{
    uint32_t i = p->next[FIXED];
    bool complete = p->in->units[i].kind == MZ_KIND_WEIGHT && is_last_of_layer(p->in, i);
    take(p, FIXED, false);
    p->layers_dropped += complete;
}

/* "For every layer dropped, floor(t_r(W) / t_d(KV)) chunks are compressed": of the chunks that this stage
 * began with, N_KV or T of them, those that are due for the layers dropped so far come before the next
 * layer. */
static void published_kv_and_w(struct planner *p)
{
    uint64_t began = p->kv_total < p->threshold ? p->kv_total : p->threshold;
    uint64_t left = chunks_left(p), compressed = began > left ? began - left : 0;
    bool due = p->chunks_per_layer && compressed / p->chunks_per_layer < p->layers_dropped;
    if (!due) {
        published_drop(p);
        return;
    }
    take(p, CODED, true);
    p->kv_stacked++;
}

static void step(struct planner *p, enum stage stage)
{
    bool exact = p->in->rule == MZ_RULE_EXACT;
    switch (stage) {
    case KV_ONLY:
        exact ? exact_kv_only(p) : published_kv_only(p);
        break;
    case KV_AND_W:
        exact ? exact_kv_and_w(p) : published_kv_and_w(p);
        break;
    case W_ONLY:
    case ONE_PATH:
        if (has(p, FIXED))
            published_drop(p);
        else
            take(p, OTHERS, false);
        break;
    case COMP_KV:
        take(p, STACKED, false);
        break;
    case NONE:
        break;
    }
}

/* -------------------------------------------------------------------------------- the two calls */

int mz_plan_make(const struct mz_plan_input *input, struct mz_plan_step *steps, uint32_t *ret_n,
                 uint64_t *ret_freed)
{
    int r = check(input);
    if (r || (input->n && !steps) || !ret_n || !ret_freed)
        return -EINVAL;
    struct planner p;
    start(&p, input, steps);
    enum stage stage;
    while (p.freed_bytes < input->wanted_bytes && (stage = stage_of(&p)) != NONE)
        step(&p, stage);
    *ret_n = p.n_steps;
    *ret_freed = p.freed_bytes;
    return 0;
}

const char *mz_plan_stage(const struct mz_plan_input *input)
{
    static const char *const names[] = {
        [KV_ONLY] = "KVonly",   [KV_AND_W] = "KVandW", [W_ONLY] = "Wonly",
        [ONE_PATH] = "OnePath", [COMP_KV] = "CompKV",  [NONE] = "none",
    };
    if (check(input))
        return names[NONE];
    struct planner p;
    start(&p, input, NULL);
    return names[stage_of(&p)];
}
