/* The real machine: PSI where the kernel has it, a real cgroup with a limit where we may make one, and what
 * an idle watcher costs. */
#include "host.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/log.h"
#include "os/machine.h"
#include "os/pressure_fd.h"
#include "os/text.h"
#include "pressure/source.h"

#define GROUP_LIMIT_BYTES (256 * MIB)
#define GROUP_HIGH_BYTES  (32 * MIB)

static void test_psi(void **unused)
{
    struct mz_pressure_source s;
    struct mz_policy_sample at;

    (void)unused;
    mz_pressure_source_open(&s, &mz_pressure_source_psi_system);
    if (!s.live) {
        print_message("no PSI here: %s\n", s.detail);
        skip();
    }
    print_message("psi-system: %s\n", s.detail);
    mz_policy_sample_clear(&at);
    at.now_ns = mz_os_now_ns();
    assert_int_equal(s.ops->read(&s, &at), 0);
    if (s.fd >= 0) { /* a second trigger needs a descriptor of its own, and gets one */
        struct pollfd fd = {.fd = s.fd, .events = POLLPRI};
        struct mz_pressure_source other;

        assert_true(poll(&fd, 1, 0) >= 0);
        assert_int_equal(fd.revents & (POLLERR | POLLNVAL), 0);
        mz_pressure_source_open(&other, &mz_pressure_source_psi_system);
        assert_true(other.live && other.fd >= 0);
        mz_pressure_source_close(&other, 0);
    }
    mz_pressure_source_close(&s, 0);
}

/* Runs in a child that gave up its privileges. */
static int unprivileged(void)
{
    struct mz_pressure_source s;

    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 2;
    mz_pressure_source_open(&s, &mz_pressure_source_psi_system);
    print_message("psi-system without privilege: %s\n", s.detail);
    return s.live ? 0 : 1;
}

