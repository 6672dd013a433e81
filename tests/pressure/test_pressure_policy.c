/* What the policy decides: traces in, decisions out. */
#include "policy_trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- one sample, one decision ------------------------------------------------------------------------------
 */

/* A row changes one thing in a quiet sample 60 s after the last use and names what must come out. */
struct row {
    const char *what;
    uint64_t available_mib;                       /* 0: 6 GiB */
    uint64_t swap_free_mib;                       /* 0: 4 GiB */
    uint64_t group_limit_mib, group_headroom_mib; /* 0, 0: no limit */
    uint32_t system_some, group_some, group_full;
    enum mz_level told, group_told, system_told;
    enum mz_trim trim;
    uint32_t step_permyriad;
    bool computing, just_used;
    uint64_t floor_mib, limit_mib;
    /* expected */
    enum mz_act act;
    enum mz_level level;
    uint64_t least_mib, most_mib; /* of EVICT */
};

static const struct row rows[] = {
    {.what = "plenty", .act = MZ_ACT_NONE, .level = MZ_LEVEL_NONE},
    {.what = "getting short", .available_mib = 1400, .act = MZ_ACT_NONE, .level = MZ_LEVEL_LOW},
    {.what = "inside the dead band", .available_mib = 1030, .act = MZ_ACT_NONE, .level = MZ_LEVEL_LOW},
    {.what = "short",
     .available_mib = 900,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 380,
     .most_mib = 380},
    {.what = "nearly nothing",
     .available_mib = 100,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_SEVERE,
     .least_mib = 1180,
     .most_mib = 1180},
    {.what = "swap used up: earlyoom's rule begins earlier",
     .available_mib = 1900,
     .swap_free_mib = 100,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 660,
     .most_mib = 660},
    {.what = "cgroup with room", .group_limit_mib = 8192, .group_headroom_mib = 3000, .act = MZ_ACT_NONE},
    {.what = "cgroup nearly full",
     .group_limit_mib = 8192,
     .group_headroom_mib = 400,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 240,
     .most_mib = 240},
    {.what = "cgroup full",
     .group_limit_mib = 8192,
     .group_headroom_mib = 10,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_SEVERE,
     .least_mib = 630,
     .most_mib = 630},
    {.what = "stalls while plenty is available are not ours", .system_some = 2000, .act = MZ_ACT_NONE},
    {.what = "stalls while memory is scarce",
     .available_mib = 3000,
     .system_some = 2000,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 204,
     .most_mib = 205},
    {.what = "a trigger of the system",
     .available_mib = 3000,
     .system_told = MZ_LEVEL_MEDIUM,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 204,
     .most_mib = 205},
    {.what = "stalls in our cgroup",
     .group_some = 900,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 204,
     .most_mib = 205},
    {.what = "full stalls in our cgroup",
     .group_full = 2500,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_SEVERE,
     .least_mib = 409,
     .most_mib = 410},
    {.what = "our manager says so",
     .told = MZ_LEVEL_MEDIUM,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 204,
     .most_mib = 205},
    {.what = "files have filled our cgroup, and leave when asked",
     .group_limit_mib = 8192,
     .group_headroom_mib = 3000,
     .group_told = MZ_LEVEL_SEVERE,
     .act = MZ_ACT_NONE,
     .level = MZ_LEVEL_NONE},
    {.what = "our cgroup was at its limit and has little room",
     .group_limit_mib = 8192,
     .group_headroom_mib = 1000,
     .group_told = MZ_LEVEL_SEVERE,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_SEVERE,
     .least_mib = 409,
     .most_mib = 410},
    {.what = "our cgroup was at its limit, and its room is unknown",
     .group_told = MZ_LEVEL_MEDIUM,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 204,
     .most_mib = 205},
    {.what = "15 points",
     .told = MZ_LEVEL_MEDIUM,
     .step_permyriad = 1500,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 614,
     .most_mib = 615},
    {.what = "25 points",
     .told = MZ_LEVEL_MEDIUM,
     .step_permyriad = 2500,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 1024,
     .most_mib = 1024},
    {.what = "25 points, short",
     .available_mib = 900,
     .step_permyriad = 2500,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 1024,
     .most_mib = 1024},
    {.what = "15 points, severe: what is missing",
     .available_mib = 100,
     .step_permyriad = 1500,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_SEVERE,
     .least_mib = 1180,
     .most_mib = 1180},
    {.what = "hold after use",
     .available_mib = 900,
     .just_used = true,
     .act = MZ_ACT_NONE,
     .level = MZ_LEVEL_MEDIUM},
    {.what = "no hold when severe",
     .available_mib = 100,
     .just_used = true,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_SEVERE,
     .least_mib = 1180,
     .most_mib = 1180},
    {.what = "computing",
     .available_mib = 900,
     .computing = true,
     .act = MZ_ACT_NONE,
     .level = MZ_LEVEL_MEDIUM},
    {.what = "computing, severe",
     .available_mib = 100,
     .computing = true,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_SEVERE,
     .least_mib = 1180,
     .most_mib = 1180},
    {.what = "floor",
     .available_mib = 100,
     .floor_mib = 4000,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_SEVERE,
     .least_mib = 96,
     .most_mib = 96},
    {.what = "at the floor",
     .available_mib = 100,
     .floor_mib = 4096,
     .act = MZ_ACT_NONE,
     .level = MZ_LEVEL_SEVERE},
    {.what = "less than the dead band to give",
     .available_mib = 900,
     .floor_mib = 4060,
     .act = MZ_ACT_NONE,
     .level = MZ_LEVEL_MEDIUM},
    {.what = "above the limit", .limit_mib = 3000, .act = MZ_ACT_EVICT, .least_mib = 1096, .most_mib = 1096},
    {.what = "above the limit, just used",
     .limit_mib = 3000,
     .just_used = true,
     .act = MZ_ACT_EVICT,
     .least_mib = 1096,
     .most_mib = 1096},
    {.what = "hidden: clean, take nothing",
     .trim = MZ_TRIM_CLEAN,
     .act = MZ_ACT_CLEAN,
     .least_mib = 64,
     .most_mib = 64},
    {.what = "background", .trim = MZ_TRIM_FLOOR, .act = MZ_ACT_EVICT_TO},
    {.what = "background, just used", .trim = MZ_TRIM_FLOOR, .just_used = true, .act = MZ_ACT_NONE},
    {.what = "critical warning, just used",
     .trim = MZ_TRIM_FLOOR_SEVERE,
     .just_used = true,
     .act = MZ_ACT_EVICT_TO,
     .level = MZ_LEVEL_SEVERE},
    {.what = "low warning",
     .trim = MZ_TRIM_STEP,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_MEDIUM,
     .least_mib = 204,
     .most_mib = 205},
    {.what = "running critical",
     .trim = MZ_TRIM_STEP_SEVERE,
     .just_used = true,
     .act = MZ_ACT_EVICT,
     .level = MZ_LEVEL_SEVERE,
     .least_mib = 409,
     .most_mib = 410},
};

