/* The watcher: one thread around one poll().
 *
 * A round: read what the sources say into a sample, ask the core for its facts, let the policy decide, do it,
 * publish the figures, sleep until something is ready or the policy wants to look again. Nothing is allocated
 * while it runs, so that it works when nothing can be allocated (a look at the power supply excepted, which
 * comes only before copies are written).
 *
 * Who owns what: the thread owns sources, sample and state. `lock` guards the options, the pending request,
 * the published status and `stopping`; it is never held during a call into the host or the kernel, and no
 * other lock is taken under it. */
#include "pressure/pressure.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/fault.h"
#include "os/log.h"
#include "os/os.h"
#include "os/pressure_fd.h"
#include "os/thread.h"
#include "pressure/source.h"

#define MS UINT64_C(1000000)

/* After a report the sources are left alone for that long: whoever floods a FIFO, or a cgroup that lives at
 * its memory.high, costs ten reports a second and no more. */
#define QUIET_NS          (100 * MS)
#define READ_FAILURES_MAX 3u           /* in a row, before a source counts as gone */
#define RETRY_NS          (60000 * MS) /* until a dead source is probed again; PSI may be turned on */
#define BATTERY_EVERY_NS  (30000 * MS) /* between looks at the power supply */

/* Most specific first: this is the order in which they are listed. */
static const struct mz_pressure_source_ops *const all_sources[MZ_PRESSURE_SOURCES] = {
    &mz_pressure_source_systemd,    &mz_pressure_source_psi_group,   &mz_pressure_source_group_events,
    &mz_pressure_source_psi_system, &mz_pressure_source_group_limit, &mz_pressure_source_meminfo,
};

struct mz_pressure {
    struct mz_pressure_host host; /* not changed after start */
    pthread_t thread;
    int wake_fd; /* not changed after start; anybody writes, the thread reads */

    pthread_mutex_t lock;
    struct mz_pressure_options options; /* lock */
    enum mz_trim trim;                  /* lock; asked for and not yet seen by the thread */
    bool stopping;                      /* lock */
    struct mz_pressure_status status;   /* lock */

    /* Of the thread (of the starter before it runs). */
    struct mz_pressure_source sources[MZ_PRESSURE_SOURCES];
    bool watching;                  /* sources are used at all */
    struct mz_policy_sample sample; /* of the round under way */
    struct mz_policy_state state;
    struct mz_policy_options policy; /* copy for the round */
    struct mz_policy_action action;
    struct mz_pressure_status figures; /* published after each round */
    uint64_t kept_bytes; /* as the host was told */
    uint64_t quiet_until_ns;
    uint64_t battery_ns; /* when on_battery was read; 0: never */
    bool on_battery;
};

void mz_pressure_defaults(struct mz_pressure_options *ret)
{
    mz_policy_defaults(&ret->policy);
    ret->sources = true;
}

/* ---- sources */

/* "systemd+psi-system+meminfo" */
static void name_live(struct mz_pressure *p)
{
    char *live = p->figures.live;
    size_t used = 0, size = sizeof(p->figures.live);

    live[0] = '\0';
    for (size_t i = 0; i < MZ_PRESSURE_SOURCES; i++)
        if (p->sources[i].live && used < size)
            used += (size_t)snprintf(live + used, size - used, "%s%s", used != 0 ? "+" : "",
                                     p->sources[i].ops->name);
    if (used == 0)
        snprintf(live, size, "%s", p->watching ? "none" : "off");
}

static void list_sources(struct mz_pressure *p)
{
    for (size_t i = 0; i < MZ_PRESSURE_SOURCES; i++) {
        struct mz_pressure_source_status *to = &p->figures.sources[i];
        const struct mz_pressure_source *from = &p->sources[i];

        snprintf(to->name, sizeof(to->name), "%s", all_sources[i]->name);
        to->live = from->live;
        snprintf(to->detail, sizeof(to->detail), "%s", from->detail);
    }
    name_live(p);
}

