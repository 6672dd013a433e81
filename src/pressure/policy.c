/* The policy: the order of its rules, and when to look again. See policy.h for the rules, policy_int.h for
 * the files. */
#include "pressure/policy_int.h"

#define BACKOFF_NS      (10000 * MS) /* after an eviction that failed or freed nothing */
#define CLEAN_PAUSE_MS  1000u
#define CLEAN_URGENT_MS 10u /* when hidden: Android freezes cached processes within seconds */

/* Polling: never later than the fastest taker we assume could eat the margin. Writing fresh pages runs at 1-6
 * GB/s. */
#define TAKER_BYTES_PER_S           (4 * GIB)
#define TAKER_TRIGGERED_BYTES_PER_S GIB /* the kernel reports stalls besides */
#define POLL_MIN_MS                 100u
#define POLL_MAX_MS                 1000u
#define POLL_TRIGGERED_MAX_MS       4000u
#define POLL_NOTHING_MS             5000u /* there is nothing that we could give */

void mz_policy_defaults(struct mz_policy_options *ret)
{
    *ret = (struct mz_policy_options){
        .limit_bytes = MZ_POLICY_UNKNOWN,
        .hold_ms = 10000,
        .calm_ms = 30000,
        .idle_permyriad = WHOLE,
        .clean_ahead = true,
    };
}

void mz_policy_sample_clear(struct mz_policy_sample *ret)
{
    *ret = (struct mz_policy_sample){
        .available_bytes = MZ_POLICY_UNKNOWN,
        .group_limit_bytes = MZ_POLICY_UNKNOWN,
        .group_headroom_bytes = MZ_POLICY_UNKNOWN,
    };
}

const char *mz_level_name(enum mz_level level)
{
    static const char *const names[] = {"none", "low", "medium", "severe"};

    return (unsigned)level < sizeof(names) / sizeof(*names) ? names[level] : "?";
}

const char *mz_act_name(enum mz_act act)
{
    static const char *const names[] = {"none", "evict", "evict_to", "clean"};

    return (unsigned)act < sizeof(names) / sizeof(*names) ? names[act] : "?";
}

/* ---- for the rules */

bool mz_policy_evict(struct view *v, struct mz_policy_action *ret, uint64_t bytes, const char *why)
{
    bytes = min_u64(bytes, v->evictable);
    if (bytes == 0)
        return false;
    ret->act = MZ_ACT_EVICT;
    ret->bytes = bytes;
    ret->why = why;
    return true;
}

void mz_policy_acted(struct view *v)
{
    v->state->acted_ns = max_u64(v->sample->now_ns, 1);
    v->state->deferred_ns = 0;
    v->state->held_told = v->state->held_system_told = MZ_LEVEL_NONE; /* answered */
    if (v->state->steps < UINT32_MAX)
        v->state->steps++;
}

uint32_t mz_permyriad_up(uint64_t bytes, uint64_t total)
{
    uint64_t p = total == 0 ? 0 : mul_div(bytes, WHOLE, total);

    if (share(total, (uint32_t)min_u64(p, WHOLE)) < bytes)
        p++;
    return (uint32_t)min_u64(p, WHOLE);
}

bool mz_rule_limit(struct view *v, struct mz_policy_action *ret)
{
    const struct mz_policy_facts *f = &v->sample->facts;
    uint64_t limit = v->options->limit_bytes;

    if (f->limit_bytes != 0)
        limit = min_u64(limit, f->limit_bytes);
    return !f->computing && f->remaining_bytes > limit &&
           mz_policy_evict(v, ret, f->remaining_bytes - limit, "limit");
}

/* ---- when to look again */

static uint64_t poll_ms(const struct view *v)
{
    const struct mz_policy_sample *s = v->sample;
    uint64_t margin = UINT64_MAX, fill = max_u64(v->state->fill_bytes_per_s, v->state->group_fill_bytes_per_s);
    uint64_t taker = s->triggers ? TAKER_TRIGGERED_BYTES_PER_S : TAKER_BYTES_PER_S;
    uint64_t most = s->triggers ? POLL_TRIGGERED_MAX_MS : POLL_MAX_MS;

    if (v->evictable == 0)
        return POLL_NOTHING_MS;
    if (v->system_low != 0)
        margin = minus(s->available_bytes, v->system_low);
    if (v->group_low != 0)
        margin = min_u64(margin, minus(s->group_headroom_bytes, v->group_low));
    return max_u64(min_u64(mul_div(margin, 1000, max_u64(taker, plus(fill, fill))), most), POLL_MIN_MS);
}