static struct mz_policy_sample sample_of(const struct row *r)
{
    struct mz_policy_sample s = sample_at(60000);

    if (r->available_mib != 0)
        s.available_bytes = r->available_mib * MIB;
    if (r->swap_free_mib != 0)
        s.swap_free_bytes = r->swap_free_mib * MIB;
    if (r->group_limit_mib != 0) {
        s.group_limit_bytes = r->group_limit_mib * MIB;
        s.group_headroom_bytes = r->group_headroom_mib * MIB;
    }
    s.system_some_permyriad = r->system_some;
    s.group_some_permyriad = r->group_some;
    s.group_full_permyriad = r->group_full;
    s.told = r->told;
    s.group_told = r->group_told;
    s.system_told = r->system_told;
    s.trim = r->trim;
    s.facts.computing = r->computing;
    s.facts.dirty_bytes = r->trim == MZ_TRIM_CLEAN ? GIB : 0;
    if (r->just_used)
        s.facts.last_use_ns = s.now_ns - 500 * MS;
    if (r->floor_mib != 0)
        s.facts.floor_bytes = r->floor_mib * MIB;
    return s;
}

static void test_rows(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *r = &rows[i];
        struct mz_policy_sample s = sample_of(r);
        struct mz_policy_state before = {0}, after;
        struct mz_policy_options o;
        struct mz_policy_action a;
        bool right;

        mz_policy_defaults(&o);
        o.step_permyriad = r->step_permyriad;
        if (r->limit_mib != 0)
            o.limit_bytes = r->limit_mib * MIB;
        mz_policy_decide(&o, &before, &s, &after, &a);
        right = a.act == r->act && a.level == r->level && a.next_ms > 0;
        if (a.act == MZ_ACT_EVICT || a.act == MZ_ACT_CLEAN)
            right = right && a.bytes / MIB >= r->least_mib && a.bytes / MIB <= r->most_mib;
        if (!right)
            print_error("%s: %s of %llu MiB at level %s (%s), next in %u ms\n", r->what, mz_act_name(a.act),
                        (unsigned long long)(a.bytes / MIB), mz_level_name(a.level), a.why, a.next_ms);
        assert_true(right);
        assert_int_equal(a.cancel_restore, a.level >= MZ_LEVEL_MEDIUM && !r->computing);
    }
}