static void probe(struct mz_pressure *p)
{
    for (size_t i = 0; i < MZ_PRESSURE_SOURCES; i++) {
        struct mz_pressure_source *s = &p->sources[i];

        *s = (struct mz_pressure_source){.ops = all_sources[i], .fd = -1};
        if (p->watching)
            mz_pressure_source_open(s, all_sources[i]);
        else
            snprintf(s->detail, sizeof(s->detail), "off");
    }
    list_sources(p);
    mz_log(MZ_LOG_DEBUG, "memory pressure: watching %s", p->figures.live);
}

static void lose(struct mz_pressure *p, struct mz_pressure_source *s, int err)
{
    mz_pressure_source_close(s, err);
    s->retry_ns = mz_os_now_ns() + RETRY_NS;
    list_sources(p);
    mz_log(MZ_LOG_INFO, "memory pressure: %s is gone (%s), watching %s", s->ops->name, s->detail,
           p->figures.live);
}

static void retry(struct mz_pressure *p, struct mz_pressure_source *s, uint64_t now_ns)
{
    if (s->ops->once || now_ns < s->retry_ns)
        return;
    mz_pressure_source_open(s, s->ops);
    s->retry_ns = now_ns + RETRY_NS;
    if (!s->live)
        return;
    list_sources(p);
    mz_log(MZ_LOG_INFO, "memory pressure: %s is there now, watching %s", s->ops->name, p->figures.live);
}

static void read_source(struct mz_pressure *p, struct mz_pressure_source *s)
{
    int r;

    if (s->ops->read == NULL)
        return;
    r = s->ops->read(s, &p->sample);
    s->failures = r < 0 ? s->failures + 1 : 0;
    if (s->failures >= READ_FAILURES_MAX)
        lose(p, s, r);
}

static void read_sources(struct mz_pressure *p)
{
    if (!p->watching)
        return;
    for (size_t i = 0; i < MZ_PRESSURE_SOURCES; i++) {
        struct mz_pressure_source *s = &p->sources[i];

        if (s->live)
            read_source(p, s);
        else
            retry(p, s, p->sample.now_ns);
        p->sample.triggers = p->sample.triggers || s->triggers;
    }
}

/* ---- one round */

/* Takes over what other threads asked for. Returns whether to go on. */
static bool take_requests(struct mz_pressure *p)
{
    bool go_on;

    pthread_mutex_lock(&p->lock);
    p->policy = p->options.policy;
    p->sample.trim = p->trim;
    p->trim = MZ_TRIM_NONE;
    go_on = !p->stopping;
    pthread_mutex_unlock(&p->lock);
    return go_on;
}

static void read_battery(struct mz_pressure *p)
{
    uint64_t now = p->sample.now_ns;

    if (!p->policy.clean_ahead || p->policy.clean_on_battery || p->sample.facts.dirty_bytes == 0)
        return; /* nobody asks */
    if (p->battery_ns == 0 || now < p->battery_ns || now - p->battery_ns >= BATTERY_EVERY_NS) {
        p->on_battery = mz_os_on_battery();
        p->battery_ns = now;
    }
    p->sample.on_battery = p->on_battery;
}

static void read_facts(struct mz_pressure *p, struct mz_policy_facts *ret)
{
    *ret = (struct mz_policy_facts){0};
    if (p->host.facts(p->host.user, ret) < 0)
        *ret = (struct mz_policy_facts){0};
}

static void look(struct mz_pressure *p)
{
    p->sample.now_ns = mz_os_now_ns();
    p->sample.boottime_ns = mz_os_boottime_ns();
    read_sources(p);
    read_facts(p, &p->sample.facts);
    read_battery(p);
}

/* The policy is pure: where it finds that others could take part, they are asked and it decides again. */
static void decide(struct mz_pressure *p)
{
    struct mz_policy_state after;

    mz_policy_decide(&p->policy, &p->state, &p->sample, &after, &p->action);
    if (p->action.act == MZ_ACT_EVICT && p->action.shared && p->host.peers_idle_longer_bytes != NULL) {
        p->sample.peers_bytes = p->host.peers_idle_longer_bytes(p->host.user);
        if (p->sample.peers_bytes != 0)
            mz_policy_decide(&p->policy, &p->state, &p->sample, &after, &p->action);
    }
    p->state = after;
}

