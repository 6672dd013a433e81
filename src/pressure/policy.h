/* The policy: what is known about memory goes in, what to do about it comes out.
 *
 * Pure: no clock, no file, no lock, no allocation. The same options, state and sample give the same action,
 * so traces can be replayed. Shrinks fast and never grows: restoring is the business of whoever uses the
 * model.
 *
 * The rules, in the order in which they apply:
 *   1. Above the user's limit: evict what is too much, hold or not.
 *   2. The host application asked for everything down to the floor (enum mz_trim).
 *   3. Pressure (enum mz_level): evict
 *      - by the own step: what is missing up to the target, counted to the time when the eviction will be done;
 *        where only a stall was reported, 5 % of total, then 10 %, then 20 % until it has been calm for calm_ms;
 *      - by a fixed step: that share of total for each report (the paper's section 6.6 has 15 and 25 points), and
 *        more only when pressure is severe.
 *      Not while computing and not within hold_ms after use unless severe (a report that came meanwhile is acted on
 *      afterwards, unless calm_ms have passed or memory is ample again); not below the floor; not less than the dead
 *      band; not again before the last eviction can be seen in the figures. Bytes that processes idle for longer can
 *      still give are theirs to give first, for two seconds.
 *   4. Idle: every idle_ms without use one step of idle_permyriad down.
 *   5. Clean-ahead: write copies of what has none, so that eviction costs no writing later. Not on battery.
 */
#ifndef MZ_PRESSURE_POLICY_H
#define MZ_PRESSURE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#define MZ_POLICY_UNKNOWN UINT64_MAX /* a size that could not be read, or has no limit */

enum mz_level {
    MZ_LEVEL_NONE,
    MZ_LEVEL_LOW,    /* memory gets short: copies are worth writing, nothing is taken */
    MZ_LEVEL_MEDIUM, /* somebody waits for memory, or soon will */
    MZ_LEVEL_SEVERE  /* a killer is near: holds do not count */
};

/* What a host application can ask for, see mz_trim_from_level(). */
enum mz_trim {
    MZ_TRIM_NONE,
    MZ_TRIM_CLEAN,       /* write copies, take nothing */
    MZ_TRIM_STEP,        /* one step */
    MZ_TRIM_STEP_SEVERE, /* two steps at once, hold or not */
    MZ_TRIM_FLOOR,       /* everything down to the floor, after the hold */
    MZ_TRIM_FLOOR_SEVERE /* everything down to the floor, at once */
};

struct mz_policy_options {
    uint32_t step_permyriad;  /* of total per report of pressure; 0: the own step */
    uint64_t floor_bytes;     /* of ours, that always remain; 0: none beyond what the core needs */
    uint32_t floor_permyriad; /* the same as a share of total; the larger one counts */
    uint64_t limit_bytes;     /* that may remain at most; MZ_POLICY_UNKNOWN: no limit */
    uint64_t headroom_bytes;  /* of the machine, below which memory is short; 0: own choice from its size */
    uint32_t hold_ms;         /* no eviction that soon after use unless pressure is severe */
    uint32_t calm_ms;         /* without pressure for that long: it is over */
    uint64_t idle_ms;         /* one step down for each such time without use; 0: never */
    uint32_t idle_permyriad;  /* of total per idle step, 1..10000 */
    bool clean_ahead;         /* write copies before they are needed */
    bool clean_on_battery;
};

/* What the core reports about the model, in bytes. All zero: nothing is loaded. */
struct mz_policy_facts {
    uint64_t total_bytes;
    uint64_t remaining_bytes; /* of total, in memory now, compressed copies in memory counted in */
    uint64_t floor_bytes;     /* remaining can not go below this */
    uint64_t dirty_bytes;     /* in memory without a valid copy elsewhere */
    uint64_t limit_bytes;     /* set by the user at run time; 0 or MZ_POLICY_UNKNOWN: none */
    /* mz_os_now_ns() at the end of the last computing or restoring that was asked for; 0: never. Loading alone is no use.
     * Time asleep is no idle time: nobody wanted the memory meanwhile, and who wakes the machine may want the model. */
    uint64_t last_use_ns;
    uint64_t evict_bytes_per_s; /* measured; 0: not measured yet */
    bool computing;             /* now */
};

struct mz_policy_sample {
    uint64_t now_ns;      /* CLOCK_MONOTONIC: stands still in suspend */
    uint64_t boottime_ns; /* CLOCK_BOOTTIME: does not */

    uint64_t memory_bytes;    /* of the machine; 0: unknown */
    uint64_t available_bytes; /* MemAvailable; MZ_POLICY_UNKNOWN */
    uint64_t swap_bytes, swap_free_bytes;

    uint64_t group_limit_bytes; /* tightest limit of our cgroup and its ancestors; MZ_POLICY_UNKNOWN: none */
    uint64_t group_headroom_bytes; /* that may still be charged; MZ_POLICY_UNKNOWN: no limit */