/* --- traces ------------------------------------------------------------------------------------------------
 */

/* A hog takes 512 MiB every 250 ms: what we give must arrive before a killer's 10 % is reached, and cover
 * what the hog takes meanwhile. */
static void test_hog_is_met_ahead(void **unused)
{
    struct replay r;
    uint64_t taken = 0, least = UINT64_MAX;

    (void)unused;
    replay_begin(&r);
    for (uint64_t t = 60000; t < 64000; t += 250) {
        struct mz_policy_sample s = sample_at(t);

        s.swap_bytes = s.swap_free_bytes = 0;
        s.available_bytes = 6 * GIB + r.freed_bytes - taken;
        if (s.available_bytes < least)
            least = s.available_bytes;
        replay_step(&r, s);
        if (taken < 5 * GIB)
            taken += 512 * MIB;
    }
    assert_true(r.freed_bytes >= GIB);
    assert_true(least > 16 * GIB / 10);
}

/* Used a second ago, without swap, and a hog that would be at the killer's 10 % before an eviction could begin: no hold then.
 * Where swap is left, or the user said how far memory may fall, the hold holds. What restoring leaves alone lies between the
 * two marks. */
static void test_no_hold_when_a_killer_is_near(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(1000);

    (void)unused;
    s.swap_bytes = s.swap_free_bytes = 0;
    s.available_bytes = 1850 * MIB;
    replay_begin(&r);
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE); /* short, but nobody dies of it */
    assert_int_equal(r.action.level, MZ_LEVEL_MEDIUM);
    assert_in_range(r.action.keep_bytes, 1803 * MIB, 2047 * MIB);
    s.now_ns += 200 * MS;
    s.available_bytes -= 20 * MIB; /* 100 MiB/s */
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);
    assert_int_equal(r.action.level, MZ_LEVEL_SEVERE);

    replay_begin(&r);
    s.facts.computing = true; /* that may be our own doing: only what is there counts */
    s.available_bytes = 1810 * MIB;
    replay_step(&r, s);
    s.now_ns += 200 * MS;
    s.available_bytes = 1805 * MIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    s.now_ns += 200 * MS;
    s.available_bytes = 1795 * MIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);

    s.facts.computing = false;
    replay_begin(&r);
    r.options.headroom_bytes = 2 * GIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    replay_begin(&r);
    s.swap_bytes = s.swap_free_bytes = 4 * GIB;
    s.available_bytes = 600 * MIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    assert_int_equal(r.action.level, MZ_LEVEL_MEDIUM);
    assert_in_range(r.action.keep_bytes, 513 * MIB, 1023 * MIB);
}

/* A burst of 5 GiB/s is not taken for a hog that never stops. */
static void test_burst_does_not_take_everything(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    replay_begin(&r);
    s.available_bytes = 2 * GIB;
    replay_step(&r, s);
    s.now_ns += 100 * MS;
    s.available_bytes -= 512 * MIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);
    assert_int_equal(r.action.level, MZ_LEVEL_MEDIUM);
    assert_int_equal(r.action.bytes, 2 * 1280 * MIB);
}

/* Without an end of the stalls steps grow to 20 % of total, and it ends at the floor. */
static void test_steps_grow_until_calm(void **unused)
{
    static const uint64_t percent[] = {5, 10, 20, 20};
    struct replay r;
    uint64_t t = 60000;

    (void)unused;
    replay_begin(&r);
    for (size_t i = 0; i < 4; i++, t += 2000) {
        struct mz_policy_sample s = sample_at(t);

        s.told = MZ_LEVEL_MEDIUM;
        replay_step(&r, s);
        assert_int_equal(r.action.act, MZ_ACT_EVICT);
        assert_in_range(r.action.bytes, 4 * GIB * percent[i] / 100 - MIB, 4 * GIB * percent[i] / 100 + MIB);
        s.now_ns += 500 * MS;
        replay_step(&r, s); /* too early: the last one cannot be seen yet */
        assert_int_equal(r.action.act, MZ_ACT_NONE);
    }
    assert_false(mz_policy_calm(&r.options, &r.state));
    replay_step(&r, sample_at(t + 31000));
    assert_true(mz_policy_calm(&r.options, &r.state));
    assert_int_equal(r.state.steps, 0);
    for (int i = 0; i < 10; i++) {
        struct mz_policy_sample s = sample_at(t + 40000 + 2000 * (uint64_t)i);

        s.told = MZ_LEVEL_MEDIUM;
        replay_step(&r, s);
    }
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    assert_true(r.remaining_bytes >= 256 * MIB && r.remaining_bytes < 256 * MIB + 41 * MIB);
}

