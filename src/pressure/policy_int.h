/* What the files of the policy share: the view on one decision, and arithmetic that does not wrap.
 *
 * Everything works on one struct view, which is filled from top to bottom of mz_policy_decide() and then
 * looked at by one function per rule. No data outlives the call except through `state`.
 *
 *   policy.c           the decision: the order of the rules, and when to look again
 *   policy_judge.c     how short memory is: rates, marks, levels
 *   policy_pressure.c  the answer to pressure: how much, after what time, and what idler processes give first
 *   policy_idle.c      without pressure: idle steps, and copies written ahead
 *   policy_trim.c      what a host application asks for
 *   policy_parse.c     option texts */
#ifndef MZ_PRESSURE_POLICY_INT_H
#define MZ_PRESSURE_POLICY_INT_H

#include "pressure/policy.h"

#define KIB   UINT64_C(1024)
#define MIB   (KIB * 1024)
#define GIB   (MIB * 1024)
#define MS    UINT64_C(1000000) /* nanoseconds */
#define WHOLE 10000u            /* permyriad */

#define OWN_STEP_PERMYRIAD 500u       /* of total, for stalls without a deficit; doubled twice */
#define SETTLE_SEVERE_NS   (250 * MS) /* until the next look after an eviction */

struct view {
    const struct mz_policy_options *options;
    const struct mz_policy_sample *sample;
    struct mz_policy_state *state;
    uint64_t floor, evictable, band; /* bytes */
    uint64_t rate;                   /* eviction, bytes a second */
    uint64_t system_low, group_low;  /* bytes; 0: not watched */
    uint64_t keep;                   /* bytes available that restoring leaves alone */
    uint64_t system_need, group_need;
    uint64_t hold_left_ns;           /* 0: no hold */
    bool ours_report, system_report; /* stalls or events, besides what is missing */
    enum mz_level level;
};

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* a * b / c without overflow on the way; c > 0. */
static inline uint64_t mul_div(uint64_t a, uint64_t b, uint64_t c)
{
    unsigned __int128 v = (unsigned __int128)a * b / c;

    return v > UINT64_MAX ? UINT64_MAX : (uint64_t)v;
}

static inline uint64_t times(uint64_t a, uint64_t b)
{
    return mul_div(a, b, 1);
}

static inline uint64_t share(uint64_t bytes, uint32_t permyriad)
{
    return mul_div(bytes, permyriad, WHOLE);
}

static inline uint64_t since(uint64_t now, uint64_t then)
{
    return then == 0 ? UINT64_MAX : minus(now, then);
}

/* Time without use; 0: in use, or never used. */
static inline uint64_t idle_ns(const struct view *v)
{
    const struct mz_policy_facts *f = &v->sample->facts;

    return f->computing || f->last_use_ns == 0 ? 0 : since(v->sample->now_ns, f->last_use_ns);
}

/* ---- policy_judge.c */
void mz_policy_advance(struct view *v); /* the state's clock and rates, to this sample */
void mz_policy_measure(struct view *v); /* what the model can give, and whether the hold is on */
void mz_policy_judge(struct view *v);   /* the level, what is missing, and whether somebody reported stalls */

/* ---- policy_trim.c */
void mz_policy_take_trim(struct view *v); /* takes over a new request; drops one that a later use has overtaken */

/* ---- the rules: each returns whether it decided, and then the action is filled in */
bool mz_rule_limit(struct view *v, struct mz_policy_action *ret);
bool mz_rule_trim(struct view *v, struct mz_policy_action *ret);     /* policy_trim.c */
bool mz_rule_pressure(struct view *v, struct mz_policy_action *ret); /* policy_pressure.c */
bool mz_rule_idle(struct view *v, struct mz_policy_action *ret);     /* policy_idle.c */
bool mz_rule_clean(struct view *v, struct mz_policy_action *ret);

/* ---- shared by rules; policy.c */
bool mz_policy_evict(struct view *v, struct mz_policy_action *ret, uint64_t bytes, const char *why);
void mz_policy_acted(struct view *v); /* an eviction for pressure was decided */
uint32_t mz_permyriad_up(uint64_t bytes, uint64_t total);
bool mz_policy_idle_on(const struct view *v); /* policy_idle.c */

#endif
