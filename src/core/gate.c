/* The gate: where computing waits for units, and what holds them while it computes.
 *
 * A slice pins all its units in one step: a graph that waits holds nothing, so an eviction that needs pins to fall always
 * gets its turn, and two graphs cannot wait for each other's memory. One graph at a time waits for missing units
 * (gate_busy); the units it waits for are not taken to make room. Attention alone takes KV chunks while its slice is
 * held (mz_gate_pin_late). Lock: core->lock, dropped around the caller's abort callback. */
#include <assert.h>
#include <errno.h>

#include "core/state.h"
#include "os/log.h"
#include "os/os.h"
#include "os/thread.h"

/* How long a gate waits for room that nobody can make before the graph fails. The process lives; the user can free memory. */
#define STARVED_NS UINT64_C(10000000000)

/* How often the abort callback is asked. */
#define POLL_MS 20

/* One wait of a gate. */
struct wait {
    struct mz_core *core;
    mz_abort_fn abort;
    void *user;
    uint64_t since_ns, starved_ns;
    bool full; /* what is to be written first has no room; the workers do not know */
};

/* Waits for a change. 0, -ECANCELED, -ENOSPC. */
static int wait_change(struct wait *wait)
{
    struct mz_core *core = wait->core;

    (void)mz_cond_wait_ms(&core->changed, &core->lock, POLL_MS);
    if (wait->abort) {
        pthread_mutex_unlock(&core->lock);
        bool abort = wait->abort(wait->user);
        pthread_mutex_lock(&core->lock);
        if (abort)
            return -ECANCELED;
    }
    uint64_t now = mz_os_now_ns();
    if (!core->starved && !wait->full)
        wait->starved_ns = now;
    return now - wait->starved_ns > STARVED_NS ? -ENOSPC : 0;
}

static void wait_begin(struct wait *wait, struct mz_core *core, mz_abort_fn abort, void *user)
{
    uint64_t now = mz_os_now_ns();

    *wait = (struct wait){.core = core, .abort = abort, .user = user, .since_ns = now, .starved_ns = now};
    core->gate_waits++;
    core->starved = false; /* of an earlier wait */
}

static void wait_end(struct wait *wait)
{
    wait->core->gate_wait_ns += mz_os_now_ns() - wait->since_ns;
}

/* ---- pins; lock held */

/* 0: can be pinned now; -EAGAIN: not yet; -EIO: never. */
static int pin_state(const struct mz_pin *pin)
{
    const struct mz_unit *unit = pin->unit;

    if (unit->state == MZ_LOST)
        return -EIO;
    if (unit->state == MZ_EMPTY || unit->state == MZ_RESIDENT)
        return (pin->flags & MZ_PIN_WRITE) && unit->cleaning ? -EAGAIN : 0;
    return -EAGAIN;
}

static void pin_hold(struct mz_core *core, struct mz_pin *pin)
{
    struct mz_unit *unit = pin->unit;

    unit->pins++;
    core->held++;
    pin->held = true;
    if (pin->flags & MZ_PIN_WRITE) {
        unit->writers++;
        mz_unit_void(unit, unit->copies);
        unit->hashed = unit->lossy = false;
        if (unit->state == MZ_EMPTY)
            mz_unit_move(unit, MZ_RESIDENT);
    }
    if (unit->adopted)
        core->position = unit->order + 1;
}

static void pin_drop(struct mz_core *core, struct mz_pin *pin)
{
    struct mz_unit *unit = pin->unit;

    if (!pin->held)
        return;
    assert(unit->pins > 0);
    unit->pins--;
    core->held--;
    pin->held = false;
    if (pin->flags & MZ_PIN_WRITE)
        unit->writers--;
}

static int pins_missing(const struct mz_pin *pins, uint32_t n)
{
    int missing = 0;

    for (uint32_t i = 0; i < n; i++) {
        int state = pin_state(&pins[i]);
        if (state == -EIO)
            return -EIO;
        missing = state ? -EAGAIN : missing;
    }
    return missing;
}

/* Room for never-written units that are about to be written: the kernel backs them when they are touched. */
static uint64_t pins_growth(const struct mz_pin *pins, uint32_t n)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < n; i++)
        if ((pins[i].flags & MZ_PIN_WRITE) && pins[i].unit->state == MZ_EMPTY)
            bytes += mz_unit_span_bytes(pins[i].unit);
    return bytes;
}