static void test_headroom_and_band_end_it(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    replay_begin(&r);
    s.available_bytes = 900 * MIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);
    for (uint64_t t = 61000; t < 70000; t += 1000) {
        s = sample_at(t);
        s.available_bytes = 900 * MIB + r.freed_bytes - (t - 61000) / 1000 * 8 * MIB;
        replay_step(&r, s);
        assert_int_equal(r.action.act, MZ_ACT_NONE);
    }
}

static void test_peers_give_first(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    replay_begin(&r);
    s.available_bytes = 900 * MIB;
    s.peers_bytes = 2 * GIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    assert_true(r.action.shared);
    assert_true(r.action.next_ms <= 250);
    s.now_ns += 1000 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    s.now_ns += 1000 * MS; /* they did nothing for two seconds */
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);
    assert_int_equal(r.action.bytes, 380 * MIB);

    replay_begin(&r);
    s = sample_at(60000);
    s.available_bytes = 900 * MIB;
    s.peers_bytes = 200 * MIB; /* they have a part of it */
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);
    assert_int_equal(r.action.bytes, 180 * MIB);

    replay_begin(&r);
    s.available_bytes = 100 * MIB; /* severe: everybody gives */
    s.peers_bytes = 8 * GIB;
    replay_step(&r, s);
    assert_int_equal(r.action.bytes, 1180 * MIB);
}

static void test_idle_steps_down(void **unused)
{
    static const uint32_t want[] = {7500, 5000, 2500, 625, 625};
    struct replay r;

    (void)unused;
    replay_begin(&r);
    r.options.idle_ms = 300000;
    r.options.idle_permyriad = 2500;
    replay_step(&r, sample_at(299000));
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    assert_true(r.action.next_ms <= 1001);
    for (size_t i = 0; i < 5; i++) {
        replay_step(&r, sample_at(300000 * (i + 1)));
        if (i < 4) {
            assert_int_equal(r.action.act, MZ_ACT_EVICT_TO);
            assert_string_equal(r.action.why, "idle");
            assert_int_equal(r.action.remaining_permyriad, want[i]);
        }
        replay_step(&r, sample_at(300000 * (i + 1) + 1000));
        assert_int_equal(r.action.act, MZ_ACT_NONE);
    }
}

static void test_clean_ahead(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(149000);

    (void)unused;
    replay_begin(&r);
    r.options.idle_ms = 300000;
    s.facts.dirty_bytes = 100 * MIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    s.now_ns += 2000 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_CLEAN);
    assert_int_equal(r.action.bytes, 64 * MIB);
    assert_true(r.action.next_ms <= 1000);
    s.on_battery = true;
    s.now_ns += 1000 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    s.on_battery = false;
    mz_policy_failed(&r.state, MZ_ACT_CLEAN, s.now_ns, s.facts.last_use_ns);
    s.now_ns += 1000 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE); /* it failed since that use: not again */
    s.facts.last_use_ns += 1000 * MS;
    s.now_ns += 10000 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_CLEAN); /* used again: worth another try */
    r.options.clean_ahead = false;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
}

static void test_failed_eviction_backs_off(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    replay_begin(&r);
    s.available_bytes = 100 * MIB;
    mz_policy_failed(&r.state, MZ_ACT_EVICT, s.now_ns, s.facts.last_use_ns);
    for (int i = 0; i < 10; i++, s.now_ns += 1000 * MS) {
        replay_step(&r, s);
        assert_int_equal(r.action.act, MZ_ACT_NONE);
    }
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);
}

/* Replays the samples after a use at 0 s, in which a single report came at 2 s; when something was evicted,
 * in ms; 0: never. */
static uint64_t answered_at(struct replay *r, struct mz_policy_sample report, struct mz_policy_sample later)
{
    replay_step(r, report);
    assert_int_equal(r->action.act, MZ_ACT_NONE);
    for (uint64_t t = 3000; t < 120000; t += 1000) {
        later.now_ns = (1000 + t) * MS;
        later.boottime_ns = (500000 + t) * MS;
        replay_step(r, later);
        if (r->action.act == MZ_ACT_EVICT)
            return t;
    }
    return 0;
}

