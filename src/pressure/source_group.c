/* Our cgroup: what it reports (events), and how much may still be charged to it (limit).
 *
 * v2: memory.events counts how often the group ran into memory.high ("high", it is throttled), into
 * memory.max ("max") and how often something was killed ("oom_kill"); the file becomes ready when a counter
 * moves, and has to be read through the same descriptor to become quiet again
 * (Documentation/admin-guide/cgroup-v2.rst, fs/kernfs/file.c). v1: memory.pressure_level reports through an
 * eventfd (Documentation/admin-guide/cgroup-v1/memory.rst, chapter 11). */
#include "pressure/source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "os/machine.h"
#include "os/pressure_fd.h"
#include "os/text.h"

enum { HIGH, MAX, KILLS };

static int read_counters(const struct mz_pressure_source *s, uint64_t counters[3])
{
    static const char *const keys[] = {"high", "max", "oom_kill"};
    char text[1024];
    int64_t n = mz_pressure_fd_read(s->fd, text, sizeof(text));

    if (n < 0)
        return (int)n;
    for (size_t i = 0; i < 3; i++) {
        int r = mz_os_find_number(text, keys[i], &counters[i]);

        if (r == -ENOENT && i == KILLS)
            counters[i] = 0;
        else if (r < 0)
            return -EBADMSG;
    }
    return 0;
}

static int open_v2(struct mz_pressure_source *s)
{
    char folder[480];
    int r = mz_machine_cgroup_folder(true, folder, sizeof(folder));

    if (r < 0)
        return r;
    snprintf(s->path, sizeof(s->path), "%s/memory.events", folder);
    r = mz_pressure_fd_events(s->path, &s->fd);
    if (r < 0)
        return r;
    r = read_counters(s, s->counters);
    if (r < 0)
        return r;
    s->primed = true;
    s->events = POLLPRI;
    snprintf(s->detail, sizeof(s->detail), "%.100s", s->path);
    return 0;
}

static int open_v1(struct mz_pressure_source *s)
{
    char folder[480];
    int r = mz_machine_cgroup_folder(false, folder, sizeof(folder));

    if (r < 0)
        return r;
    r = mz_pressure_fd_level(folder, "medium", &s->fd);
    if (r < 0)
        return r;
    s->events = POLLIN;
    snprintf(s->detail, sizeof(s->detail), "pressure level of %.80s (v1)", folder);
    return 0;
}

static int events_open(struct mz_pressure_source *s)
{
    int r = open_v2(s);

    if (r == 0)
        return 0;
    mz_pressure_fd_close(&s->fd);
    return open_v1(s) == 0 ? 0 : r;
}

static void tell(enum mz_level *told, enum mz_level level)
{
    if (*told < level)
        *told = level;
}

static int count_events(struct mz_pressure_source *s, struct mz_policy_sample *sample)
{
    uint64_t now[3];
    int r = read_counters(s, now);

    if (r < 0)
        return r;
    if (now[KILLS] > s->counters[KILLS])
        tell(&sample->told, MZ_LEVEL_SEVERE); /* whatever room the victim left */
    if (now[MAX] > s->counters[MAX])
        tell(&sample->group_told, MZ_LEVEL_SEVERE);
    else if (now[HIGH] > s->counters[HIGH])
        tell(&sample->group_told, MZ_LEVEL_MEDIUM);
    memcpy(s->counters, now, sizeof(now)); /* also when they jumped back: we may have been moved */
    return 0;
}

/* A change of memory.events comes with POLLERR, so only reading tells whether the group is gone. */
static int events_event(struct mz_pressure_source *s, short revents, struct mz_policy_sample *sample)
{
    int64_t n;

    if (revents & POLLNVAL)
        return -EBADF;
    if (s->events == POLLPRI)
        return count_events(s, sample);
    n = mz_pressure_fd_drain(s->fd);
    if (n < 0 && n != -EAGAIN)
        return (int)n;
    if (n > 0 && sample->system_told < MZ_LEVEL_MEDIUM)
        sample->system_told = MZ_LEVEL_MEDIUM;
    return 0;
}

/* Also without an event: a file that nobody makes ready (another file system, a copy) still counts. */
static int events_read(struct mz_pressure_source *s, struct mz_policy_sample *sample)
{
    return s->events == POLLPRI ? count_events(s, sample) : 0;
}

const struct mz_pressure_source_ops mz_pressure_source_group_events = {
    .name = "cgroup-events",
    .open = events_open,
    .event = events_event,
    .read = events_read,
};

/* A limit that is set later is found when dead sources are probed again. */
static int limit_open(struct mz_pressure_source *s)
{
    uint64_t limit, current, headroom;
    int r = mz_machine_cgroup_limit(&limit, &current, &headroom);

    if (r < 0)
        return r;
    r = limit == MZ_POLICY_UNKNOWN ? -ENODATA : 0;
    snprintf(s->detail, sizeof(s->detail), "%s", r < 0 ? "no limit is set" : "polled");
    return r;
}

/* Limit and headroom of one moment: a headroom that fell with its limit is not filling. Reads the files of all
 * ancestors, which takes some 100 us. */
static int limit_read(struct mz_pressure_source *s, struct mz_policy_sample *sample)
{
    uint64_t limit, current, headroom;
    int r = mz_machine_cgroup_limit(&limit, &current, &headroom);

    (void)s;
    if (r < 0)
        return r;
    sample->group_limit_bytes = limit;
    sample->group_headroom_bytes = headroom;
    return 0;
}

const struct mz_pressure_source_ops mz_pressure_source_group_limit = {
    .name = "cgroup-limit",
    .open = limit_open,
    .read = limit_read,
};
