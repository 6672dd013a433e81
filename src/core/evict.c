/* Evicting: a plan over the units that are free to go, carried out in groups of neighbours.
 *
 * One eviction at a time holds evict_turn. It cancels restoring ahead, gives back scratch that no graph needs, asks the plan
 * (plan.h) which units leave and where each goes, makes the copies and releases memory. When what is free to go does not
 * suffice and computing holds units, it waits for the slice border: gates let it through before they pin again.
 *
 * Nothing is released before its copy is complete. A write that fails leaves the unit in memory; the eviction goes on
 * with units that need none. What is reported was counted in the page tables before the release.
 *
 * The arrays of the plan are made when units are added, and writes go out of the units' own memory: evicting takes no
 * memory beyond the stack's segments. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "core/plan.h"
#include "core/state.h"
#include "os/fault.h"
#include "os/log.h"
#include "os/os.h"
#include "os/transfer.h"

#define GROUP 16u /* units copied and released together: writes in flight, and whole huge pages for small chunks */

int mz_evict_reserve(struct mz_core *core)
{
    if (core->n_units <= core->plan_room && core->plan_units)
        return 0;
    uint32_t room = core->n_units + core->n_units / 2 + 64;
    struct mz_plan_unit *units = mz_realloc(core->plan_units, room * sizeof(*units));
    if (units)
        core->plan_units = units;
    struct mz_plan_step *steps = mz_realloc(core->plan_steps, room * sizeof(*steps));
    if (steps)
        core->plan_steps = steps;
    struct mz_unit **from = mz_realloc(core->plan_from, room * sizeof(*from));
    if (from)
        core->plan_from = from;
    struct mz_unit **sequence = mz_realloc(core->sequence, room * sizeof(*sequence));
    if (sequence)
        core->sequence = sequence;
    struct mz_unit **pass = mz_realloc(core->pass, room * sizeof(*pass));
    if (pass)
        core->pass = pass;
    if (!units || !steps || !from || !sequence || !pass)
        return -ENOMEM;
    core->plan_room = room;
    return 0;
}

/* ---- releasing */

static uint64_t count(struct mz_region *region, uint64_t lo, uint64_t hi)
{
    struct mz_engine *engine = region->core->engine;
    uint64_t resident, swapped;

    if (engine->ops->counted(engine, region->memory, lo, hi - lo, &resident, &swapped) != 0)
        return hi - lo;
    return resident + swapped;
}

/* Releases [lo, hi) of a region: without the lock. Adds what was counted. */
static int release_span(struct mz_region *region, uint64_t lo, uint64_t hi, uint64_t *freed)
{
    struct mz_engine *engine = region->core->engine;
    uint64_t counted = count(region, lo, hi);
    int err = engine->ops->release(engine, region->memory, lo, hi - lo);

    if (err)
        return err;
    if (engine->ops->trap)
        engine->ops->trap(engine, region->memory, lo, hi - lo, true);
    *freed += counted;
    return 0;
}

static void say_locked(int err)
{
    mz_log_once(MZ_LOG_WARN, "memory cannot be given back (%s)%s", mz_log_errno(err),
                err == -EINVAL ? "; it is locked, start the program without --mlock" : "");
}

int mz_unit_release(struct mz_unit *unit, uint64_t *freed)
{
    struct mz_core *core = unit->tensor->region->core;

    pthread_mutex_unlock(&core->lock);
    int err = mz_unit_give_back(unit, freed);
    pthread_mutex_lock(&core->lock);
    if (err)
        say_locked(err);
    mz_unit_move(unit, err ? MZ_RESIDENT : MZ_EVICTED);
    return err;
}

int mz_unit_give_back(const struct mz_unit *unit, uint64_t *freed)
{
    uint64_t lo, hi;

    mz_unit_span(unit, &lo, &hi);
    return release_span(unit->tensor->region, lo, hi, freed);
}

void mz_unit_settle(struct mz_unit *unit)
{
    struct mz_core *core = unit->tensor->region->core;

    while (unit->pins || unit->cleaning || unit->state == MZ_EVICTING || unit->state == MZ_RESTORING)
        pthread_cond_wait(&core->changed, &core->lock);
}