/* One line in a FIFO while nothing may be evicted, and then silence. */
static void test_report_during_the_hold_is_kept(void **unused)
{
    struct replay r;
    struct mz_policy_sample report = sample_at(2000), later = sample_at(2000);

    (void)unused;
    report.told = MZ_LEVEL_MEDIUM;
    replay_begin(&r);
    assert_int_equal(answered_at(&r, report, later), 10000); /* when the hold is over, and that once */
    assert_string_equal(r.action.why, "reported to us");
    for (uint64_t t = 11000; t < 60000; t += 1000) {
        replay_step(&r, sample_at(t));
        assert_int_equal(r.action.act, MZ_ACT_NONE);
    }

    replay_begin(&r); /* used on and on: what was reported half a minute ago is over */
    later.facts.last_use_ns = 36000 * MS;
    assert_int_equal(answered_at(&r, report, later), 0);

    replay_begin(&r); /* the group has room again */
    later = sample_at(2000);
    later.group_limit_bytes = 8 * GIB;
    later.group_headroom_bytes = 3 * GIB;
    assert_int_equal(answered_at(&r, report, later), 0);

    replay_begin(&r); /* the machine is short of nothing any more; or it still is */
    report.told = MZ_LEVEL_NONE;
    report.system_told = MZ_LEVEL_MEDIUM;
    report.available_bytes = later.available_bytes = 4 * GIB;
    later.group_limit_bytes = later.group_headroom_bytes = MZ_POLICY_UNKNOWN;
    assert_int_equal(answered_at(&r, report, later), 10000);
    replay_begin(&r);
    later.available_bytes = 12 * GIB;
    assert_int_equal(answered_at(&r, report, later), 0);

    replay_begin(&r); /* what was evicted meanwhile has answered it */
    report.told = MZ_LEVEL_MEDIUM;
    replay_step(&r, report);
    later = sample_at(4000);
    later.available_bytes = 100 * MIB;
    replay_step(&r, later);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);
    for (uint64_t t = 7000; t < 60000; t += 1000) {
        replay_step(&r, sample_at(t));
        assert_int_equal(r.action.act, MZ_ACT_NONE);
    }
}

/* --- requests of the host application ----------------------------------------------------------------------
 */

static void test_request_waits_for_the_hold_and_dies_with_use(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(1000);

    (void)unused;
    replay_begin(&r);
    s.trim = MZ_TRIM_FLOOR;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    assert_in_range(r.action.next_ms, 1, 9001);
    replay_step(&r, sample_at(10500));
    assert_int_equal(r.action.act, MZ_ACT_EVICT_TO);
    assert_int_equal(r.action.remaining_permyriad, 625);

    replay_begin(&r);
    replay_step(&r, s);
    s = sample_at(20000);
    s.facts.last_use_ns = s.now_ns - 1000 * MS; /* the user came back */
    replay_step(&r, s);
    s.now_ns += 60000 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);

    replay_begin(&r);
    s = sample_at(1000);
    s.trim = MZ_TRIM_FLOOR;
    s.facts.computing = true; /* hidden while it still writes its answer: that is no return */
    replay_step(&r, s);
    s.trim = MZ_TRIM_NONE;
    s.now_ns += 5000 * MS;
    replay_step(&r, s);
    s.now_ns += 5000 * MS;
    s.facts.computing = false;
    s.facts.last_use_ns = s.now_ns - 100 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    s.now_ns += 11000 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT_TO);
}

static void test_step_request_is_done_once(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    replay_begin(&r);
    s.trim = MZ_TRIM_STEP;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);
    assert_string_equal(r.action.why, "trim");
    for (uint64_t t = 61000; t < 70000; t += 1000) {
        replay_step(&r, sample_at(t));
        assert_int_equal(r.action.act, MZ_ACT_NONE);
        assert_int_equal(r.action.level, MZ_LEVEL_NONE);
    }
    s = sample_at(80000);
    s.trim = MZ_TRIM_STEP;
    s.facts.floor_bytes = 4 * GIB; /* nothing to give: the request ends too */
    replay_step(&r, s);
    replay_step(&r, sample_at(81000));
    assert_int_equal(r.action.level, MZ_LEVEL_NONE);
}

/* --- clocks and figures that cannot be true ----------------------------------------------------------------
 */

