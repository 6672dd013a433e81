/* Evicting: a plan over the units that are free to go, carried out.
 *
 * One eviction at a time holds evict_turn. It cancels restoring ahead, gives back scratch that no graph
 * needs, asks the plan (plan.h) which units leave and where each goes, makes the copies and releases memory.
 * When what is free to go does not suffice and computing holds units, it waits for the slice border: gates
 * let it through before they pin again.
 *
 * A write that fails leaves the unit in memory; the eviction goes on with units that need none. Evicting
 * takes no memory beyond the stack's segments. */
#include "core/evict.h"
#include "os/log.h"
#include "os/os.h"
#include "os/transfer.h"

/* Waits until computing holds nothing; it cannot pin again while evict_waiting stands. Lock held. */
static void wait_for_border(struct mz_core *core)
{
    while (core->held)
        pthread_cond_wait(&core->changed, &core->lock);
}

/* One plan. Returns whether another may free more. Lock held, dropped meanwhile. */
static bool evict_round(struct mz_eviction *eviction)
{
    struct mz_core *core = eviction->core;
    bool no_store = eviction->no_store, no_stack = eviction->no_stack;
    struct mz_plan_input input;
    uint64_t planned = 0;
    uint32_t n = 0;

    mz_evict_input(eviction, &input);
    if (mz_plan_make(&input, core->plan_steps, &n, &planned) != 0 || n == 0)
        return false;
    bool left = mz_evict_carry_out(eviction, n);
    return left || no_store != eviction->no_store ||
           no_stack != eviction->no_stack; /* again without what failed */
}

/* Memory that was committed early for units whose turn did not come goes first: it holds nothing. Nothing is
 * in motion. Lock held. */
static void give_back_early(struct mz_eviction *eviction)
{
    struct mz_core *core = eviction->core;
    uint64_t lo, hi;

    for (uint32_t i = 0; i < core->n_units && core->n_early; i++) {
        struct mz_unit *unit = core->sequence[i];
        if (!unit->early)
            continue;
        mz_unit_span(unit, &lo, &hi);
        if (mz_evict_release(unit->tensor->region, lo, hi, &eviction->freed) == 0)
            mz_unit_early(unit, false);
        else
            break;
    }
}

/* Plans and carries out until enough is freed or nothing can go, first with what is free to go, then, once,
 * with what computing held. Lock held, dropped meanwhile. */
static void evict_rounds(struct mz_eviction *eviction)
{
    struct mz_core *core = eviction->core;
    bool waited = false;

    while (core->n_moving) /* restores in flight: they end soon, and no new ones begin */
        pthread_cond_wait(&core->changed, &core->lock);
    mz_order_refresh(core);
    give_back_early(eviction);
    while (mz_evict_net_freed(eviction) < eviction->wanted) {
        if (evict_round(eviction))
            continue;
        if (waited || core->held == 0)
            break;
        waited = true;
        wait_for_border(core);
    }
}

static void evict_begin(struct mz_eviction *eviction, struct mz_core *core)
{
    *eviction = (struct mz_eviction){.core = core, .stack_before = mz_stack_memory_bytes(core->stack)};
    core->ahead = false;
    core->evictions++;
    (void)mz_transfer_open(MZ_GROUP, core->options.uring && mz_transfer_uring(NULL), &eviction->transfer);
}

static int evict_end(struct mz_eviction *eviction, const char *why, uint64_t start,
                     struct mz_evict_report *ret)
{
    struct mz_core *core = eviction->core;
    struct mz_evict_report *report = &eviction->report;

    mz_transfer_close(eviction->transfer);
    report->freed_bytes = mz_evict_net_freed(eviction);
    report->err = eviction->err;
    report->ms = (double)(mz_os_now_ns() - start) / 1e6;
    mz_core_totals(core, &report->total_bytes, &report->remaining_bytes, &report->floor_bytes);
    core->headroom_ns = 0;
    mz_event_add(core, "evict", why, report->freed_bytes, report->ms);
    pthread_cond_broadcast(&core->changed);
    if (eviction->err)
        mz_log(MZ_LOG_WARN,
               "%s failed while evicting (%s), folder %s; what could not be copied stays in memory",
               eviction->no_stack && !eviction->no_store ? "compressing" : "writing",
               mz_log_errno(eviction->err), mz_store_folder(core->store));
    if (ret)
        *ret = *report;
    return eviction->err && report->freed_bytes == 0 ? eviction->err : 0;
}

/* evict_turn and lock held. */
static void evict_units(struct mz_eviction *eviction, uint64_t bytes)
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
    struct mz_eviction eviction;

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

/* What is freed and what remains are not the same: units of which only a part was ever written count whole in the total
 * but free less than that, and memory that was committed early is freed without being part of it. Asks again until the
 * share is reached or nothing more goes. */
int mz_core_evict_to(struct mz_core *core, uint32_t remaining_permyriad, const char *why,
                     struct mz_evict_report *ret)
{
    uint64_t start = mz_os_now_ns(), total, remaining, floor, before, freed;
    struct mz_eviction eviction;

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
        freed = mz_evict_net_freed(&eviction);
        if (remaining > target)
            evict_units(&eviction, freed + remaining - target);
        mz_core_totals(core, &total, &remaining, &floor);
    } while (remaining > target && (remaining < before || mz_evict_net_freed(&eviction) > freed));
    int err = evict_end(&eviction, why, start, ret);
    pthread_mutex_unlock(&core->lock);
    mz_profile_fill(core);
    pthread_mutex_unlock(&core->evict_turn);
    return err;
}