static void pins_want(const struct mz_pin *pins, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        unsigned state = pins[i].unit->state;
        if (state == MZ_EVICTED || state == MZ_EVICTING)
            mz_restore_want(pins[i].unit);
    }
}

/* Who gives up wants nothing any more; what others wait for stays. */
static void pins_unwant(const struct mz_pin *pins, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (pins[i].unit->waited == 0)
            mz_restore_unwant(pins[i].unit);
}

static void pins_waited(const struct mz_pin *pins, uint32_t n, uint32_t change)
{
    for (uint32_t i = 0; i < n; i++)
        pins[i].unit->waited += change;
}

/* All units there, and room for those that grow: 0, -EAGAIN (*ret_full: there is none), -EIO. May drop and take the lock
 * to make room. */
static int pins_ready(struct mz_core *core, const struct mz_pin *pins, uint32_t n, bool *ret_full)
{
    int err = pins_missing(pins, n);
    uint64_t growth = err ? 0 : pins_growth(pins, n);

    *ret_full = false;
    if (err || growth == 0)
        return err;
    int made = mz_room_make(core, growth, 0);
    *ret_full = made < 0;
    return made < 0 ? made : pins_missing(pins, n);
}

static int pins_wait(struct mz_core *core, struct mz_pin *pins, uint32_t n, struct wait *wait)
{
    int err;

    while (core->evict_waiting || core->gate_busy) {
        err = wait_change(wait);
        if (err)
            return err;
    }
    core->gate_busy = true;
    pins_waited(pins, n, 1);
    while ((err = pins_ready(core, pins, n, &wait->full)) == -EAGAIN) {
        pins_want(pins, n);
        err = wait_change(wait);
        if (err)
            break;
    }
    pins_waited(pins, n, UINT32_MAX); /* minus one */
    if (err)
        pins_unwant(pins, n);
    core->gate_busy = false;
    pthread_cond_broadcast(&core->changed);
    return err;
}

static void say_lost(const struct mz_pin *pins, uint32_t n)
{
    char name[128];

    for (uint32_t i = 0; i < n; i++)
        if (pins[i].unit->state == MZ_LOST)
            mz_log(MZ_LOG_ERROR, "computing needs %s, which was lost; mzcache log says what else was",
                   mz_unit_name(pins[i].unit, name, sizeof(name)));
}

static uint64_t pins_bytes(const struct mz_pin *pins, uint32_t n)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < n; i++)
        bytes += mz_unit_span_bytes(pins[i].unit);
    return bytes;
}

static void hold_all(struct mz_core *core, struct mz_pin *pins, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        pin_hold(core, &pins[i]);
}

int mz_gate_pin(struct mz_core *core, struct mz_pin *pins, uint32_t n, mz_abort_fn abort, void *user)
{
    bool full = false;

    pthread_mutex_lock(&core->lock);
    int err = core->evict_waiting ? -EAGAIN : pins_ready(core, pins, n, &full);
    if (err == -EAGAIN) {
        struct wait wait;
        wait_begin(&wait, core, abort, user);
        err = pins_wait(core, pins, n, &wait);
        wait_end(&wait);
    }
    if (err == -EIO)
        say_lost(pins, n);
    if (err == -ENOSPC)
        mz_log(MZ_LOG_ERROR, "no room for %.1f MiB that computing needs at once: limit, cgroup or machine are full",
               (double)pins_bytes(pins, n) / (double)MZ_MIB);
    if (!err)
        hold_all(core, pins, n);
    pthread_mutex_unlock(&core->lock);
    return err;
}

int mz_gate_try_pin(struct mz_core *core, struct mz_pin *pins, uint32_t n)
{
    pthread_mutex_lock(&core->lock);
    int err = core->evict_waiting || pins_missing(pins, n) || !mz_room_for(core, pins_growth(pins, n)) ? -EAGAIN : 0;
    if (!err)
        hold_all(core, pins, n);
    pthread_mutex_unlock(&core->lock);
    return err;
}

/* Asks anew at each change: an eviction may take the unit between its return and our waking. Lock held, dropped meanwhile. */
static int pin_wait(struct mz_core *core, struct mz_pin *pin, mz_abort_fn abort, void *user)
{
    struct wait wait;
    int err;

    wait_begin(&wait, core, abort, user);
    pin->unit->waited++;
    do {
        pins_want(pin, 1);
        err = wait_change(&wait);
    } while (!err && (err = pin_state(pin)) == -EAGAIN);
    pin->unit->waited--;
    if (err)
        pins_unwant(pin, 1);
    wait_end(&wait);
    return err;
}

