/* The policy. See policy.h for the rules; here are their numbers.
 *
 * Everything works on one struct view, which is filled from top to bottom of mz_policy_decide() and then
 * looked at by one function per rule. No data outlives the call except through `after`. */
#include "pressure/policy.h"

#include <string.h>

#define KIB   UINT64_C(1024)
#define MIB   (KIB * 1024)
#define GIB   (MIB * 1024)
#define MS    UINT64_C(1000000) /* nanoseconds */
#define WHOLE 10000u            /* permyriad */

/* When memory is short. earlyoom kills at 10 % of MemAvailable once free swap is at 10 % too (or there is
 * none), so where swap is nearly used up we begin at 12.5 %. With swap left, running low is slow rather than
 * deadly: 1/16. */
#define LOW_TIGHT_PERMYRIAD 1250u
#define LOW_SWAP_PERMYRIAD  625u
#define LOW_SWAP_MAX_BYTES  (4 * GIB)
#define LOW_MIN_BYTES       (256 * MIB)
#define SWAP_TIGHT_PERCENT  15u
/* A cgroup's limit is reached without harm (the kernel reclaims its files first), so its margin is thin. */
#define GROUP_LOW_PERMYRIAD 625u
#define GROUP_LOW_MIN_BYTES (32 * MIB)
#define GROUP_LOW_MAX_BYTES GIB
/* System-wide stalls also come from cgroups at limits of their own; with that much available, nobody who is
 * stalled waits for memory that we could give. */
#define AMPLE_PERMYRIAD 3000u

/* Stall shares. systemd-oomd acts on 60 % over 30 s, Android's lmkd on 70 ms (some) and 700 ms (full) a
 * second. */
#define SOME_MEDIUM_PERMYRIAD 700u
#define SOME_SEVERE_PERMYRIAD 4000u
#define FULL_SEVERE_PERMYRIAD 2000u

/* Own steps for stalls without a deficit: 5 %, 10 %, 20 % of total. */
#define OWN_STEP_PERMYRIAD 500u
#define OWN_STEP_DOUBLINGS 2u

#define BAND_PERMYRIAD 100u /* dead band: evictions below 1 % of total are not worth their restore */
#define BAND_MIN_BYTES (4 * MIB)

#define REACT_NS           (500 * MS)  /* from a figure to the first page freed */
#define DEFAULT_EVICT_RATE (512 * MIB) /* bytes a second, until measured */

/* How long an eviction takes to show: MemAvailable at once, stalls after their window of 2 s. */
#define SETTLE_NEED_NS   (500 * MS)
#define SETTLE_REPORT_NS (2000 * MS)
#define SETTLE_SEVERE_NS (250 * MS)

#define PEERS_NS    (2000 * MS)  /* what idler processes get to do their share */
#define BACKOFF_NS  (10000 * MS) /* after an eviction that failed or freed nothing */
#define GAP_NS      (2000 * MS)  /* of boottime over monotonic: the machine slept */
#define RESUME_NS   (60000 * MS) /* no idle step that soon after it woke: its user is back */
#define RATE_MIN_NS (50 * MS)    /* rates over less time are noise */

#define CLEAN_BUDGET_BYTES (64 * MIB)
#define CLEAN_PAUSE_MS     1000u
#define CLEAN_URGENT_MS    10u /* when hidden: Android freezes cached processes within seconds */

/* Polling: never later than the fastest taker we assume could eat the margin. Writing fresh pages runs at 1-6
 * GB/s. */
#define TAKER_BYTES_PER_S           (4 * GIB)
#define TAKER_TRIGGERED_BYTES_PER_S GIB /* the kernel reports stalls besides */
#define POLL_MIN_MS                 100u
#define POLL_MAX_MS                 1000u
#define POLL_TRIGGERED_MAX_MS       4000u
#define POLL_NOTHING_MS             5000u /* there is nothing that we could give */

struct view {
    const struct mz_policy_options *options;
    const struct mz_policy_sample *sample;
    struct mz_policy_state *state;
    uint64_t floor, evictable, band; /* bytes */
    uint64_t rate;                   /* eviction, bytes a second */
    uint64_t system_low, group_low;  /* bytes; 0: not watched */
    uint64_t system_need, group_need;
    uint64_t hold_left_ns;           /* 0: no hold */
    bool ours_report, system_report; /* stalls or events, besides what is missing */
    enum mz_level level;
};

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* a * b / c without overflow on the way; c > 0. */
static uint64_t mul_div(uint64_t a, uint64_t b, uint64_t c)
{
    unsigned __int128 v = (unsigned __int128)a * b / c;

    return v > UINT64_MAX ? UINT64_MAX : (uint64_t)v;
}

static uint64_t share(uint64_t bytes, uint32_t permyriad)
{
    return mul_div(bytes, permyriad, WHOLE);
}

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