static int do_evict(struct mz_pressure *p)
{
    const struct mz_policy_action *a = &p->action;
    struct mz_policy_facts after;
    int r = -ENOSYS;

    if (a->act == MZ_ACT_EVICT && p->host.evict != NULL)
        r = p->host.evict(p->host.user, a->bytes, a->why);
    else if (a->act == MZ_ACT_EVICT_TO && p->host.evict_to != NULL)
        r = p->host.evict_to(p->host.user, a->remaining_permyriad, a->why);
    p->figures.evictions++;
    if (r < 0)
        return r;
    read_facts(p, &after);
    return after.remaining_bytes < p->sample.facts.remaining_bytes ? 0 : -EAGAIN; /* nothing came of it */
}

static int do_clean(struct mz_pressure *p)
{
    uint64_t written = 0;
    int r = p->host.clean != NULL ? p->host.clean(p->host.user, p->action.bytes, &written) : -ENOSYS;

    p->figures.cleanings++;
    return r < 0 ? r : written != 0 ? 0 : -EAGAIN;
}

static void act(struct mz_pressure *p)
{
    const struct mz_policy_action *a = &p->action;
    int r;

    if (a->keep_bytes != p->kept_bytes && p->host.keep != NULL)
        p->host.keep(p->host.user, a->keep_bytes);
    p->kept_bytes = a->keep_bytes;
    if (a->cancel_restore && p->host.cancel_restore != NULL)
        p->host.cancel_restore(p->host.user);
    if (a->act == MZ_ACT_NONE)
        return;
    mz_log(MZ_LOG_DEBUG, "memory pressure: %s, level %s: %s", a->why, mz_level_name(a->level),
           mz_act_name(a->act));
    r = a->act == MZ_ACT_CLEAN ? do_clean(p) : do_evict(p);
    p->figures.last = *a;
    p->figures.last_ns = p->sample.now_ns;
    if (r == 0)
        return;
    p->figures.failures++;
    mz_policy_failed(&p->state, a->act, p->sample.now_ns, p->sample.facts.last_use_ns);
    mz_log(MZ_LOG_DEBUG, "memory pressure: %s failed: %s", mz_act_name(a->act), mz_log_errno(r));
}

static void publish(struct mz_pressure *p)
{
    struct mz_pressure_status *f = &p->figures;

    f->level = p->action.level;
    f->calm = mz_policy_calm(&p->policy, &p->state);
    f->sample = p->sample;
    f->fill_bytes_per_s = p->state.fill_bytes_per_s;
    f->next_ms = p->action.next_ms;
    f->cpu_ns = mz_pressure_cpu_ns();
    pthread_mutex_lock(&p->lock);
    p->status = *f;
    pthread_mutex_unlock(&p->lock);
}

/* ---- waiting */

/* Fills in what to poll, the wake descriptor first; `ret_of` says whose each is. Returns their number. */
static uint32_t poll_set(struct mz_pressure *p, bool quiet, struct pollfd *fds,
                         struct mz_pressure_source **ret_of)
{
    uint32_t n = 1;

    fds[0] = (struct pollfd){.fd = p->wake_fd, .events = POLLIN};
    for (size_t i = 0; i < MZ_PRESSURE_SOURCES && !quiet; i++) {
        struct mz_pressure_source *s = &p->sources[i];

        if (!s->live || s->fd < 0)
            continue;
        ret_of[n] = s;
        fds[n++] = (struct pollfd){.fd = s->fd, .events = s->events};
    }
    return n;
}

static void take_event(struct mz_pressure *p, struct mz_pressure_source *s, short revents)
{
    int r = s->ops->event(s, revents, &p->sample);

    p->figures.reports++;
    p->figures.sources[s - p->sources].reports++;
    p->quiet_until_ns = mz_os_now_ns() + QUIET_NS;
    if (r < 0)
        lose(p, s, r);
}

