/* Looks after memory: watches for pressure and idle time, and tells the core what to give back.
 *
 * One thread, asleep in one poll() nearly always. Sources are probed at start; each that works is watched,
 * each that fails or disappears is left out and says why:
 *
 *   systemd        $MEMORY_PRESSURE_WATCH and $MEMORY_PRESSURE_WRITE (systemd's memory pressure protocol); set to
 *                  /dev/null it turns all sources off
 *   psi-cgroup     stalls in our cgroup (v2)
 *   cgroup-events  our cgroup reached memory.high or memory.max (v2), or its pressure level (v1)
 *   psi-system     stalls anywhere on the machine
 *   cgroup-limit   what may still be charged to our cgroup, polled
 *   meminfo        MemAvailable, polled; the interval follows from headroom and the rate at which it falls
 *
 * Why not the first one alone: the protocol names our own cgroup, and a model that lies idle stalls nobody
 * there while the rest of the desktop starves.
 *
 * The room knows the core through struct mz_pressure_host only. */
#ifndef MZ_PRESSURE_H
#define MZ_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

#include "pressure/policy.h"

#define MZ_PRESSURE_SOURCES 6

/* What the watcher asks of its host. All are called on the watcher's thread without any lock of this room held; all but
 * `facts` may block. They may call every function below except
 * mz_pressure_stop(). NULL entries are allowed except `facts`. */
struct mz_pressure_host {
    void *user;
    int (*facts)(void *user, struct mz_policy_facts *ret);     /* 0, or negative errno */
    int (*evict)(void *user, uint64_t bytes, const char *why); /* frees at least `bytes` if it can */
    int (*evict_to)(void *user, uint32_t remaining_permyriad, const char *why); /* of total */
    int (*clean)(void *user, uint64_t budget_bytes, uint64_t *ret_written);     /* copies of what has none */
    void (*cancel_restore)(void *user); /* one that runs ahead of use */
    void (*keep)(void *user, uint64_t bytes); /* of available memory, that restoring leaves alone from now on */
    uint64_t (*peers_idle_longer_bytes)(void *user); /* what processes idle for longer than us could still give */
};

struct mz_pressure_options {
    struct mz_policy_options policy;
    bool sources; /* false: nothing is watched; limits, idle steps and mz_pressure_trim() still work */
};

struct mz_pressure_source_status {
    char name[16];
    bool live;
    char detail[112]; /* how it is watched, or why it is not */
    uint64_t reports; /* that woke the thread; 0 for what is polled only */
};

struct mz_pressure_status {
    char live[96]; /* names of the live sources, "+" between them; "off" or "none" */
    struct mz_pressure_source_status sources[MZ_PRESSURE_SOURCES];
    enum mz_level level;
    bool calm;                      /* no pressure for long enough to restore ahead of use */
    struct mz_policy_sample sample; /* the last one; now_ns 0: none yet */
    uint64_t fill_bytes_per_s;      /* how fast others take memory */
    uint32_t next_ms;               /* until the next look, when nothing is reported before */
    uint64_t started_ns;            /* mz_os_now_ns() */
    uint64_t wakeups;               /* of the thread since then */
    uint64_t reports;               /* of sources that woke it */
    uint64_t cpu_ns;                /* spent by the thread, the work it did through the host counted in */
    uint64_t evictions, cleanings, failures; /* calls into the host, and those that failed */
    struct mz_policy_action last;            /* the last action other than none */
    uint64_t last_ns;                        /* when it was taken; 0: never */
};

struct mz_pressure;

void mz_pressure_defaults(struct mz_pressure_options *ret);

/* Probes the sources and starts the thread. Both arguments are copied; host->user must live until
 * mz_pressure_stop(). -EINVAL (no facts), -ENOMEM, -EMFILE, -EAGAIN. Sources that fail are no error. */
int mz_pressure_start(const struct mz_pressure_options *options, const struct mz_pressure_host *host,
                      struct mz_pressure **ret);

/* Waits for a host call in progress, ends the thread, frees. NULL is allowed. Not from a host call. */
void mz_pressure_stop(struct mz_pressure *p);

/* A copy of the figures. Any thread, does not block. */
void mz_pressure_status(struct mz_pressure *p, struct mz_pressure_status *ret);

/* Hands over a level of onTrimMemory or GMemoryMonitor (mz_trim_from_level()). Returns at once; the thread
 * acts. Of two requests not handled yet the stronger one counts. Any thread. -EINVAL: no such level. */
int mz_pressure_trim(struct mz_pressure *p, int level);

/* Replaces the policy's options; takes effect at once. Any thread. `sources` stays as it was at start. */
void mz_pressure_options_set(struct mz_pressure *p, const struct mz_pressure_options *options);
void mz_pressure_options_get(struct mz_pressure *p, struct mz_pressure_options *ret);

/* Has the thread look now: something was loaded or grew. Cheap, any thread, safe in a host call. */
void mz_pressure_wake(struct mz_pressure *p);

#endif
