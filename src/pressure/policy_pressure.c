/* The answer to pressure: how much is given back, after what time, and what processes that are idle for
 * longer give first. */
#include "pressure/policy_int.h"

/* Own steps for stalls without a deficit: 5 %, 10 %, 20 % of total. */
#define OWN_STEP_DOUBLINGS 2u

/* How long an eviction takes to show: MemAvailable at once, stalls after their window of 2 s. */
#define SETTLE_NEED_NS   (500 * MS)
#define SETTLE_REPORT_NS (2000 * MS)

#define PEERS_NS (2000 * MS) /* what idler processes get to do their share */

/* Bytes that one report asks for. */
static uint64_t report_step(const struct view *v)
{
    uint64_t total = v->sample->facts.total_bytes, step;
    uint32_t doublings = v->state->steps < OWN_STEP_DOUBLINGS ? v->state->steps : OWN_STEP_DOUBLINGS;

    if (v->options->step_permyriad != 0)
        return share(total, v->options->step_permyriad);
    step = share(total, OWN_STEP_PERMYRIAD) << doublings;
    return v->level == MZ_LEVEL_SEVERE ? 2 * step : step;
}

static bool step_asked(const struct view *v)
{
    return v->state->trim == MZ_TRIM_STEP || v->state->trim == MZ_TRIM_STEP_SEVERE;
}

static bool reported(const struct view *v)
{
    return v->ours_report || v->system_report || step_asked(v);
}

static uint64_t pressure_bytes(const struct view *v)
{
    uint64_t bytes = max_u64(v->system_need, v->group_need);

    if (v->options->step_permyriad != 0)
        return v->level == MZ_LEVEL_SEVERE ? max_u64(bytes, report_step(v)) : report_step(v);
    return reported(v) ? max_u64(bytes, report_step(v)) : bytes;
}

/* Whether the last eviction still has to show before another one makes sense. */
static bool settling(const struct view *v)
{
    uint64_t wait = SETTLE_REPORT_NS;

    if (v->level == MZ_LEVEL_SEVERE && !v->sample->facts.computing)
        wait = SETTLE_SEVERE_NS;
    else if (v->options->step_permyriad == 0 && !reported(v))
        wait = SETTLE_NEED_NS;
    return since(v->sample->now_ns, v->state->acted_ns) < wait;
}

/* Leaves to idler processes what they can give, for a while. Returns what stays for us. */
static uint64_t after_peers(struct view *v, struct mz_policy_action *ret, uint64_t bytes)
{
    struct mz_policy_state *st = v->state;
    bool system_only = !v->ours_report && v->group_need == 0 && st->trim == MZ_TRIM_NONE;
    uint64_t left;

    if (v->level == MZ_LEVEL_SEVERE || !system_only)
        return bytes;
    ret->shared = true;
    left = minus(bytes, v->sample->peers_bytes);
    if (left == bytes)
        return bytes;
    if (left < v->band)
        left = 0;
    if (st->deferred_ns == 0)
        st->deferred_ns = max_u64(v->sample->now_ns, 1);
    return since(v->sample->now_ns, st->deferred_ns) < PEERS_NS ? left : bytes;
}

static const char *pressure_why(const struct view *v)
{
    if (v->group_need != 0)
        return "cgroup headroom";
    if (v->system_need != 0)
        return "available memory";
    if (step_asked(v))
        return "trim";
    return v->ours_report ? "reported to us" : "stalls";
}

bool mz_rule_pressure(struct view *v, struct mz_policy_action *ret)
{
    bool severe = v->level == MZ_LEVEL_SEVERE;
    bool decided = false;

    if (v->level < MZ_LEVEL_MEDIUM) {
        v->state->deferred_ns = 0;
        return false;
    }
    if ((v->hold_left_ns != 0 && !severe) || settling(v))
        return false;
    if (severe || v->evictable >= v->band)
        decided = mz_policy_evict(v, ret, after_peers(v, ret, max_u64(pressure_bytes(v), v->band)),
                                  pressure_why(v));
    if (decided)
        mz_policy_acted(v);
    if (step_asked(v))
        v->state->trim = MZ_TRIM_NONE; /* done, or there was nothing to give */
    return decided;
}