int mz_unit_evict(struct mz_unit *unit, uint64_t *freed)
{
    struct mz_core *core = unit->tensor->region->core;
    int err = 0;

    mz_unit_move(unit, MZ_EVICTING);
    if (unit->copies == 0) {
        pthread_mutex_unlock(&core->lock);
        err = mz_unit_write_store(unit);
        pthread_mutex_lock(&core->lock);
        if (err)
            mz_unit_move(unit, MZ_RESIDENT);
        else
            unit->copies |= MZ_COPY_STORE;
    }
    return err ? err : mz_unit_release(unit, freed);
}

/* ---- scratch */

/* Releases pages of the scratch region outside of the ranges kept, until `bytes` are freed. Lock held: the calls are short,
 * and no graph may begin meanwhile. */
static uint64_t scratch_region(struct mz_region *region, uint64_t bytes)
{
    uint64_t mask = region->core->engine->ops->traits.granule_bytes - 1, freed = 0, at = 0;

    for (uint32_t i = 0; i <= region->n_keep && freed < bytes; i++) {
        uint64_t end = i < region->n_keep ? region->keep[i][0] & ~mask : region->bytes;
        for (uint64_t step; at < end && freed < bytes; at += step) {
            step = end - at < 2 * MZ_MIB ? end - at : 2 * MZ_MIB;
            uint64_t counted = count(region, at, at + step);
            if (counted && region->core->engine->ops->release(region->core->engine, region->memory, at, step) == 0)
                freed += counted;
        }
        if (i < region->n_keep && at < ((region->keep[i][1] + mask) & ~mask))
            at = (region->keep[i][1] + mask) & ~mask;
    }
    return freed;
}

uint64_t mz_evict_scratch(struct mz_core *core, uint64_t bytes)
{
    uint64_t freed = 0;

    for (struct mz_region *region = core->regions; region && freed < bytes && core->graphs == 0; region = region->next)
        if (region->kind == MZ_KIND_SCRATCH && !region->keep_all)
            freed += scratch_region(region, bytes - freed);
    return freed;
}

/* ---- the plan's input; lock held */

/* One eviction. */
struct eviction {
    struct mz_core *core;
    uint64_t wanted, freed, stack_before; /* freed: released by now; the stack's growth is taken off at the end */
    struct mz_evict_report report;
    struct mz_transfer *transfer;
    bool no_store, no_stack; /* writing or stacking failed: go on without */
    int err;
};

static bool in_memory(const struct mz_unit *unit)
{
    return unit->state == MZ_RESIDENT || unit->state == MZ_EVICTING;
}

/* A unit that leaves entirely to the plan: at rest, and there is somewhere for it to go. */
static bool may_leave(const struct eviction *eviction, const struct mz_unit *unit)
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
        .memory_bytes = on_stack                              ? unit->slot.bytes
                        : unit->tensor->kind == MZ_KIND_WEIGHT ? hi - lo
                                                               : count(unit->tensor->region, lo, hi),
        .plain_bytes = bytes,
        .clean = on_stack ? (unit->copies & MZ_COPY_STORE) != 0 : unit->copies != 0,
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

/* Layers whose weights can be evicted, and those of which nothing is in memory: the published rule counts them. The
 * sequence has the weights of a layer together. */
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

/* Released pages, less what the stack grew by, or with what it shrank by. */
static uint64_t net_freed(const struct eviction *eviction)
{
    uint64_t now = mz_stack_memory_bytes(eviction->core->stack), have = eviction->freed + eviction->stack_before;

    return have > now ? have - now : 0;
}