/* --- time and rates ----------------------------------------------------------------------------------------
 */

/* Bytes a second that others took between two samples: rises at once, falls by a quarter a sample. */
static uint64_t fill_rate(uint64_t old_rate, uint64_t before, uint64_t now, uint64_t own_growth,
                          uint64_t dt_ns)
{
    uint64_t rate = 0;

    if (before == MZ_POLICY_UNKNOWN || now == MZ_POLICY_UNKNOWN)
        return 0;
    rate = mul_div(minus(minus(before, now), own_growth), UINT64_C(1000000000), dt_ns);
    return rate >= old_rate ? rate : old_rate - (old_rate - rate + 3) / 4;
}

static void remember(struct mz_policy_state *state, const struct mz_policy_sample *s)
{
    state->now_ns = s->now_ns;
    state->boottime_ns = s->boottime_ns;
    state->available_bytes = s->available_bytes;
    state->group_headroom_bytes = s->group_headroom_bytes;
    state->remaining_bytes = s->facts.remaining_bytes;
}

/* A clock that ran backwards: times remembered mean nothing any more. What was asked for still stands. */
static void forget_times(struct mz_policy_state *state, uint64_t now_ns)
{
    enum mz_trim trim = state->trim;
    bool busy = state->trim_busy;

    *state = (struct mz_policy_state){.trim = trim, .trim_busy = busy, .trim_ns = now_ns};
}

/* Moves the state's clock and rates to this sample. */
static void advance(struct view *v)
{
    struct mz_policy_state *st = v->state;
    const struct mz_policy_sample *s = v->sample;
    uint64_t dt, boot_dt, growth;

    if (st->now_ns > s->now_ns)
        forget_times(st, s->now_ns);
    if (st->now_ns == 0) {
        remember(st, s);
        return;
    }
    dt = s->now_ns - st->now_ns;
    boot_dt = minus(s->boottime_ns, st->boottime_ns);
    if (boot_dt > plus(dt, GAP_NS)) {
        st->resumed_ns = max_u64(s->now_ns, 1);
        st->fill_bytes_per_s = st->group_fill_bytes_per_s = 0;
        remember(st, s);
        return;
    }
    if (dt < RATE_MIN_NS)
        return; /* the next sample measures from the earlier one */
    growth = minus(s->facts.remaining_bytes, st->remaining_bytes);
    st->fill_bytes_per_s =
        fill_rate(st->fill_bytes_per_s, st->available_bytes, s->available_bytes, growth, dt);
    st->group_fill_bytes_per_s =
        fill_rate(st->group_fill_bytes_per_s, st->group_headroom_bytes, s->group_headroom_bytes, growth, dt);
    remember(st, s);
}

/* --- what is missing ---------------------------------------------------------------------------------------
 */

static uint64_t system_low(const struct mz_policy_options *o, const struct mz_policy_sample *s)
{
    uint64_t low;

    if (s->memory_bytes == 0 || s->available_bytes == MZ_POLICY_UNKNOWN ||
        s->available_bytes > s->memory_bytes)
        return 0; /* unknown, or a file that cannot be true */
    if (o->headroom_bytes != 0)
        return min_u64(o->headroom_bytes, s->memory_bytes);
    if (s->swap_free_bytes <= s->swap_bytes / 100 * SWAP_TIGHT_PERCENT)
        low = share(s->memory_bytes, LOW_TIGHT_PERMYRIAD);
    else
        low = min_u64(share(s->memory_bytes, LOW_SWAP_PERMYRIAD), LOW_SWAP_MAX_BYTES);
    return max_u64(low, min_u64(LOW_MIN_BYTES, s->memory_bytes / 4));
}

static uint64_t group_low(const struct mz_policy_sample *s)
{
    uint64_t low;

    if (s->group_limit_bytes == MZ_POLICY_UNKNOWN || s->group_headroom_bytes == MZ_POLICY_UNKNOWN ||
        s->group_headroom_bytes > s->group_limit_bytes)
        return 0;
    low = min_u64(share(s->group_limit_bytes, GROUP_LOW_PERMYRIAD), GROUP_LOW_MAX_BYTES);
    return max_u64(low, min_u64(GROUP_LOW_MIN_BYTES, s->group_limit_bytes / 4));
}

/* Bytes that will be available when an eviction begun now could be done. */
static uint64_t predicted(const struct view *v, uint64_t available, uint64_t fill)
{
    uint64_t step = share(v->sample->facts.total_bytes, OWN_STEP_PERMYRIAD);
    uint64_t lead_ns = REACT_NS + mul_div(step, UINT64_C(1000000000), v->rate);

    return minus(available, mul_div(fill, lead_ns, UINT64_C(1000000000)));
}

