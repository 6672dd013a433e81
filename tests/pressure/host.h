/* A host for the watcher: a model of 4 GiB that only counts, and waiting for conditions. */
#ifndef MZ_TEST_HOST_H
#define MZ_TEST_HOST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "os/os.h"
#include "pressure/pressure.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

struct host {
    pthread_mutex_t lock; /* guards all below */
    struct mz_policy_facts facts;
    uint64_t evicted_bytes, cleaned_bytes, peers_bytes;
    uint32_t evictions, cleanings, cancels, asked_peers;
    int evict_result, clean_result;
    char why[64];
    struct mz_pressure *calls_back; /* the watcher's functions are called in evict() */
};

static inline void pause_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* Waits until the condition holds; 30 s are far more than any of them needs. */
#define wait_until(condition)                                                                                \
    do {                                                                                                     \
        int tries_ = 0;                                                                                      \
        while (!(condition) && tries_++ < 6000)                                                              \
            pause_ms(5);                                                                                     \
        if (tries_ > 6000)                                                                                   \
            print_error("not reached: %s\n", #condition);                                                    \
        assert_true(tries_ <= 6000);                                                                         \
    } while (0)

static inline int host_facts(void *user, struct mz_policy_facts *ret)
{
    struct host *h = user;

    pthread_mutex_lock(&h->lock);
    *ret = h->facts;
    pthread_mutex_unlock(&h->lock);
    return 0;
}

static inline int host_take(struct host *h, uint64_t bytes, const char *why)
{
    int r;

    pthread_mutex_lock(&h->lock);
    h->evictions++;
    snprintf(h->why, sizeof(h->why), "%s", why);
    r = h->evict_result;
    if (bytes > h->facts.remaining_bytes)
        bytes = h->facts.remaining_bytes;
    if (r == 0) {
        h->facts.remaining_bytes -= bytes;
        h->evicted_bytes += bytes;
    }
    pthread_mutex_unlock(&h->lock);
    return r;
}

static inline int host_evict(void *user, uint64_t bytes, const char *why)
{
    struct host *h = user;

    struct mz_pressure *p;

    pthread_mutex_lock(&h->lock);
    p = h->calls_back;
    pthread_mutex_unlock(&h->lock);
    if (p != NULL) {
        struct mz_pressure_status status;
        struct mz_pressure_options options;

        mz_pressure_status(p, &status);
        mz_pressure_options_get(p, &options);
        mz_pressure_options_set(p, &options);
        mz_pressure_wake(p);
    }
    return host_take(h, bytes, why);
}

static inline int host_evict_to(void *user, uint32_t remaining_permyriad, const char *why)
{
    struct host *h = user;
    uint64_t target, remaining;

    pthread_mutex_lock(&h->lock);
    target = h->facts.total_bytes / 10000 * remaining_permyriad;
    remaining = h->facts.remaining_bytes;
    pthread_mutex_unlock(&h->lock);
    return host_take(h, remaining > target ? remaining - target : 0, why);
}

static inline int host_clean(void *user, uint64_t budget_bytes, uint64_t *ret_written)
{
    struct host *h = user;
    int r;

    pthread_mutex_lock(&h->lock);
    h->cleanings++;
    r = h->clean_result;
    if (budget_bytes > h->facts.dirty_bytes)
        budget_bytes = h->facts.dirty_bytes;
    if (r == 0) {
        h->facts.dirty_bytes -= budget_bytes;
        h->cleaned_bytes += budget_bytes;
        *ret_written = budget_bytes;
    }
    pthread_mutex_unlock(&h->lock);
    return r;
}

static inline void host_cancel(void *user)
{
    struct host *h = user;

    pthread_mutex_lock(&h->lock);
    h->cancels++;
    pthread_mutex_unlock(&h->lock);
}

static inline uint64_t host_peers(void *user)
{
    struct host *h = user;
    uint64_t bytes;

    pthread_mutex_lock(&h->lock);
    h->asked_peers++;
    bytes = h->peers_bytes;
    pthread_mutex_unlock(&h->lock);
    return bytes;
}

static inline void host_begin(struct host *h)
{
    *h = (struct host){.lock = PTHREAD_MUTEX_INITIALIZER};
    h->facts = (struct mz_policy_facts){.total_bytes = 4 * GIB,
                                        .remaining_bytes = 4 * GIB,
                                        .floor_bytes = 256 * MIB,
                                        .last_use_ns = mz_os_now_ns(),
                                        .evict_bytes_per_s = GIB};
}

static inline struct mz_pressure_host host_table(struct host *h)
{
    return (struct mz_pressure_host){.user = h,
                                     .facts = host_facts,
                                     .evict = host_evict,
                                     .evict_to = host_evict_to,
                                     .clean = host_clean,
                                     .cancel_restore = host_cancel,
                                     .peers_idle_longer_bytes = host_peers};
}

/* Reads one field under the lock. */
#define host_get(h, field)                                                                                   \
    __extension__({                                                                                          \
        pthread_mutex_lock(&(h)->lock);                                                                      \
        __typeof__((h)->field) value_ = (h)->field;                                                          \
        pthread_mutex_unlock(&(h)->lock);                                                                    \
        value_;                                                                                              \
    })

/* Writes one field under the lock. */
#define host_set(h, field, value)                                                                            \
    do {                                                                                                     \
        pthread_mutex_lock(&(h)->lock);                                                                      \
        (h)->field = (value);                                                                                \
        pthread_mutex_unlock(&(h)->lock);                                                                    \
    } while (0)

#endif