static void test_suspend(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(200000);

    (void)unused;
    replay_begin(&r);
    r.options.idle_ms = 300000;
    replay_step(&r, s);
    /* Eight hours asleep: monotonic time moved by 101 s only, and the user is back. */
    s = sample_at(301000);
    s.boottime_ns += UINT64_C(8) * 3600 * 1000 * MS;
    s.available_bytes = 3 * GIB; /* no rate from before the gap: 3 GiB were not taken in a second */
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    assert_int_equal(r.state.fill_bytes_per_s, 0);
    s.now_ns += 30000 * MS;
    s.boottime_ns += 30000 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    s.now_ns += 31000 * MS;
    s.boottime_ns += 31000 * MS;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT_TO);
}

/* A night in a bag is no idle time: whoever opens the lid finds the model as it was, until the rest of the
 * minutes that were to pass in use have passed. */
static void test_time_asleep_is_no_idle_time(void **unused)
{
    struct replay r;
    const uint64_t night_ns = UINT64_C(8) * 3600 * 1000 * MS;
    struct mz_policy_sample s;

    (void)unused;
    replay_begin(&r);
    r.options.idle_ms = 300000;
    for (uint64_t t = 1000; t < 300000; t += 1000) { /* used at 0 s, the lid closes at 120 s */
        s = sample_at(t);
        s.boottime_ns += t > 120000 ? night_ns : 0;
        replay_step(&r, s);
        assert_int_equal(r.action.act, MZ_ACT_NONE);
    }
    s = sample_at(300000);
    s.boottime_ns += night_ns;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT_TO);
    assert_string_equal(r.action.why, "idle");
}

static void test_clock_backwards(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    replay_begin(&r);
    s.available_bytes = 100 * MIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT);
    s = sample_at(59000);
    s.available_bytes = 100 * MIB;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_EVICT); /* as if it were the first sample */
    assert_int_equal(r.state.fill_bytes_per_s, 0);
}

static void test_figures_that_cannot_be_true(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    replay_begin(&r);
    s.available_bytes = 17 * GIB; /* more than there is */
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    s.now_ns += 1000 * MS;
    s.available_bytes = MZ_POLICY_UNKNOWN;
    s.memory_bytes = 0;
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    s.now_ns += 1000 * MS;
    s.group_limit_bytes = GIB;
    s.group_headroom_bytes = 2 * GIB; /* more than the limit */
    replay_step(&r, s);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    memset(&s.facts, 0, sizeof(s.facts)); /* nothing loaded */
    s.told = MZ_LEVEL_SEVERE;
    s.trim = MZ_TRIM_FLOOR_SEVERE;
    s.now_ns += 1000 * MS;
    mz_policy_decide(&r.options, &r.state, &s, &r.state, &r.action);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    assert_int_equal(r.state.trim, MZ_TRIM_NONE);
}

/* Our own restore takes memory too; it must not look like a hog. */
static void test_own_growth_is_no_fill(void **unused)
{
    struct mz_policy_options o;
    struct mz_policy_state st = {0};
    struct mz_policy_action a;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    mz_policy_defaults(&o);
    s.facts.remaining_bytes = GIB;
    mz_policy_decide(&o, &st, &s, &st, &a);
    s.now_ns += 1000 * MS;
    s.facts.remaining_bytes = 4 * GIB;
    s.available_bytes -= 3 * GIB;
    mz_policy_decide(&o, &st, &s, &st, &a);
    assert_int_equal(st.fill_bytes_per_s, 0);
    assert_int_equal(a.act, MZ_ACT_NONE);
}

/* A manager that lowers our group's limit takes headroom away, but takes none of it. */
static void test_a_lower_limit_is_no_fill(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    replay_begin(&r);
    s.group_limit_bytes = 8 * GIB;
    s.group_headroom_bytes = 7 * GIB;
    replay_step(&r, s);
    s.now_ns += 1000 * MS;
    s.group_limit_bytes -= 5 * GIB;
    s.group_headroom_bytes -= 5 * GIB;
    replay_step(&r, s);
    assert_int_equal(r.state.group_fill_bytes_per_s, 0);
    assert_int_equal(r.action.act, MZ_ACT_NONE);
    s.now_ns += 1000 * MS; /* what is taken under the same limit is */
    s.group_headroom_bytes -= GIB;
    replay_step(&r, s);
    assert_int_equal(r.state.group_fill_bytes_per_s, GIB);
}

