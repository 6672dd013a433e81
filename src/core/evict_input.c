/* What the plan decides over: every unit that may leave, in the order in which they are to go, and what is
 * evicted already.
 *
 * Its arrays are made when units are added, so that evicting takes no memory. Lock: core->lock. */
#include <errno.h>

#include "codec/codec.h"
#include "core/evict.h"
#include "os/fault.h"

/* The array with room for `bytes`; as it was, with *err, when there is no memory. */
static void *grown(void *array, size_t bytes, int *err)
{
    void *larger = mz_realloc(array, bytes);

    if (!larger)
        *err = -ENOMEM;
    return larger ? larger : array;
}

int mz_evict_reserve(struct mz_core *core)
{
    if (core->n_units <= core->plan_room && core->plan_units)
        return 0;
    uint32_t room = core->n_units + core->n_units / 2 + 64;
    int err = 0;

    core->plan_units = grown(core->plan_units, room * sizeof(*core->plan_units), &err);
    core->plan_steps = grown(core->plan_steps, room * sizeof(*core->plan_steps), &err);
    core->plan_from = grown(core->plan_from, room * sizeof(*core->plan_from), &err);
    core->plan_out = grown(core->plan_out, room * sizeof(*core->plan_out), &err);
    core->sequence = grown(core->sequence, room * sizeof(*core->sequence), &err);
    core->pass = grown(core->pass, room * sizeof(*core->pass), &err);
    if (!err)
        core->plan_room = room;
    return err;
}

uint64_t mz_evict_net_freed(const struct mz_eviction *eviction)
{
    uint64_t now = mz_stack_memory_bytes(eviction->core->stack),
             have = eviction->freed + eviction->stack_before;

    return have > now ? have - now : 0;
}

static bool in_memory(const struct mz_unit *unit)
{
    return unit->state == MZ_RESIDENT || unit->state == MZ_EVICTING;
}

/* A unit that leaves entirely to the plan: at rest, and there is somewhere for it to go. */
static bool may_leave(const struct mz_eviction *eviction, const struct mz_unit *unit)
{
    const struct mz_core *core = eviction->core;

    if (unit->pins || unit->cleaning || unit->tensor->fixed)
        return false;
    if (unit->state == MZ_EVICTED)
        return (unit->copies & MZ_COPY_STACK) && !eviction->no_store;
    if (unit->state != MZ_RESIDENT)
        return false;
    bool stackable = core->options.kv == MZ_KV_Q8 && mz_unit_can_encode(unit) && !eviction->no_stack;
    return unit->copies || !eviction->no_store || stackable;
}