static int run_child(int (*run)(void))
{
    int state = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(run());
    assert_int_equal(waitpid(pid, &state, 0), pid);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static void test_psi_without_privilege(void **unused)
{
    struct mz_pressure_source s;
    int r;

    (void)unused;
    mz_pressure_source_open(&s, &mz_pressure_source_psi_system);
    r = s.live && geteuid() == 0;
    mz_pressure_source_close(&s, 0);
    if (!r) {
        print_message("needs PSI, and root to give it up\n");
        skip();
    }
    assert_int_equal(run_child(unprivileged), 0); /* a longer window, or reading only */
}

/* ---- a cgroup of our own */

static char group[600];

static int group_write(const char *file, const char *text)
{
    char path[700];

    snprintf(path, sizeof(path), "%s/%s", group, file);
    return mz_os_write_text(path, text);
}

/* Makes a group with that limit in that file; 0, or negative errno. In version 2 our own group has none below it, having
 * processes. */
static int group_make(bool unified, const char *file, uint64_t bytes)
{
    char parent[512] = "/sys/fs/cgroup", text[32];
    int r = unified ? 0 : mz_machine_cgroup_folder(false, parent, sizeof(parent));

    if (r < 0)
        return r;
    snprintf(group, sizeof(group), "%s/mz-pressure-test-%d", parent, (int)getpid());
    if (mkdir(group, 0755) != 0)
        return -errno;
    snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
    r = group_write(file, text);
    if (r < 0)
        (void)rmdir(group);
    return r;
}

static void read_limit(struct mz_pressure_source *s, struct mz_policy_sample *at)
{
    mz_policy_sample_clear(at);
    at->now_ns = at->boottime_ns = mz_os_now_ns();
    if (s->ops->read(s, at) < 0)
        _exit(4);
}

static int group_enter(void)
{
    char pid[32];

    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    return group_write("cgroup.procs", pid);
}

/* In the group: takes memory until the policy says that it is short. */
static int fill_the_group(void)
{
    struct mz_pressure_source limit, events;
    struct mz_policy_sample at;
    struct mz_policy_state state = {0};
    struct mz_policy_options options;
    struct mz_policy_action action = {.act = MZ_ACT_NONE};
    char *memory = mmap(NULL, GROUP_LIMIT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED || group_enter() < 0)
        return 2;
    mz_pressure_source_open(&limit, &mz_pressure_source_group_limit);
    mz_pressure_source_open(&events, &mz_pressure_source_group_events);
    print_message("cgroup-limit: %s; cgroup-events: %s\n", limit.detail, events.detail);
    if (!limit.live)
        return 3;
    read_limit(&limit, &at);
    if (at.group_limit_bytes > GROUP_LIMIT_BYTES || at.group_headroom_bytes > GROUP_LIMIT_BYTES)
        return 5;
    mz_policy_defaults(&options);
    for (uint64_t i = 0; i < GROUP_LIMIT_BYTES / MIB && action.act == MZ_ACT_NONE; i++) {
        memset(memory + i * MIB, 1, MIB);
        read_limit(&limit, &at);
        at.facts.total_bytes = at.facts.remaining_bytes = 4 * GIB;
        mz_policy_decide(&options, &state, &at, &state, &action);
    }
    print_message("headroom %llu MiB of %llu: %s %llu MiB (%s)\n",
                  (unsigned long long)(at.group_headroom_bytes / MIB),
                  (unsigned long long)(at.group_limit_bytes / MIB), mz_act_name(action.act),
                  (unsigned long long)(action.bytes / MIB), action.why);
    return action.act == MZ_ACT_EVICT ? 0 : 6;
}

static void test_real_cgroup(void **unused)
{
    int v1 = 0, v2 = group_make(true, "memory.max", GROUP_LIMIT_BYTES), r;

    (void)unused;
    if (v2 < 0) {
        v1 = group_make(false, "memory.limit_in_bytes", GROUP_LIMIT_BYTES);
        if (v1 < 0) {
            print_message("no cgroup with a limit can be made here: v2 %s, ", mz_log_errno(v2));
            print_message("v1 %s\n", mz_log_errno(v1));
            skip();
        }
    }
    r = run_child(fill_the_group);
    wait_until(rmdir(group) == 0 || errno == ENOENT);
    assert_int_equal(r, 0);
}

/* Takes more than the group may have, so that it waits for most of it, as long as it lives. */
static pid_t start_hog(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        char *memory =
            mmap(NULL, 8 * GROUP_HIGH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (memory != MAP_FAILED)
            memset(memory, 1, 8 * GROUP_HIGH_BYTES);
        for (;;)
            pause();
    }
    return pid;
}

/* Waits for a report; false when none comes, or it says nothing about us. */
static bool reports(struct mz_pressure_source *s)
{
    struct pollfd fd = {.fd = s->fd, .events = s->events};
    struct mz_policy_sample at;

    mz_policy_sample_clear(&at);
    if (!s->live || poll(&fd, 1, 60000) != 1 || s->ops->event(s, fd.revents, &at) < 0) {
        print_error("%s: no report; %s\n", s->ops->name, s->detail);
        return false;
    }
    return at.told >= MZ_LEVEL_MEDIUM || at.group_told >= MZ_LEVEL_MEDIUM;
}

/* In the group, beside a hog that stalls: all that can tell of it does. */
static int hear_of_stalls(void)
{
    static const struct mz_pressure_source_ops *const of[] = {
        &mz_pressure_source_psi_group, &mz_pressure_source_group_events, &mz_pressure_source_systemd};
    struct mz_pressure_source sources[3];
    char watch[700];
    pid_t hog;
    int r = 0;

    snprintf(watch, sizeof(watch), "%s/memory.pressure", group);
    (void)setenv("MEMORY_PRESSURE_WATCH", watch, 1);
    (void)setenv("MEMORY_PRESSURE_WRITE", "c29tZSAyMDAwMDAgMjAwMDAwMAA=", 1); /* 200 ms in 2 s, systemd's own */
    if (group_enter() < 0)
        return 2;
    for (size_t i = 0; i < 3; i++) {
        mz_pressure_source_open(&sources[i], of[i]);
        print_message("%s: %s\n", of[i]->name, sources[i].detail);
    }
    hog = start_hog();
    for (size_t i = 0; i < 3 && hog > 0; i++)
        if (!reports(&sources[i]))
            r = 3 + (int)i;
    if (hog > 0 && (kill(hog, SIGKILL) != 0 || waitpid(hog, NULL, 0) != hog))
        r = 6;
    return hog > 0 ? r : 7;
}

static void test_real_stalls(void **unused)
{
    int r = group_make(true, "memory.high", GROUP_HIGH_BYTES);
    char file[700];

    (void)unused;
    snprintf(file, sizeof(file), "%s/memory.pressure", group);
    (void)group_write("memory.swap.max", "0"); /* a kernel without swap has no such file */
    if (r < 0 || access(file, F_OK) != 0) {
        print_message("needs a cgroup of version 2 with its memory controller (%s), and PSI\n", mz_log_errno(r));
        if (r == 0)
            assert_int_equal(rmdir(group), 0);
        skip();
    }
    r = run_child(hear_of_stalls);
    wait_until(rmdir(group) == 0 || errno == ENOENT);
    assert_int_equal(r, 0);
}

/* ---- an idle watcher */

static void test_idle_cost(void **unused)
{
    struct mz_pressure_options options;
    struct mz_pressure_host table;
    struct mz_pressure_status first, last;
    struct host h;
    struct mz_pressure *p;
    uint64_t ns;

    (void)unused;
    host_begin(&h);
    table = host_table(&h);
    mz_pressure_defaults(&options);
    assert_int_equal(mz_pressure_start(&options, &table, &p), 0);
    wait_until((mz_pressure_status(p, &first), first.sample.now_ns != 0));
    mz_pressure_wake(p);
    pause_ms(5000);
    mz_pressure_wake(p);
    wait_until((mz_pressure_status(p, &last), last.sample.now_ns >= first.sample.now_ns + 5000000000u));
    ns = last.sample.now_ns - first.sample.now_ns;
    print_message("watching %s, level %s, %llu MiB available, next look in %u ms\n", last.live,
                  mz_level_name(last.level), (unsigned long long)(last.sample.available_bytes / MIB),
                  last.next_ms);
    print_message("%.1f s: %.2f wake-ups a second, %.4f %% of a core, %.0f us a wake-up\n", (double)ns / 1e9,
                  (double)(last.wakeups - first.wakeups) * 1e9 / (double)ns,
                  (double)(last.cpu_ns - first.cpu_ns) * 100 / (double)ns,
                  (double)(last.cpu_ns - first.cpu_ns) / 1e3 / (double)(last.wakeups - first.wakeups));
    mz_pressure_stop(p);
    assert_true(last.cpu_ns - first.cpu_ns < ns / 10); /* 0.01 % are usual; a busy loop would be 100 % */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_psi),
        cmocka_unit_test(test_psi_without_privilege),
        cmocka_unit_test(test_real_cgroup),
        cmocka_unit_test(test_real_stalls),
        cmocka_unit_test(test_idle_cost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