    /* Share of time that some or all tasks stalled for memory since the last sample. */
    uint32_t system_some_permyriad, system_full_permyriad;
    uint32_t group_some_permyriad, group_full_permyriad;

    enum mz_level told;        /* reported about us or by our manager since the last sample */
    enum mz_level group_told;  /* our cgroup was at its limit, if only with page cache */
    enum mz_level system_told; /* reported about the machine as a whole */
    enum mz_trim trim;         /* asked for since the last sample */
    bool triggers;             /* the kernel wakes us when somebody stalls: less polling is needed */
    bool on_battery;
    uint64_t peers_bytes;      /* other mzCache processes, idle longer than us, could still give; 0: none, not asked */

    struct mz_policy_facts facts;
};

/* What the policy remembers between two samples. Starts zeroed. */
struct mz_policy_state {
    uint64_t now_ns, boottime_ns; /* of the last sample; 0: there was none */
    uint64_t available_bytes, group_limit_bytes, group_headroom_bytes, remaining_bytes; /* at that time */
    uint64_t fill_bytes_per_s, group_fill_bytes_per_s; /* how fast others take memory; rises at once, decays slowly */
    uint64_t resumed_ns;          /* when the machine woke from suspend; 0: never seen */
    uint64_t pressed_ns;          /* last sample at MZ_LEVEL_MEDIUM or above; 0: none */
    uint64_t acted_ns;            /* last eviction for pressure; 0: none */
    uint64_t deferred_ns;         /* since when it is left to idler processes; 0: it is not */
    uint64_t backoff_ns;          /* nothing is evicted before this time; 0: no such time */
    uint64_t clean_failed_use_ns; /* cleaning gave nothing after that use; again only after another one */
    uint32_t steps;               /* evictions since pressure began */
    uint64_t held_ns;             /* when the reports below came */
    enum mz_level held_told, held_system_told; /* reported while the hold was on, and not answered yet */
    enum mz_trim trim;            /* asked for and not done yet */
    uint64_t trim_ns;             /* when; a use that begins later cancels it */
    bool trim_busy;               /* computing went on since it was asked for */
    bool clean_failed;            /* clean_failed_use_ns is valid */
    enum mz_level level;
};

enum mz_act { MZ_ACT_NONE, MZ_ACT_EVICT, MZ_ACT_EVICT_TO, MZ_ACT_CLEAN };

struct mz_policy_action {
    enum mz_act act;
    uint64_t bytes;               /* EVICT: to free, > 0. CLEAN: to write at most */
    uint32_t remaining_permyriad; /* EVICT_TO */
    uint64_t keep_bytes;          /* of available memory, that restoring leaves alone: with less, it is evicted again */
    bool cancel_restore;          /* a restore ahead of use must stop; false while computing: then it is needed now */
    bool shared;                  /* idler processes could take part: ask for peers_bytes and decide again */
    uint32_t next_ms;             /* look again after this time at the latest */
    enum mz_level level;
    const char *why; /* static; "" when there is nothing to do */
};

/* Own step, hold 10 s, calm 30 s, no floor, limit or idle, cleaning ahead of idle steps but not on battery.
 */
void mz_policy_defaults(struct mz_policy_options *ret);

/* Decides. `after` may be the same object as `before`. */
void mz_policy_decide(const struct mz_policy_options *options, const struct mz_policy_state *before,
                      const struct mz_policy_sample *sample, struct mz_policy_state *after,
                      struct mz_policy_action *ret);

/* Tells the state that the action just taken failed or did nothing, so that it is not repeated without pause.
 */
void mz_policy_failed(struct mz_policy_state *state, enum mz_act act, uint64_t now_ns, uint64_t last_use_ns);

/* Whether it has been calm long enough for a restore ahead of use. */
bool mz_policy_calm(const struct mz_policy_options *options, const struct mz_policy_state *state);

/* A sample in which everything is unknown, quiet and zero. */
void mz_policy_sample_clear(struct mz_policy_sample *ret);

/* Levels as applications hand them over. Android's onTrimMemory: 5 clean, 10 step, 15 severe step, 20 (UI
 * hidden) clean, 40 (background), 60 and 80 floor; since API 34 only 20 and 40 are delivered, so nothing
 * compares with ">=". GMemoryMonitor: 50 step, 100 severe step, 255 severe floor. -EINVAL: any other. */
int mz_trim_from_level(int level, enum mz_trim *ret);

/* "own" gives 0, "15" or "15%" 1500. -EINVAL: not a whole percentage of 1..100. */
int mz_policy_parse_step(const char *text, uint32_t *ret_permyriad);

/* "off", or "5m", "90s", "1h", "300" (seconds) with an optional ":25" or ":25%", the share of total that each
 * step gives back (without it: all). -EINVAL, -ERANGE beyond a year. */
int mz_policy_parse_idle(const char *text, uint64_t *ret_idle_ms, uint32_t *ret_permyriad);

const char *mz_level_name(enum mz_level level); /* "none", "low", "medium", "severe" */
const char *mz_act_name(enum mz_act act);       /* "none", "evict", "evict_to", "clean" */

#endif