static void plan_input(struct eviction *eviction, struct mz_plan_input *input)
{
    struct mz_core *core = eviction->core;

    *input = (struct mz_plan_input){
        .units = core->plan_units,
        .wanted_bytes = eviction->wanted - net_freed(eviction),
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

/* ---- carrying out; groups of units with the same action */

struct group {
    struct mz_unit *units[GROUP];
    struct mz_request requests[GROUP];
    int errs[GROUP];
    bool lossy[GROUP];
    uint32_t n;
    enum mz_action action;
};

static bool still_fits(const struct mz_unit *unit, enum mz_action action)
{
    if (action == MZ_SINK)
        return unit->state == MZ_EVICTED && (unit->copies & MZ_COPY_STACK);
    return unit->state == MZ_RESIDENT && !unit->pins && !unit->cleaning && (action != MZ_DROP || unit->copies);
}

/* Takes the next steps that share an action out of the plan and puts their units in motion. Lock held. */
static uint32_t group_take(struct mz_core *core, struct group *group, uint32_t at, uint32_t n)
{
    group->n = 0;
    group->action = core->plan_steps[at].action;
    for (; at < n && group->n < GROUP && core->plan_steps[at].action == group->action; at++) {
        struct mz_unit *unit = core->plan_from[core->plan_steps[at].unit];
        if (!still_fits(unit, group->action))
            continue;
        mz_unit_move(unit, group->action == MZ_SINK ? MZ_RESTORING : MZ_EVICTING);
        group->errs[group->n] = 0;
        group->units[group->n++] = unit;
    }
    return at;
}

/* Several writes in flight; neighbours got extents behind each other. */
static void group_write(struct eviction *eviction, struct group *group)
{
    for (uint32_t i = 0; i < group->n; i++) {
        group->requests[i] = (struct mz_request){0};
        if (group->units[i]->copies) /* it got a copy since the plan was made */
            continue;
        if (!eviction->transfer) {
            group->errs[i] = mz_unit_write_store(group->units[i]);
            continue;
        }
        group->errs[i] = mz_unit_write_begin(group->units[i], &group->requests[i]);
        group->requests[i].user = &group->errs[i];
        if (!group->errs[i])
            mz_transfer_submit(eviction->transfer, &group->requests[i]);
    }
    struct mz_request *done;
    while (eviction->transfer && (done = mz_transfer_wait(eviction->transfer)))
        *(int *)done->user = done->result;
    for (uint32_t i = 0; i < group->n && eviction->transfer; i++)
        group->errs[i] = mz_unit_write_end(group->units[i], group->errs[i], &group->requests[i]);
}

static void group_copy(struct eviction *eviction, struct group *group)
{
    if (group->action == MZ_STORE)
        group_write(eviction, group);
    for (uint32_t i = 0; i < group->n; i++) {
        if (group->action == MZ_STACK)
            group->errs[i] = mz_unit_encode(group->units[i], &group->lossy[i]);
        if (group->action == MZ_SINK)
            group->errs[i] = group->units[i]->copies & MZ_COPY_STORE ? 0 : mz_unit_sink(group->units[i]);
    }
}

/* Notes the copies that were made; units whose copy failed stay where they are. Returns how many were sunk. Lock held. */
static uint32_t group_note(struct eviction *eviction, struct group *group)
{
    uint32_t kept = 0, sunk = 0;

    for (uint32_t i = 0; i < group->n; i++) {
        struct mz_unit *unit = group->units[i];
        uint64_t bytes = mz_unit_bytes(unit);
        if (group->errs[i]) {
            eviction->err = group->errs[i];
            eviction->no_stack = eviction->no_stack || group->action == MZ_STACK;
            eviction->no_store = eviction->no_store || group->action != MZ_STACK;
            mz_unit_move(unit, group->action == MZ_SINK ? MZ_EVICTED : MZ_RESIDENT);
            continue;
        }
        if (group->action == MZ_STORE) {
            if (!unit->copies)
                unit->copies = MZ_COPY_STORE;
            eviction->report.to_store_bytes += bytes;
        } else if (group->action == MZ_STACK) {
            /* What comes back will differ from a copy made before the first loss, and equal one made after it. */
            if (group->lossy[i] && !unit->lossy) {
                mz_unit_void(unit, unit->copies);
                unit->hashed = false;
            }
            unit->copies |= MZ_COPY_STACK;
            eviction->report.to_stack_bytes += bytes;
        } else if (group->action == MZ_SINK) {
            unit->copies |= MZ_COPY_STORE;
            eviction->report.to_store_bytes += unit->slot.bytes;
            mz_unit_void(unit, MZ_COPY_STACK);
            mz_unit_move(unit, MZ_EVICTED);
            sunk++;
            continue;
        }
        group->units[kept++] = unit;
    }
    group->n = kept;
    return sunk;
}

static int by_address(const void *a, const void *b)
{
    const char *x = mz_unit_address(*(struct mz_unit *const *)a), *y = mz_unit_address(*(struct mz_unit *const *)b);

    return x < y ? -1 : x > y;
}

/* The unit left, and comes back as its image on the stack says; or it stays, exact as it is, and the image goes. */
static void released(struct mz_unit *unit, int err)
{
    if (err)
        mz_unit_void(unit, MZ_COPY_STACK);
    else if (unit->copies & MZ_COPY_STACK)
        unit->lossy = unit->lossy || mz_codec_is_lossy_image(mz_stack_at(&unit->slot), unit->slot.bytes);
    mz_unit_move(unit, err ? MZ_RESIDENT : MZ_EVICTED);
}

/* Releases what has copies, neighbours in one piece so that small chunks of one huge page do not split it in turn. Returns
 * how many left: none of locked memory. Lock held, dropped meanwhile. */
static uint32_t group_release(struct eviction *eviction, struct group *group)
{
    struct mz_core *core = eviction->core;
    uint32_t left = 0;

    qsort(group->units, group->n, sizeof(struct mz_unit *), by_address);
    for (uint32_t i = 0, end; i < group->n; i = end) {
        struct mz_region *region = group->units[i]->tensor->region;
        uint64_t lo, hi, next_lo, next_hi;
        mz_unit_span(group->units[i], &lo, &hi);
        for (end = i + 1; end < group->n && group->units[end]->tensor->region == region; end++, hi = next_hi) {
            mz_unit_span(group->units[end], &next_lo, &next_hi);
            if (next_lo != hi)
                break;
        }
        pthread_mutex_unlock(&core->lock);
        int err = release_span(region, lo, hi, &eviction->freed);
        pthread_mutex_lock(&core->lock);
        if (err) {
            say_locked(err);
            eviction->err = err;
            eviction->no_stack = eviction->no_store = true;
        }
        left += err ? 0 : end - i;
        for (; i < end; i++)
            released(group->units[i], err);
    }
    return left;
}

/* Runs a plan. Returns whether any unit left. Lock held, dropped meanwhile. */
static bool carry_out(struct eviction *eviction, uint32_t n)
{
    struct mz_core *core = eviction->core;
    struct group group;
    bool any = false;

    for (uint32_t at = 0; at < n;) {
        at = group_take(core, &group, at, n);
        if (group.n == 0)
            continue;
        pthread_mutex_unlock(&core->lock);
        group_copy(eviction, &group);
        pthread_mutex_lock(&core->lock);
        uint32_t left = group_note(eviction, &group);
        left += group_release(eviction, &group);
        any = any || left > 0;
    }
    return any;
}

/* ---- the command */

/* Waits until computing holds nothing; it cannot pin again while evict_waiting stands. Lock held. */
static void wait_for_border(struct mz_core *core)
{
    while (core->held)
        pthread_cond_wait(&core->changed, &core->lock);
}

/* One plan. Returns whether another may free more. Lock held, dropped meanwhile. */
static bool evict_round(struct eviction *eviction)
{
    struct mz_core *core = eviction->core;
    bool no_store = eviction->no_store, no_stack = eviction->no_stack;
    struct mz_plan_input input;
    uint64_t planned = 0;
    uint32_t n = 0;

    plan_input(eviction, &input);
    if (mz_plan_make(&input, core->plan_steps, &n, &planned) != 0 || n == 0)
        return false;
    bool left = carry_out(eviction, n);
    return left || no_store != eviction->no_store || no_stack != eviction->no_stack; /* again without what failed */
}

/* Memory that was committed early for units whose turn did not come goes first: it holds nothing. Nothing is in motion. Lock
 * held. */
static void give_back_early(struct eviction *eviction)
{
    struct mz_core *core = eviction->core;
    uint64_t lo, hi;

    for (uint32_t i = 0; i < core->n_units && core->n_early; i++) {
        struct mz_unit *unit = core->sequence[i];
        if (!unit->early)
            continue;
        mz_unit_span(unit, &lo, &hi);
        if (release_span(unit->tensor->region, lo, hi, &eviction->freed) == 0)
            mz_unit_early(unit, false);
        else
            break;
    }
}

/* Plans and carries out until enough is freed or nothing can go, first with what is free to go, then, once, with what
 * computing held. Lock held, dropped meanwhile. */
static void evict_rounds(struct eviction *eviction)
{
    struct mz_core *core = eviction->core;
    bool waited = false;

    while (core->n_moving) /* restores in flight: they end soon, and no new ones begin */
        pthread_cond_wait(&core->changed, &core->lock);
    mz_order_refresh(core);
    give_back_early(eviction);
    while (net_freed(eviction) < eviction->wanted) {
        if (evict_round(eviction))
            continue;
        if (waited || core->held == 0)
            break;
        waited = true;
        wait_for_border(core);
    }
}

static void evict_begin(struct eviction *eviction, struct mz_core *core)
{
    *eviction = (struct eviction){.core = core, .stack_before = mz_stack_memory_bytes(core->stack)};
    core->ahead = false;
    core->evictions++;
    (void)mz_transfer_open(GROUP, core->options.uring && mz_transfer_uring(NULL), &eviction->transfer);
}

static int evict_end(struct eviction *eviction, const char *why, uint64_t start, struct mz_evict_report *ret)
{
    struct mz_core *core = eviction->core;
    struct mz_evict_report *report = &eviction->report;

    mz_transfer_close(eviction->transfer);
    report->freed_bytes = net_freed(eviction);
    report->ms = (double)(mz_os_now_ns() - start) / 1e6;
    mz_core_totals(core, &report->total_bytes, &report->remaining_bytes, &report->floor_bytes);
    core->headroom_ns = 0;
    mz_event_add(core, "evict", why, report->freed_bytes, report->ms);
    pthread_cond_broadcast(&core->changed);
    if (eviction->err)
        mz_log(MZ_LOG_WARN, "%s failed while evicting (%s), folder %s; what could not be copied stays in memory",
               eviction->no_stack && !eviction->no_store ? "compressing" : "writing", mz_log_errno(eviction->err),
               mz_store_folder(core->store));
    if (ret)
        *ret = *report;
    return eviction->err && report->freed_bytes == 0 ? eviction->err : 0;
}

/* evict_turn and lock held. */
static void evict_units(struct eviction *eviction, uint64_t bytes)
{
    struct mz_core *core = eviction->core;

    eviction->wanted = bytes;
    core->evict_waiting++;
    atomic_fetch_add(&core->cut_wanted, 1);
    evict_rounds(eviction);
    core->evict_waiting--;
    atomic_fetch_sub(&core->cut_wanted, 1);
    pthread_cond_broadcast(&core->changed);
}

int mz_core_evict(struct mz_core *core, uint64_t bytes, const char *why, struct mz_evict_report *ret)
{
    uint64_t start = mz_os_now_ns();
    struct eviction eviction;

    pthread_mutex_lock(&core->evict_turn);
    mz_profile_use(core);
    pthread_mutex_lock(&core->lock);
    evict_begin(&eviction, core);
    eviction.report.asked_bytes = bytes;
    eviction.freed = mz_evict_scratch(core, bytes);
    evict_units(&eviction, bytes);
    int err = evict_end(&eviction, why, start, ret);
    pthread_mutex_unlock(&core->lock);
    mz_profile_fill(core);
    pthread_mutex_unlock(&core->evict_turn);
    return err;
}

/* Units of which only a part was ever written count whole in the total but free less than that: asks again until the
 * share is reached or nothing more goes. */
int mz_core_evict_to(struct mz_core *core, uint32_t remaining_permyriad, const char *why, struct mz_evict_report *ret)
{
    uint64_t start = mz_os_now_ns(), total, remaining, floor, before;
    struct eviction eviction;

    pthread_mutex_lock(&core->evict_turn);
    mz_profile_use(core);
    pthread_mutex_lock(&core->lock);
    mz_stack_spare(core->stack, remaining_permyriad > 0 && core->options.kv == MZ_KV_Q8);
    evict_begin(&eviction, core);
    eviction.freed = mz_evict_scratch(core, UINT64_MAX);
    mz_core_totals(core, &total, &remaining, &floor);
    uint64_t target = (uint64_t)((double)total * remaining_permyriad / 10000.0);
    eviction.report.asked_bytes = remaining > target ? remaining - target : 0;
    do {
        before = remaining;
        if (remaining > target)
            evict_units(&eviction, net_freed(&eviction) + remaining - target);
        mz_core_totals(core, &total, &remaining, &floor);
    } while (remaining > target && remaining < before);
    int err = evict_end(&eviction, why, start, ret);
    pthread_mutex_unlock(&core->lock);
    mz_profile_fill(core);
    pthread_mutex_unlock(&core->evict_turn);
    return err;
}
