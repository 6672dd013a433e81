/* What a host application asks for: levels of onTrimMemory and GMemoryMonitor. */
#include "pressure/policy_int.h"

#include <errno.h>
#include <stddef.h>

int mz_trim_from_level(int level, enum mz_trim *ret)
{
    static const struct {
        int level;
        enum mz_trim trim;
    } table[] = {
        {5, MZ_TRIM_CLEAN},         /* TRIM_MEMORY_RUNNING_MODERATE */
        {10, MZ_TRIM_STEP},         /* TRIM_MEMORY_RUNNING_LOW */
        {15, MZ_TRIM_STEP_SEVERE},  /* TRIM_MEMORY_RUNNING_CRITICAL */
        {20, MZ_TRIM_CLEAN},        /* TRIM_MEMORY_UI_HIDDEN: no pressure, the user may be back in a second */
        {40, MZ_TRIM_FLOOR},        /* TRIM_MEMORY_BACKGROUND */
        {60, MZ_TRIM_FLOOR},        /* TRIM_MEMORY_MODERATE */
        {80, MZ_TRIM_FLOOR},        /* TRIM_MEMORY_COMPLETE */
        {50, MZ_TRIM_STEP},         /* G_MEMORY_MONITOR_WARNING_LEVEL_LOW */
        {100, MZ_TRIM_STEP_SEVERE}, /* ..._MEDIUM */
        {255, MZ_TRIM_FLOOR_SEVERE} /* ..._CRITICAL */
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (table[i].level == level) {
            *ret = table[i].trim;
            return 0;
        }
    }
    return -EINVAL;
}

/* Takes over a new request, and drops one that a later use has overtaken. */
void mz_policy_take_trim(struct view *v)
{
    struct mz_policy_state *st = v->state;
    const struct mz_policy_sample *s = v->sample;

    if (s->facts.total_bytes == 0) {
        st->trim = MZ_TRIM_NONE; /* nothing to give */
    } else if (s->trim != MZ_TRIM_NONE) {
        st->trim = s->trim > st->trim ? s->trim : st->trim;
        st->trim_ns = s->now_ns;
        st->trim_busy = s->facts.computing;
    } else if (st->trim != MZ_TRIM_NONE && st->trim_busy) {
        st->trim_ns = max_u64(s->now_ns, s->facts.last_use_ns);
        st->trim_busy = s->facts.computing;
    } else if (s->facts.last_use_ns > st->trim_ns || s->facts.computing) {
        st->trim = MZ_TRIM_NONE;
    }
}

bool mz_rule_trim(struct view *v, struct mz_policy_action *ret)
{
    struct mz_policy_state *st = v->state;
    bool severe = st->trim == MZ_TRIM_FLOOR_SEVERE;

    if (st->trim != MZ_TRIM_FLOOR && !severe)
        return false;
    if (!severe && v->hold_left_ns != 0)
        return false;
    st->trim = MZ_TRIM_NONE;
    if (v->evictable == 0)
        return false;
    ret->act = MZ_ACT_EVICT_TO;
    ret->remaining_permyriad = mz_permyriad_up(v->floor, v->sample->facts.total_bytes);
    ret->why = "trim";
    mz_policy_acted(v);
    return true;
}
