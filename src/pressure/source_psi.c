/* Pressure stall information: how much time tasks lost waiting for memory (Documentation/accounting/psi.rst).
 *
 * Where the kernel lets us, a trigger wakes the watcher when stalls add up; everywhere the `total` counters
 * are read whenever it is awake. Without privilege windows are multiples of two seconds (Linux 6.5 and later;
 * before, there are no triggers at all), so that is tried second. */
#include "pressure/source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "os/machine.h"
#include "os/pressure_fd.h"
#include "os/text.h"

#define SYSTEM_PATH "/proc/pressure/memory"

/* The share that systemd uses for services by default is 10 %; 7 % keeps the policy's medium level in reach.
 */
static const struct {
    const char *trigger, *what;
} triggers[] = {
    {"some 70000 1000000", "woken by 70 ms of stalls in 1 s"},
    {"some 150000 2000000", "woken by 150 ms of stalls in 2 s"},
};

/* A rate over less time is noise: the kernel adds to the counters every 2 s at the latest, and when read. */
#define INTERVAL_MIN_NS UINT64_C(200000000)

/* The number behind " total=" in the line that starts with `kind`. -ENOENT: no such line. */
static int line_total(const char *text, const char *kind, uint64_t *ret)
{
    const char *line = text, *p;
    char number[24];
    size_t n;

    while (strncmp(line, kind, strlen(kind)) != 0) {
        line = strchr(line, '\n');
        if (line == NULL)
            return -ENOENT;
        line++;
    }
    p = strstr(line, " total=");
    if (p == NULL || memchr(line, '\n', (size_t)(p - line)) != NULL)
        return -EBADMSG;
    p += strlen(" total=");
    n = strcspn(p, " \n");
    if (n == 0 || n >= sizeof(number) || *p < '0' || *p > '9')
        return -EBADMSG;
    memcpy(number, p, n);
    number[n] = '\0';
    return mz_os_parse_number(number, ret);
}

int mz_psi_parse(const char *text, uint64_t *ret_some_us, uint64_t *ret_full_us)
{
    uint64_t some = 0, full = 0;
    int r = line_total(text, "some ", &some);

    if (r < 0)
        return -EBADMSG;
    r = line_total(text, "full ", &full);
    if (r < 0 && r != -ENOENT)
        return r;
    *ret_some_us = some;
    *ret_full_us = full;
    return 0;
}

static int read_totals(const struct mz_pressure_source *s, uint64_t *ret_some, uint64_t *ret_full)
{
    char text[512];
    int64_t n = mz_os_read_text(s->path, text, sizeof(text));

    return n < 0 ? (int)n : mz_psi_parse(text, ret_some, ret_full);
}

/* Share of the time that was stalled; 0 when the counter jumped back. */
static uint32_t permyriad(uint64_t before_us, uint64_t now_us, uint64_t dt_ns)
{
    uint64_t stalled_us = now_us > before_us ? now_us - before_us : 0;

    if (stalled_us >= dt_ns / 1000)
        return stalled_us == 0 ? 0 : 10000;
    return (uint32_t)(stalled_us * 10000 / (dt_ns / 1000 != 0 ? dt_ns / 1000 : 1));
}

static int measure(struct mz_pressure_source *s, uint64_t now_ns)
{
    uint64_t some, full, dt;
    int r = read_totals(s, &some, &full);

    if (r < 0)
        return r;
    dt = now_ns > s->counted_ns ? now_ns - s->counted_ns : 0;
    if (s->primed && now_ns >= s->counted_ns && dt < INTERVAL_MIN_NS)
        return 0;
    s->some_permyriad = s->primed ? permyriad(s->counters[0], some, dt) : 0;
    s->full_permyriad = s->primed ? permyriad(s->counters[1], full, dt) : 0;
    s->counters[0] = some;
    s->counters[1] = full;
    s->counted_ns = now_ns;
    s->primed = true;
    return 0;
}

static int psi_open(struct mz_pressure_source *s)
{
    uint64_t some, full;
    int r = read_totals(s, &some, &full), t = -ENOENT;

    if (r < 0)
        return r;
    for (size_t i = 0; i < sizeof(triggers) / sizeof(*triggers) && t < 0; i++) {
        t = mz_pressure_fd_psi(s->path, triggers[i].trigger, &s->fd);
        if (t == 0)
            snprintf(s->detail, sizeof(s->detail), "%s", triggers[i].what);
    }
    s->triggers = t == 0;
    s->events = POLLPRI;
    if (t < 0)
        snprintf(s->detail, sizeof(s->detail), "read only, no trigger to be had");
    return 0;
}

static int system_open(struct mz_pressure_source *s)
{
    snprintf(s->path, sizeof(s->path), SYSTEM_PATH);
    return psi_open(s);
}

static int group_open(struct mz_pressure_source *s)
{
    char folder[480], text[32];
    int r = mz_machine_cgroup_folder(true, folder, sizeof(folder));

    if (r < 0)
        return r;
    snprintf(s->path, sizeof(s->path), "%s/cgroup.type", folder);
    if (mz_os_read_text(s->path, text, sizeof(text)) < 0) { /* every group has it but the root */
        snprintf(s->detail, sizeof(s->detail), "we are in the root group, which is the whole machine");
        return -ENOENT;
    }
    snprintf(s->path, sizeof(s->path), "%s/memory.pressure", folder);
    r = psi_open(s);
    s->triggers = false; /* it tells of our own stalls: the machine still has to be polled */
    return r;
}

/* POLLERR: the cgroup was removed, or PSI was turned off in it. */
static bool gone(short revents)
{
    return (revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

static int system_event(struct mz_pressure_source *s, short revents, struct mz_policy_sample *sample)
{
    (void)s;
    if (gone(revents))
        return -ENODEV;
    if ((revents & POLLPRI) && sample->system_told < MZ_LEVEL_MEDIUM)
        sample->system_told = MZ_LEVEL_MEDIUM;
    return 0;
}

static int group_event(struct mz_pressure_source *s, short revents, struct mz_policy_sample *sample)
{
    (void)s;
    if (gone(revents))
        return -ENODEV;
    if ((revents & POLLPRI) && sample->told < MZ_LEVEL_MEDIUM)
        sample->told = MZ_LEVEL_MEDIUM;
    return 0;
}

static int system_read(struct mz_pressure_source *s, struct mz_policy_sample *sample)
{
    int r = measure(s, sample->now_ns);

    if (r < 0)
        return r;
    sample->system_some_permyriad = s->some_permyriad;
    sample->system_full_permyriad = s->full_permyriad;
    return 0;
}

static int group_read(struct mz_pressure_source *s, struct mz_policy_sample *sample)
{
    int r = measure(s, sample->now_ns);

    if (r < 0)
        return r;
    sample->group_some_permyriad = s->some_permyriad;
    sample->group_full_permyriad = s->full_permyriad;
    return 0;
}

const struct mz_pressure_source_ops mz_pressure_source_psi_system = {
    .name = "psi-system",
    .open = system_open,
    .event = system_event,
    .read = system_read,
};

const struct mz_pressure_source_ops mz_pressure_source_psi_group = {
    .name = "psi-cgroup",
    .open = group_open,
    .event = group_event,
    .read = group_read,
};