/* Bytes to free so that `low` and a quarter more are available afterwards; 0 when `low` will be. While d
 * bytes are evicted at `rate`, others take d * fill / rate: the geometric sum of that is d * rate / (rate -
 * fill). Twice d is enough for one decision: a burst seldom lasts, and if it does the next decision is half a
 * second away. */
static uint64_t need(const struct view *v, uint64_t low, uint64_t available, uint64_t fill)
{
    uint64_t soon = predicted(v, available, fill), deficit;

    if (low == 0 || soon >= low)
        return 0;
    deficit = low + low / 4 - soon;
    if (fill >= v->rate / 2)
        return deficit + deficit;
    return mul_div(deficit, v->rate, v->rate - fill);
}

static enum mz_level headroom_level(const struct view *v, uint64_t low, uint64_t available, uint64_t fill)
{
    if (low == 0)
        return MZ_LEVEL_NONE;
    if (available < low / 2)
        return MZ_LEVEL_SEVERE;
    if (predicted(v, available, fill) < low)
        return MZ_LEVEL_MEDIUM;
    return predicted(v, available, fill) < low + low / 2 ? MZ_LEVEL_LOW : MZ_LEVEL_NONE;
}

static enum mz_level stall_level(uint32_t some, uint32_t full, enum mz_level told)
{
    if (some >= SOME_SEVERE_PERMYRIAD || full >= FULL_SEVERE_PERMYRIAD)
        return MZ_LEVEL_SEVERE;
    if (some >= SOME_MEDIUM_PERMYRIAD && told < MZ_LEVEL_MEDIUM)
        return MZ_LEVEL_MEDIUM;
    return told;
}

static enum mz_level trim_level(enum mz_trim trim)
{
    switch (trim) {
    case MZ_TRIM_STEP_SEVERE:
    case MZ_TRIM_FLOOR_SEVERE:
        return MZ_LEVEL_SEVERE;
    case MZ_TRIM_STEP:
        return MZ_LEVEL_MEDIUM;
    default:
        return MZ_LEVEL_NONE;
    }
}

static void raise_level(struct view *v, enum mz_level level)
{
    if (level > v->level)
        v->level = level;
}

/* The level, what is missing, and whether somebody reported stalls. */
static void judge(struct view *v)
{
    const struct mz_policy_sample *s = v->sample;
    const struct mz_policy_state *st = v->state;
    enum mz_level ours = stall_level(s->group_some_permyriad, s->group_full_permyriad, s->told);
    enum mz_level system = stall_level(s->system_some_permyriad, s->system_full_permyriad, s->system_told);

    v->system_low = system_low(v->options, s);
    v->group_low = group_low(s);
    if (v->system_low != 0 &&
        s->available_bytes >= max_u64(share(s->memory_bytes, AMPLE_PERMYRIAD), 2 * v->system_low))
        system = MZ_LEVEL_NONE;
    v->system_need = need(v, v->system_low, s->available_bytes, st->fill_bytes_per_s);
    v->group_need = need(v, v->group_low, s->group_headroom_bytes, st->group_fill_bytes_per_s);
    v->ours_report = ours >= MZ_LEVEL_MEDIUM;
    v->system_report = system >= MZ_LEVEL_MEDIUM;
    raise_level(v, headroom_level(v, v->system_low, s->available_bytes, st->fill_bytes_per_s));
    raise_level(v, headroom_level(v, v->group_low, s->group_headroom_bytes, st->group_fill_bytes_per_s));
    raise_level(v, ours);
    raise_level(v, system);
    raise_level(v, trim_level(st->trim));
}

/* --- the model ---------------------------------------------------------------------------------------------
 */

static uint64_t since(uint64_t now, uint64_t then)
{
    return then == 0 ? UINT64_MAX : minus(now, then);
}

static void measure_model(struct view *v)
{
    const struct mz_policy_facts *f = &v->sample->facts;
    const struct mz_policy_options *o = v->options;
    uint64_t hold_ns = o->hold_ms * MS;

    v->floor = max_u64(f->floor_bytes, max_u64(o->floor_bytes, share(f->total_bytes, o->floor_permyriad)));
    v->evictable = minus(f->remaining_bytes, v->floor);
    v->band = max_u64(share(f->total_bytes, BAND_PERMYRIAD), BAND_MIN_BYTES);
    v->rate = max_u64(f->evict_bytes_per_s != 0 ? f->evict_bytes_per_s : DEFAULT_EVICT_RATE, 1);
    v->hold_left_ns = minus(hold_ns, since(v->sample->now_ns, f->last_use_ns));
    if (f->computing)
        v->hold_left_ns = max_u64(hold_ns, 1);
}

static uint64_t idle_ns(const struct view *v)
{
    const struct mz_policy_facts *f = &v->sample->facts;

    return f->computing || f->last_use_ns == 0 ? 0 : since(v->sample->now_ns, f->last_use_ns);
}