static void describe(const struct mz_unit *unit, struct mz_plan_unit *ret)
{
    const struct mz_core *core = unit->tensor->region->core;
    bool on_stack = unit->state == MZ_EVICTED;
    uint64_t lo, hi, bytes = mz_unit_bytes(unit);

    mz_unit_span(unit, &lo, &hi);
    *ret = (struct mz_plan_unit){
        .kind = unit->tensor->kind,
        .layer = unit->layer,
        .memory_bytes = on_stack                               ? unit->slot.bytes
                        : unit->tensor->kind == MZ_KIND_WEIGHT ? hi - lo
                                                               : mz_evict_count(unit->tensor->region, lo, hi),
        .plain_bytes = bytes,
        .clean = on_stack ? (unit->copies & MZ_COPY_STORE) != 0 : mz_unit_is_clean(unit),
        .on_stack = on_stack,
        .read_ns = mz_profile_read_ns(&core->profile, on_stack ? unit->slot.bytes : bytes),
        .decode_ns = mz_profile_decode_ns(&core->profile, MZ_CODEC_Q8, bytes),
    };
    if (!on_stack && mz_unit_can_encode(unit))
        ret->coded_bytes = mz_codec_image_bytes(mz_codec_by_id(MZ_CODEC_Q8), bytes);
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* A step through 0..n-1 that visits every rank once and looks like chance. */
static uint64_t coprime(uint32_t n)
{
    uint32_t step = 2654435761u % n;

    while (common_divisor(step ? step : 1, n) != 1)
        step++;
    return step ? step : 1;
}

/* The i-th unit to leave: backward-out, or another order for the ablation. Random is a fixed permutation. */
static struct mz_unit *leaving(const struct mz_core *core, uint32_t i)
{
    uint32_t n = core->n_units;

    if (core->options.order == MZ_ORDER_FORWARD)
        return core->sequence[i];
    if (core->options.order == MZ_ORDER_RANDOM)
        return core->sequence[(uint64_t)i * coprime(n) % n];
    return core->sequence[n - 1 - i];
}

/* What exists and what is evicted already, for the plan's balance. The three per-unit times are sums here. */
static void add_to_input(const struct mz_unit *unit, struct mz_plan_input *input)
{
    const struct mz_core *core = unit->tensor->region->core;
    uint64_t bytes = mz_unit_bytes(unit);
    double read_ns = mz_profile_read_ns(&core->profile, unit->image_bytes ? unit->image_bytes : bytes);
    double decode_ns = mz_profile_decode_ns(&core->profile, MZ_CODEC_Q8, bytes);
    bool codec = mz_unit_can_encode(unit) && unit->state != MZ_EMPTY;

    if (unit->tensor->kind == MZ_KIND_WEIGHT && !unit->tensor->fixed)
        input->layer_read_ns += read_ns;
    input->kv_units += codec;
    input->chunk_read_ns += codec ? read_ns : 0;
    input->chunk_decode_ns += codec ? decode_ns : 0;
    if (unit->state != MZ_EVICTED)
        return;
    if (unit->copies & MZ_COPY_STACK) {
        input->stack_ns += decode_ns;
        input->kv_on_stack++;
    } else {
        input->store_ns += read_ns;
        input->kv_on_store += codec;
    }
}

/* Layers whose weights can be evicted, and those of which nothing is in memory: the published rule counts
 * them. The sequence has the weights of a layer together. */
static void count_layers(struct mz_core *core, struct mz_plan_input *input)
{
    uint32_t layer = UINT32_MAX;
    bool resident = false;

    for (uint32_t i = 0; i < core->n_units; i++) {
        const struct mz_unit *unit = core->sequence[i];
        if (unit->tensor->kind != MZ_KIND_WEIGHT || unit->tensor->fixed || unit->state == MZ_EMPTY)
            continue;
        if (unit->layer != layer) {
            input->weight_layers_evicted += layer != UINT32_MAX && !resident;
            input->weight_layers++;
            layer = unit->layer;
            resident = false;
        }
        resident = resident || in_memory(unit);
    }
    input->weight_layers_evicted += layer != UINT32_MAX && !resident;
}

void mz_evict_input(struct mz_eviction *eviction, struct mz_plan_input *input)
{
    struct mz_core *core = eviction->core;

    *input = (struct mz_plan_input){
        .units = core->plan_units,
        .wanted_bytes = eviction->wanted - mz_evict_net_freed(eviction),
        .rule = core->options.rule,
        .stack_allowed = core->options.kv == MZ_KV_Q8 && !eviction->no_stack,
    };
    mz_order_refresh(core);
    count_layers(core, input);
    for (uint32_t i = 0; i < core->n_units; i++) {
        struct mz_unit *unit = leaving(core, i);
        add_to_input(unit, input);
        if (!may_leave(eviction, unit))
            continue;
        describe(unit, &core->plan_units[input->n]);
        core->plan_from[input->n++] = unit;
    }
    input->layer_read_ns /= input->weight_layers ? (double)input->weight_layers : 1;
    input->chunk_read_ns /= input->kv_units ? (double)input->kv_units : 1;
    input->chunk_decode_ns /= input->kv_units ? (double)input->kv_units : 1;
}
