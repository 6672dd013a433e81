/* Replays a table of samples through the policy. */
#ifndef MZ_TEST_POLICY_TRACE_H
#define MZ_TEST_POLICY_TRACE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pressure/policy.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MS  UINT64_C(1000000)

/* A machine of 16 GiB with 4 GiB of free swap (memory is short below 1 GiB, target 1.25 GiB), and a model of
 * 4 GiB, all of it in memory, floor 256 MiB, last used at 1 s. */
static inline struct mz_policy_sample sample_at(uint64_t ms)
{
    struct mz_policy_sample s;

    mz_policy_sample_clear(&s);
    s.now_ns = (1000 + ms) * MS;
    s.boottime_ns = (500000 + ms) * MS;
    s.memory_bytes = 16 * GIB;
    s.available_bytes = 6 * GIB;
    s.swap_bytes = s.swap_free_bytes = 4 * GIB;
    s.facts.total_bytes = s.facts.remaining_bytes = 4 * GIB;
    s.facts.floor_bytes = 256 * MIB;
    s.facts.last_use_ns = 1000 * MS;
    s.facts.evict_bytes_per_s = GIB;
    return s;
}

/* One replay: the model gets smaller as the policy says, and the machine's available memory larger. */
struct replay {
    struct mz_policy_options options;
    struct mz_policy_state state;
    struct mz_policy_action action;
    uint64_t remaining_bytes, freed_bytes;
};

static inline void replay_begin(struct replay *r)
{
    *r = (struct replay){.remaining_bytes = 4 * GIB};
    mz_policy_defaults(&r->options);
}

static inline void replay_step(struct replay *r, struct mz_policy_sample s)
{
    uint64_t target = r->remaining_bytes;

    s.facts.remaining_bytes = r->remaining_bytes;
    mz_policy_decide(&r->options, &r->state, &s, &r->state, &r->action);
    if (r->action.act == MZ_ACT_EVICT)
        target -= r->action.bytes;
    else if (r->action.act == MZ_ACT_EVICT_TO)
        target = s.facts.total_bytes / 10000 * r->action.remaining_permyriad;
    assert_true(target <= r->remaining_bytes);
    r->freed_bytes += r->remaining_bytes - target;
    r->remaining_bytes = target;
}

#endif
