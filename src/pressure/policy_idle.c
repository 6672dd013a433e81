/* Without pressure: a step down after each while without use, and copies written before they are needed. */
#include "pressure/policy_int.h"

#define RESUME_NS          (60000 * MS) /* no idle step that soon after the machine woke: its user is back */
#define CLEAN_BUDGET_BYTES (64 * MIB)

bool mz_policy_idle_on(const struct view *v)
{
    return v->options->idle_ms != 0 && v->options->idle_permyriad != 0 && v->sample->facts.total_bytes != 0 &&
           !v->sample->facts.computing && v->sample->facts.last_use_ns != 0;
}

static bool just_resumed(const struct view *v)
{
    return since(v->sample->now_ns, v->state->resumed_ns) < RESUME_NS;
}

bool mz_rule_idle(struct view *v, struct mz_policy_action *ret)
{
    const struct mz_policy_facts *f = &v->sample->facts;
    uint64_t steps, target;

    if (!mz_policy_idle_on(v) || just_resumed(v))
        return false;
    steps = min_u64(idle_ns(v) / MS / v->options->idle_ms, WHOLE);
    if (steps == 0)
        return false;
    target = minus(f->total_bytes, share(times(f->total_bytes, steps), v->options->idle_permyriad));
    target = max_u64(target, v->floor);
    if (f->remaining_bytes <= target || f->remaining_bytes - target < v->band)
        return false;
    ret->act = MZ_ACT_EVICT_TO;
    ret->remaining_permyriad = mz_permyriad_up(target, f->total_bytes);
    ret->why = "idle";
    return true;
}

/* Whether copies may be written now: asked for, or time left before an idle step, or memory gets short. */
static bool clean_wanted(const struct view *v)
{
    const struct mz_policy_options *o = v->options;
    uint64_t idle = idle_ns(v);

    if (v->state->trim == MZ_TRIM_CLEAN)
        return true;
    if (!o->clean_ahead || v->hold_left_ns != 0 || (v->sample->on_battery && !o->clean_on_battery))
        return false;
    if (v->level == MZ_LEVEL_LOW)
        return true;
    return v->level == MZ_LEVEL_NONE && mz_policy_idle_on(v) && !just_resumed(v) &&
           idle / MS >= o->idle_ms / 2;
}

bool mz_rule_clean(struct view *v, struct mz_policy_action *ret)
{
    const struct mz_policy_facts *f = &v->sample->facts;
    struct mz_policy_state *st = v->state;

    if (st->clean_failed && st->clean_failed_use_ns != f->last_use_ns)
        st->clean_failed = false;
    if (f->computing || !clean_wanted(v))
        return false;
    if (f->dirty_bytes == 0 || st->clean_failed) {
        if (st->trim == MZ_TRIM_CLEAN)
            st->trim = MZ_TRIM_NONE;
        return false;
    }
    ret->act = MZ_ACT_CLEAN;
    ret->bytes = min_u64(CLEAN_BUDGET_BYTES, f->dirty_bytes);
    ret->why = st->trim == MZ_TRIM_CLEAN ? "trim" : "clean ahead";
    return true;
}