static void wait_for_news(struct mz_pressure *p)
{
    struct pollfd fds[1 + MZ_PRESSURE_SOURCES];
    struct mz_pressure_source *of[1 + MZ_PRESSURE_SOURCES];
    uint64_t now = mz_os_now_ns();
    uint32_t ms = p->action.next_ms, n;
    bool quiet = now < p->quiet_until_ns;
    int r;

    if (quiet && (p->quiet_until_ns - now) / MS < ms)
        ms = (uint32_t)((p->quiet_until_ns - now) / MS) + 1;
    n = poll_set(p, quiet, fds, of);
    r = mz_pressure_poll(fds, n, ms);
    p->figures.wakeups++;
    if (r < 0 && r != -EINTR)
        mz_pressure_pause_ms(QUIET_NS / MS);
    if (r <= 0)
        return;
    if (fds[0].revents != 0)
        (void)mz_pressure_fd_drain(p->wake_fd);
    for (uint32_t i = 1; i < n; i++)
        if (fds[i].revents != 0)
            take_event(p, of[i], fds[i].revents);
}

static void *watch(void *arg)
{
    struct mz_pressure *p = arg;

    for (;;) {
        if (!take_requests(p))
            return NULL;
        look(p);
        decide(p);
        act(p);
        publish(p);
        mz_policy_sample_clear(&p->sample);
        wait_for_news(p);
    }
}

/* ---- for other threads */

static void destroy(struct mz_pressure *p)
{
    for (size_t i = 0; i < MZ_PRESSURE_SOURCES; i++)
        mz_pressure_source_close(&p->sources[i], 0);
    mz_pressure_fd_close(&p->wake_fd);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int mz_pressure_start(const struct mz_pressure_options *options, const struct mz_pressure_host *host,
                      struct mz_pressure **ret)
{
    struct mz_pressure *p;
    int r;

    if (host->facts == NULL)
        return -EINVAL;
    p = mz_calloc(1, sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    p->host = *host;
    p->options = *options;
    p->watching = options->sources && !mz_pressure_source_switched_off();
    r = mz_pressure_fd_wake(&p->wake_fd);
    if (r < 0) {
        free(p);
        return r;
    }
    pthread_mutex_init(&p->lock, NULL);
    mz_policy_sample_clear(&p->sample);
    probe(p);
    p->figures.started_ns = mz_os_now_ns();
    p->status = p->figures;
    r = mz_thread_start(&p->thread, "mz-pressure", watch, p);
    if (r < 0) {
        destroy(p);
        return r;
    }
    *ret = p;
    return 0;
}

void mz_pressure_stop(struct mz_pressure *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_mutex_unlock(&p->lock);
    mz_pressure_fd_signal(p->wake_fd);
    pthread_join(p->thread, NULL);
    destroy(p);
}

void mz_pressure_status(struct mz_pressure *p, struct mz_pressure_status *ret)
{
    pthread_mutex_lock(&p->lock);
    *ret = p->status;
    pthread_mutex_unlock(&p->lock);
}

int mz_pressure_trim(struct mz_pressure *p, int level)
{
    enum mz_trim trim;
    int r = mz_trim_from_level(level, &trim);

    if (r < 0)
        return r;
    pthread_mutex_lock(&p->lock);
    if (trim > p->trim)
        p->trim = trim;
    pthread_mutex_unlock(&p->lock);
    mz_pressure_fd_signal(p->wake_fd);
    return 0;
}

void mz_pressure_options_set(struct mz_pressure *p, const struct mz_pressure_options *options)
{
    bool sources;

    pthread_mutex_lock(&p->lock);
    sources = p->options.sources;
    p->options = *options;
    p->options.sources = sources;
    pthread_mutex_unlock(&p->lock);
    mz_pressure_fd_signal(p->wake_fd);
}

void mz_pressure_options_get(struct mz_pressure *p, struct mz_pressure_options *ret)
{
    pthread_mutex_lock(&p->lock);
    *ret = p->options;
    pthread_mutex_unlock(&p->lock);
}

void mz_pressure_wake(struct mz_pressure *p)
{
    mz_pressure_fd_signal(p->wake_fd);
}