/* Takes over a new request, and drops one that a later use has overtaken. */
static void take_trim(struct view *v)
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

/* --- the rules: each returns whether it decided ------------------------------------------------------------
 */

static bool evict(struct view *v, struct mz_policy_action *ret, uint64_t bytes, const char *why)
{
    bytes = min_u64(bytes, v->evictable);
    if (bytes == 0)
        return false;
    ret->act = MZ_ACT_EVICT;
    ret->bytes = bytes;
    ret->why = why;
    return true;
}

static bool rule_limit(struct view *v, struct mz_policy_action *ret)
{
    const struct mz_policy_facts *f = &v->sample->facts;
    uint64_t limit = v->options->limit_bytes;

    if (f->limit_bytes != 0)
        limit = min_u64(limit, f->limit_bytes);
    return !f->computing && f->remaining_bytes > limit && evict(v, ret, f->remaining_bytes - limit, "limit");
}

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

static void acted(struct view *v)
{
    v->state->acted_ns = max_u64(v->sample->now_ns, 1);
    v->state->deferred_ns = 0;
    if (v->state->steps < UINT32_MAX)
        v->state->steps++;
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

static bool rule_pressure(struct view *v, struct mz_policy_action *ret)
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
        decided = evict(v, ret, after_peers(v, ret, max_u64(pressure_bytes(v), v->band)), pressure_why(v));
    if (decided)
        acted(v);
    if (step_asked(v))
        v->state->trim = MZ_TRIM_NONE; /* done, or there was nothing to give */
    return decided;
}

static uint32_t permyriad_up(uint64_t bytes, uint64_t total)
{
    uint64_t p = total == 0 ? 0 : mul_div(bytes, WHOLE, total);

    if (share(total, (uint32_t)min_u64(p, WHOLE)) < bytes)
        p++;
    return (uint32_t)min_u64(p, WHOLE);
}

static bool rule_trim(struct view *v, struct mz_policy_action *ret)
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
    ret->remaining_permyriad = permyriad_up(v->floor, v->sample->facts.total_bytes);
    ret->why = "trim";
    acted(v);
    return true;
}

static bool idle_on(const struct view *v)
{
    return v->options->idle_ms != 0 && v->options->idle_permyriad != 0 && v->sample->facts.total_bytes != 0 &&
           !v->sample->facts.computing && v->sample->facts.last_use_ns != 0;
}

static bool just_resumed(const struct view *v)
{
    return since(v->sample->now_ns, v->state->resumed_ns) < RESUME_NS;
}

static bool rule_idle(struct view *v, struct mz_policy_action *ret)
{
    const struct mz_policy_facts *f = &v->sample->facts;
    uint64_t steps, target;

    if (!idle_on(v) || just_resumed(v))
        return false;
    steps = min_u64(idle_ns(v) / MS / v->options->idle_ms, WHOLE);
    if (steps == 0)
        return false;
    target = minus(f->total_bytes, share(mul_div(f->total_bytes, steps, 1), v->options->idle_permyriad));
    target = max_u64(target, v->floor);
    if (f->remaining_bytes <= target || f->remaining_bytes - target < v->band)
        return false;
    ret->act = MZ_ACT_EVICT_TO;
    ret->remaining_permyriad = permyriad_up(target, f->total_bytes);
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
    return v->level == MZ_LEVEL_NONE && idle_on(v) && !just_resumed(v) && idle / MS >= o->idle_ms / 2;
}

static bool rule_clean(struct view *v, struct mz_policy_action *ret)
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

/* --- when to look again ------------------------------------------------------------------------------------
 */

static uint64_t poll_ms(const struct view *v)
{
    const struct mz_policy_sample *s = v->sample;
    uint64_t margin = UINT64_MAX,
             fill = max_u64(v->state->fill_bytes_per_s, v->state->group_fill_bytes_per_s);
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
    uint64_t ms = UINT64_MAX, idle = idle_ns(v), step = mul_div(v->options->idle_ms, MS, 1);

    if (!v->sample->facts.computing && v->hold_left_ns != 0)
        ms = ms_up(v->hold_left_ns);
    if (idle_on(v) && v->evictable != 0) {
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

/* --- the decision ------------------------------------------------------------------------------------------
 */

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

    measure_model(&v);
    advance(&v);
    take_trim(&v);
    judge(&v);
    note_level(&v);
    if (sample->facts.total_bytes != 0 &&
        (backing_off(&v) || (!rule_limit(&v, &action) && !rule_trim(&v, &action) &&
                             !rule_pressure(&v, &action) && !rule_idle(&v, &action))))
        (void)rule_clean(&v, &action);
    action.level = v.level;
    action.cancel_restore =
        v.level >= MZ_LEVEL_MEDIUM && !sample->facts.computing; /* then it is needed now */
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