int mz_gate_pin_late(struct mz_core *core, struct mz_pin *pin, bool block, mz_abort_fn abort, void *user)
{
    pthread_mutex_lock(&core->lock);
    int err = pin_state(pin);
    if (err == -EAGAIN && block)
        err = pin_wait(core, pin, abort, user);
    else if (err == -EAGAIN)
        pins_want(pin, 1);
    if (err == -EIO)
        say_lost(pin, 1);
    if (!err)
        pin_hold(core, pin);
    pthread_mutex_unlock(&core->lock);
    return err;
}

void mz_gate_unpin(struct mz_core *core, struct mz_pin *pins, uint32_t n)
{
    pthread_mutex_lock(&core->lock);
    for (uint32_t i = 0; i < n; i++)
        pin_drop(core, &pins[i]);
    if (core->limit_bytes && core->ahead_blocked) /* what was let go can make room */
        mz_restore_kick(core);
    pthread_cond_broadcast(&core->changed);
    pthread_mutex_unlock(&core->lock);
}

void mz_gate_want(struct mz_core *core, struct mz_unit *const *units, uint32_t n)
{
    pthread_mutex_lock(&core->lock);
    for (uint32_t i = 0; i < n; i++)
        if (units[i]->state == MZ_EVICTED || units[i]->state == MZ_EVICTING)
            mz_restore_want(units[i]);
    pthread_mutex_unlock(&core->lock);
}

bool mz_gate_cut_wanted(const struct mz_core *core)
{
    return atomic_load(&core->cut_wanted) != 0;
}

/* ---- graphs */

/* A node needs this much at once: a limit below it cannot work, so one that is in force is raised, and said. */
void mz_gate_need(struct mz_core *core, uint64_t bytes)
{
    pthread_mutex_lock(&core->lock);
    if (bytes > core->need_bytes)
        core->need_bytes = bytes;
    uint64_t floor = mz_room_floor(core);
    if (core->limit_bytes && core->limit_bytes < floor) {
        mz_log(MZ_LOG_WARN, "the limit is raised from %.1f to %.1f MiB: this batch needs that much at once",
               (double)core->limit_bytes / (double)MZ_MIB, (double)floor / (double)MZ_MIB);
        core->limit_bytes = floor;
        mz_event_add(core, "limit", "raised to the floor", floor, 0);
    }
    pthread_mutex_unlock(&core->lock);
}

/* The ablations: what overlaps with what. Everything but the full overlap allocates first, or restores first. */
static void enter_overlap(struct mz_core *core, uint32_t overlap)
{
    if (overlap == MZ_OVERLAP_NONE || overlap == MZ_OVERLAP_RELOAD_PREFILL)
        mz_restore_commit_all(core);
    if (overlap == MZ_OVERLAP_NONE || overlap == MZ_OVERLAP_ALLOC_RELOAD)
        (void)mz_core_restore(core, true);
}

void mz_gate_enter(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    uint32_t overlap = core->n_evicted ? core->options.overlap : MZ_OVERLAP_FULL;
    core->graphs++;
    core->position = 0;
    pthread_mutex_unlock(&core->lock);
    if (overlap != MZ_OVERLAP_FULL)
        enter_overlap(core, overlap);
    pthread_mutex_lock(&core->lock);
    if (core->n_evicted) {
        core->ahead = true;
        mz_restore_kick(core);
    }
    pthread_mutex_unlock(&core->lock);
}

void mz_gate_leave(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    assert(core->graphs > 0);
    core->graphs--;
    core->computed = true;
    core->last_use_ns = mz_os_now_ns();
    pthread_cond_broadcast(&core->changed);
    pthread_mutex_unlock(&core->lock);
}

static bool anything_loaded(const struct mz_core *core)
{
    uint64_t total, remaining, floor;

    mz_core_totals(core, &total, &remaining, &floor);
    return total != 0;
}

void mz_gate_wait_first(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    while (!core->computed || !anything_loaded(core))
        pthread_cond_wait(&core->changed, &core->lock);
    pthread_mutex_unlock(&core->lock);
}
