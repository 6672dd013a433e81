/* How short memory is: rates, marks, levels. */
#include "pressure/policy_int.h"

/* When memory is short. earlyoom kills at 10 % of MemAvailable once free swap is at 10 % too (or there is
 * none), so where swap is nearly used up we begin at 12.5 %. With swap left, running low is slow rather than
 * deadly: 1/16. */
#define LOW_TIGHT_PERMYRIAD 1250u
#define LOW_SWAP_PERMYRIAD  625u
#define LOW_SWAP_MAX_BYTES  (4 * GIB)
#define LOW_MIN_BYTES       (256 * MIB)
#define SWAP_TIGHT_PERCENT  15u
#define DEADLY_PERMYRIAD    1100u /* just above those 10 % */
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

#define BAND_PERMYRIAD 100u /* dead band: evictions below 1 % of total are not worth their restore */
#define BAND_MIN_BYTES (4 * MIB)

#define REACT_NS           (500 * MS)  /* from a figure to the first page freed */
#define DEFAULT_EVICT_RATE (512 * MIB) /* bytes a second, until measured */
#define GAP_NS             (2000 * MS) /* of boottime over monotonic: the machine slept */
#define RATE_MIN_NS        (50 * MS)   /* rates over less time are noise */

/* ---- time and rates */

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

/* The headroom to compare with. Under another limit there was none: nobody took what a lower one took away. */
static uint64_t group_before(const struct mz_policy_state *state, const struct mz_policy_sample *s)
{
    return state->group_limit_bytes == s->group_limit_bytes ? state->group_headroom_bytes : MZ_POLICY_UNKNOWN;
}

static void remember(struct mz_policy_state *state, const struct mz_policy_sample *s)
{
    state->now_ns = s->now_ns;
    state->boottime_ns = s->boottime_ns;
    state->available_bytes = s->available_bytes;
    state->group_limit_bytes = s->group_limit_bytes;
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
void mz_policy_advance(struct view *v)
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
        fill_rate(st->group_fill_bytes_per_s, group_before(st, s), s->group_headroom_bytes, growth, dt);
    remember(st, s);
}

/* ---- what is missing */

static bool swap_is_tight(const struct mz_policy_sample *s)
{
    return s->swap_free_bytes <= s->swap_bytes / 100 * SWAP_TIGHT_PERCENT;
}

static uint64_t system_low(const struct mz_policy_options *o, const struct mz_policy_sample *s)
{
    uint64_t low;

    if (s->memory_bytes == 0 || s->available_bytes == MZ_POLICY_UNKNOWN ||
        s->available_bytes > s->memory_bytes)
        return 0; /* unknown, or a file that cannot be true */
    if (o->headroom_bytes != 0)
        return min_u64(o->headroom_bytes, s->memory_bytes);
    if (swap_is_tight(s))
        low = share(s->memory_bytes, LOW_TIGHT_PERMYRIAD);
    else
        low = min_u64(share(s->memory_bytes, LOW_SWAP_PERMYRIAD), LOW_SWAP_MAX_BYTES);
    return max_u64(low, min_u64(LOW_MIN_BYTES, s->memory_bytes / 4));
}

/* Below which a killer acts; 0: none does as long as there is swap, or the user said how far memory may fall.
 */
static uint64_t deadly(const struct mz_policy_options *o, const struct mz_policy_sample *s, uint64_t low)
{
    if (o->headroom_bytes != 0 || !swap_is_tight(s))
        return 0;
    return min_u64(share(s->memory_bytes, DEADLY_PERMYRIAD), low);
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

/* A killer does not wait until our eviction is done, so what counts is what will be left then. While we
 * compute, it is what is left now: what our own buffers take looks like somebody else's filling. */
static bool killer_is_near(const struct view *v, uint64_t mark)
{
    const struct mz_policy_sample *s = v->sample;

    return (s->facts.computing ? s->available_bytes
                               : predicted(v, s->available_bytes, v->state->fill_bytes_per_s)) < mark;
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

/* Our group is known to have room for everybody in it: a report that it was short is out of date. */
static bool group_is_ample(const struct view *v)
{
    return v->group_low != 0 && v->sample->group_headroom_bytes >= 2 * v->group_low;
}

/* A group counts that it is at its limit also when page cache has filled it, which makes room by itself. Who waits for
 * that shows in its stalls. */
static enum mz_level told_of_us(const struct view *v)
{
    const struct mz_policy_sample *s = v->sample;

    return s->group_told > s->told && !group_is_ample(v) ? s->group_told : s->told;
}

/* Somebody may report once and never again (a line in a FIFO), while nothing may be evicted. Such a report is
 * kept until the hold is over, and judged then as if it came then: figures that show ample memory by that
 * time overrule it. One that is older than the calm window belongs to a pressure that is over. */
static void hear(struct view *v, enum mz_level *told, enum mz_level *system_told)
{
    struct mz_policy_state *st = v->state;

    if (since(v->sample->now_ns, st->held_ns) >= v->options->calm_ms * MS)
        st->held_told = st->held_system_told = MZ_LEVEL_NONE;
    if (v->hold_left_ns == 0) {
        if (st->held_told > *told && !group_is_ample(v))
            *told = st->held_told;
        if (st->held_system_told > *system_told)
            *system_told = st->held_system_told;
        st->held_told = st->held_system_told = MZ_LEVEL_NONE;
        return;
    }
    if (*told == MZ_LEVEL_NONE && *system_told == MZ_LEVEL_NONE)
        return;
    st->held_told = *told > st->held_told ? *told : st->held_told;
    st->held_system_told = *system_told > st->held_system_told ? *system_told : st->held_system_told;
    st->held_ns = max_u64(v->sample->now_ns, 1);
}

/* The level, what is missing, and whether somebody reported stalls. */
void mz_policy_judge(struct view *v)
{
    const struct mz_policy_sample *s = v->sample;
    const struct mz_policy_state *st = v->state;
    enum mz_level told, system_told = s->system_told, ours, system;
    uint64_t mark;

    v->system_low = system_low(v->options, s);
    v->group_low = group_low(s);
    mark = deadly(v->options, s, v->system_low);
    v->keep = (max_u64(mark, v->system_low / 2) + v->system_low) / 2;
    told = told_of_us(v);
    hear(v, &told, &system_told);
    ours = stall_level(s->group_some_permyriad, s->group_full_permyriad, told);
    system = stall_level(s->system_some_permyriad, s->system_full_permyriad, system_told);
    if (v->system_low != 0 &&
        s->available_bytes >= max_u64(share(s->memory_bytes, AMPLE_PERMYRIAD), 2 * v->system_low))
        system = MZ_LEVEL_NONE;
    v->system_need = need(v, v->system_low, s->available_bytes, st->fill_bytes_per_s);
    v->group_need = need(v, v->group_low, s->group_headroom_bytes, st->group_fill_bytes_per_s);
    v->ours_report = ours >= MZ_LEVEL_MEDIUM;
    v->system_report = system >= MZ_LEVEL_MEDIUM;
    raise_level(v, headroom_level(v, v->system_low, s->available_bytes, st->fill_bytes_per_s));
    raise_level(v, headroom_level(v, v->group_low, s->group_headroom_bytes, st->group_fill_bytes_per_s));
    raise_level(v, killer_is_near(v, mark) ? MZ_LEVEL_SEVERE : MZ_LEVEL_NONE);
    raise_level(v, ours);
    raise_level(v, system);
    raise_level(v, trim_level(st->trim));
}

void mz_policy_measure(struct view *v)
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