static void test_polling_interval(void **unused)
{
    struct replay r;
    struct mz_policy_sample s = sample_at(60000);

    (void)unused;
    replay_begin(&r);
    replay_step(&r, s);
    assert_int_equal(r.action.next_ms, 1000);
    s.triggers = true;
    replay_step(&r, s);
    assert_int_equal(r.action.next_ms, 4000);
    s.available_bytes = 3 * GIB;
    replay_step(&r, s);
    assert_int_equal(r.action.next_ms, 2000);
    s.triggers = false;
    replay_step(&r, s);
    assert_int_equal(r.action.next_ms, 500);
    s.facts.floor_bytes = 4 * GIB; /* nothing to give */
    replay_step(&r, s);
    assert_int_equal(r.action.next_ms, 5000);
}

/* --- whatever comes in -------------------------------------------------------------------------------------
 */

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Sizes of every magnitude, the extremes among them. */
static uint64_t random_size(uint64_t *state)
{
    uint64_t r = random_next(state);

    if (r % 16 == 0)
        return UINT64_MAX;
    return r % 16 == 1 ? 0 : random_next(state) >> (r / 16 % 64);
}

static void random_sample(uint64_t *x, struct mz_policy_sample *s)
{
    s->now_ns = random_next(x) % 8 == 0 ? random_size(x) : s->now_ns + random_next(x) % (5000 * MS);
    s->boottime_ns = random_next(x) % 8 == 0 ? random_size(x) : s->boottime_ns + random_next(x) % (5000 * MS);
    s->memory_bytes = random_size(x);
    s->available_bytes = random_size(x);
    s->swap_bytes = random_size(x);
    s->swap_free_bytes = random_size(x);
    s->group_limit_bytes = random_size(x);
    s->group_headroom_bytes = random_size(x);
    s->system_some_permyriad = (uint32_t)random_size(x);
    s->group_full_permyriad = (uint32_t)random_size(x);
    s->told = (enum mz_level)(random_next(x) % 4);
    s->group_told = (enum mz_level)(random_next(x) % 4);
    s->system_told = (enum mz_level)(random_next(x) % 4);
    s->trim = random_next(x) % 4 == 0 ? (enum mz_trim)(random_next(x) % 6) : MZ_TRIM_NONE;
    s->triggers = random_next(x) % 2;
    s->on_battery = random_next(x) % 2;
    s->peers_bytes = random_size(x);
    s->facts.total_bytes = random_size(x);
    s->facts.remaining_bytes = random_size(x);
    s->facts.floor_bytes = random_size(x);
    s->facts.dirty_bytes = random_size(x);
    s->facts.limit_bytes = random_size(x);
    s->facts.last_use_ns = random_size(x);
    s->facts.evict_bytes_per_s = random_size(x);
    s->facts.computing = random_next(x) % 2;
}

static void test_never_below_the_floor_whatever_comes(void **unused)
{
    uint64_t x = 88172645463325252u;
    struct mz_policy_options o;
    struct mz_policy_state st = {0}, again;
    struct mz_policy_action a, b;
    struct mz_policy_sample s = {0};

    (void)unused;
    mz_policy_defaults(&o);
    for (int i = 0; i < 200000; i++) {
        if (i % 100 == 0) {
            o.step_permyriad = random_next(&x) % 2 ? 0 : (uint32_t)(random_next(&x) % 10001);
            o.idle_ms = random_size(&x);
            o.idle_permyriad = (uint32_t)(random_next(&x) % 10001);
            o.floor_bytes = random_size(&x);
            o.limit_bytes = random_size(&x);
            o.hold_ms = (uint32_t)random_size(&x);
        }
        random_sample(&x, &s);
        mz_policy_decide(&o, &st, &s, &again, &a);
        mz_policy_decide(&o, &st, &s, &st, &b);
        assert_memory_equal(&a, &b, sizeof(a)); /* the same in, the same out */
        assert_true(a.next_ms > 0 && a.next_ms <= 5000);
        assert_non_null(a.why);
        if (a.act == MZ_ACT_EVICT) {
            assert_true(a.bytes > 0 && a.bytes <= s.facts.remaining_bytes);
            assert_true(s.facts.remaining_bytes - a.bytes >= s.facts.floor_bytes);
            assert_true(s.facts.remaining_bytes - a.bytes >= o.floor_bytes);
        } else if (a.act == MZ_ACT_EVICT_TO) {
            assert_true(a.remaining_permyriad <= 10000);
        } else if (a.act == MZ_ACT_CLEAN) {
            assert_true(a.bytes > 0 && !s.facts.computing);
        }
    }
}