/* Milliseconds until a time that is `left_ns` away, rounded up so that it has passed then. */
static uint64_t ms_up(uint64_t left_ns)
{
    return left_ns / MS + 1;
}

/* When time alone changes what the rules say: the hold ends, an idle step or cleaning is due. */
static uint64_t deadline_ms(const struct view *v)
{
    uint64_t ms = UINT64_MAX, idle = idle_ns(v), step = times(v->options->idle_ms, MS);

    if (!v->sample->facts.computing && v->hold_left_ns != 0)
        ms = ms_up(v->hold_left_ns);
    if (mz_policy_idle_on(v) && v->evictable != 0) {
        ms = min_u64(ms, ms_up(step - idle % step));
        if (idle < step / 2)
            ms = min_u64(ms, ms_up(step / 2 - idle));
    }
    return ms;
}

static uint32_t next_look_ms(const struct view *v, const struct mz_policy_action *a)
{
    uint64_t ms = min_u64(poll_ms(v), deadline_ms(v));

    if (a->act == MZ_ACT_CLEAN)
        return v->state->trim == MZ_TRIM_CLEAN ? CLEAN_URGENT_MS : (uint32_t)min_u64(ms, CLEAN_PAUSE_MS);
    if (a->act != MZ_ACT_NONE || v->state->deferred_ns != 0)
        ms = min_u64(ms, SETTLE_SEVERE_NS / MS);
    return (uint32_t)max_u64(ms, 1);
}

/* ---- the decision */

/* The calm window: until it is over, stalls belong to the same pressure and steps grow. */
static void note_level(struct view *v)
{
    struct mz_policy_state *st = v->state;

    st->level = v->level;
    if (v->level >= MZ_LEVEL_MEDIUM)
        st->pressed_ns = max_u64(v->sample->now_ns, 1);
    else if (since(v->sample->now_ns, st->pressed_ns) >= v->options->calm_ms * MS)
        st->steps = 0;
}

static bool backing_off(const struct view *v)
{
    return v->sample->now_ns < v->state->backoff_ns;
}

void mz_policy_decide(const struct mz_policy_options *options, const struct mz_policy_state *before,
                      const struct mz_policy_sample *sample, struct mz_policy_state *after,
                      struct mz_policy_action *ret)
{
    struct mz_policy_state state = *before;
    struct view v = {.options = options, .sample = sample, .state = &state};
    struct mz_policy_action action = {.why = ""};

    mz_policy_measure(&v);
    mz_policy_advance(&v);
    mz_policy_take_trim(&v);
    mz_policy_judge(&v);
    note_level(&v);
    if (sample->facts.total_bytes != 0 &&
        (backing_off(&v) || (!mz_rule_limit(&v, &action) && !mz_rule_trim(&v, &action) &&
                             !mz_rule_pressure(&v, &action) && !mz_rule_idle(&v, &action))))
        (void)mz_rule_clean(&v, &action);
    action.level = v.level;
    action.keep_bytes = v.keep;
    action.cancel_restore = v.level >= MZ_LEVEL_MEDIUM && !sample->facts.computing;
    action.next_ms = next_look_ms(&v, &action);
    *after = state;
    *ret = action;
}

void mz_policy_failed(struct mz_policy_state *state, enum mz_act act, uint64_t now_ns, uint64_t last_use_ns)
{
    if (act == MZ_ACT_CLEAN) {
        state->clean_failed = true;
        state->clean_failed_use_ns = last_use_ns;
    } else if (act != MZ_ACT_NONE) {
        state->backoff_ns = plus(now_ns, BACKOFF_NS);
    }
}

bool mz_policy_calm(const struct mz_policy_options *options, const struct mz_policy_state *state)
{
    return state->level < MZ_LEVEL_MEDIUM && since(state->now_ns, state->pressed_ns) >= options->calm_ms * MS;
}