/* --- texts and levels --------------------------------------------------------------------------------------
 */

static void test_parse(void **unused)
{
    static const struct {
        const char *text;
        int r;
        uint64_t ms;
        uint32_t permyriad;
    } idle[] = {
        {"5m", 0, 300000, 10000},       {"90s", 0, 90000, 10000},
        {"1h:25", 0, 3600000, 2500},    {"300:10%", 0, 300000, 1000},
        {"off", 0, 0, 10000},           {"", -EINVAL, 0, 0},
        {"m", -EINVAL, 0, 0},           {"5m:", -EINVAL, 0, 0},
        {"5m:0", -EINVAL, 0, 0},        {"5m:101", -EINVAL, 0, 0},
        {"5x", -EINVAL, 0, 0},          {"-5m", -EINVAL, 0, 0},
        {"0", -EINVAL, 0, 0},           {"5m25", -EINVAL, 0, 0},
        {"9999999999h", -ERANGE, 0, 0}, {"9999999999999999999999", -ERANGE, 0, 0},
    };
    uint64_t ms;
    uint32_t p;

    (void)unused;
    for (size_t i = 0; i < sizeof(idle) / sizeof(*idle); i++) {
        ms = 77;
        p = 77;
        assert_int_equal(mz_policy_parse_idle(idle[i].text, &ms, &p), idle[i].r);
        assert_int_equal(ms, idle[i].r ? 77 : idle[i].ms);
        assert_int_equal(p, idle[i].r ? 77 : idle[i].permyriad);
    }
    assert_int_equal(mz_policy_parse_step("own", &p), 0);
    assert_int_equal(p, 0);
    assert_int_equal(mz_policy_parse_step("15", &p), 0);
    assert_int_equal(p, 1500);
    assert_int_equal(mz_policy_parse_step("25%", &p), 0);
    assert_int_equal(p, 2500);
    assert_int_equal(mz_policy_parse_step("0", &p), -EINVAL);
    assert_int_equal(mz_policy_parse_step("15.5", &p), -EINVAL);
    assert_int_equal(mz_policy_parse_step("", &p), -EINVAL);
}

static void test_trim_levels(void **unused)
{
    enum mz_trim t = MZ_TRIM_NONE;

    (void)unused;
    assert_int_equal(mz_trim_from_level(20, &t), 0);
    assert_int_equal(t, MZ_TRIM_CLEAN);
    assert_int_equal(mz_trim_from_level(40, &t), 0);
    assert_int_equal(t, MZ_TRIM_FLOOR);
    assert_int_equal(mz_trim_from_level(50, &t), 0);
    assert_int_equal(t, MZ_TRIM_STEP);
    assert_int_equal(mz_trim_from_level(100, &t), 0);
    assert_int_equal(t, MZ_TRIM_STEP_SEVERE);
    assert_int_equal(mz_trim_from_level(255, &t), 0);
    assert_int_equal(t, MZ_TRIM_FLOOR_SEVERE);
    assert_int_equal(mz_trim_from_level(16, &t), -EINVAL);
    assert_int_equal(mz_trim_from_level(-1, &t), -EINVAL);
    assert_int_equal(t, MZ_TRIM_FLOOR_SEVERE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_hog_is_met_ahead),
        cmocka_unit_test(test_no_hold_when_a_killer_is_near),
        cmocka_unit_test(test_burst_does_not_take_everything),
        cmocka_unit_test(test_steps_grow_until_calm),
        cmocka_unit_test(test_headroom_and_band_end_it),
        cmocka_unit_test(test_peers_give_first),
        cmocka_unit_test(test_idle_steps_down),
        cmocka_unit_test(test_clean_ahead),
        cmocka_unit_test(test_failed_eviction_backs_off),
        cmocka_unit_test(test_report_during_the_hold_is_kept),
        cmocka_unit_test(test_request_waits_for_the_hold_and_dies_with_use),
        cmocka_unit_test(test_step_request_is_done_once),
        cmocka_unit_test(test_suspend),
        cmocka_unit_test(test_time_asleep_is_no_idle_time),
        cmocka_unit_test(test_clock_backwards),
        cmocka_unit_test(test_figures_that_cannot_be_true),
        cmocka_unit_test(test_own_growth_is_no_fill),
        cmocka_unit_test(test_a_lower_limit_is_no_fill),
        cmocka_unit_test(test_polling_interval),
        cmocka_unit_test(test_never_below_the_floor_whatever_comes),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_trim_levels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
