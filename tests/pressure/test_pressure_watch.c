/* The watcher as a whole, on a fake machine and a fake model: who is live, who takes over, what is done. */
#include "host.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "os/fault.h"
#include "tree.h"

static struct tree tree;
static struct host host;
static struct mz_pressure *watcher;
static struct mz_pressure_options options;

static struct mz_pressure_status status(void)
{
    struct mz_pressure_status s;

    mz_pressure_status(watcher, &s);
    return s;
}

static bool live_is(const char *live)
{
    struct mz_pressure_status s = status();

    return strcmp(s.live, live) == 0;
}

static void start(void)
{
    struct mz_pressure_host table = host_table(&host);

    assert_int_equal(mz_pressure_start(&options, &table, &watcher), 0);
}

/* A quiet machine of 16 GiB with 8 GiB available, no cgroup, readable PSI; no hold, so that nothing has to be
 * waited for. */
static int setup(void **unused)
{
    (void)unused;
    unsetenv("MEMORY_PRESSURE_WATCH");
    unsetenv("MEMORY_PRESSURE_WRITE");
    tree_begin(&tree);
    tree_meminfo(&tree, 16384, 8192);
    tree_psi(&tree, "/proc/pressure/memory", 0, 0);
    host_begin(&host);
    mz_pressure_defaults(&options);
    options.policy.hold_ms = 0;
    watcher = NULL;
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    mz_pressure_stop(watcher);
    watcher = NULL;
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    unsetenv("MEMORY_PRESSURE_WATCH");
    tree_end(&tree);
    return 0;
}

static void test_quiet(void **unused)
{
    struct mz_pressure_status s;

    (void)unused;
    start();
    mz_pressure_wake(watcher);
    wait_until(status().wakeups >= 1 && status().sample.now_ns != 0);
    s = status();
    assert_string_equal(s.live, "psi-system+meminfo");
    assert_int_equal(s.level, MZ_LEVEL_NONE);
    assert_true(s.calm);
    assert_int_equal(s.sample.memory_bytes, 16 * GIB);
    assert_int_equal(s.evictions, 0);
    assert_string_equal(s.sources[0].name, "systemd");
    assert_false(s.sources[0].live);
    assert_non_null(strstr(s.sources[0].detail, "not set"));
}

static void test_falling_memory_evicts(void **unused)
{
    (void)unused;
    start();
    tree_meminfo(&tree, 16384, 700);
    wait_until(host_get(&host, evictions) >= 1);
    wait_until(status().evictions >= 1);
    assert_int_equal(status().last.act, MZ_ACT_EVICT);
    assert_string_equal(status().last.why, "available memory");
    assert_true(host_get(&host, evicted_bytes) >= 580 * MIB);
    assert_true(host_get(&host, cancels) >= 1);
    assert_false(status().calm);
    /* Memory stays short whatever is given: down to the floor and never below. */
    wait_until(host_get(&host, facts.remaining_bytes) < 256 * MIB + 41 * MIB);
    assert_true(host_get(&host, facts.remaining_bytes) >= 256 * MIB);
    assert_int_equal(status().failures, 0);
}

static void test_peers_are_asked(void **unused)
{
    (void)unused;
    host.peers_bytes = 64 * GIB;
    start();
    tree_meminfo(&tree, 16384, 900);
    wait_until(host_get(&host, asked_peers) >= 1);
    host_set(&host, peers_bytes, 0); /* they have given what they had, and it is not enough */
    wait_until(host_get(&host, evictions) >= 1);
}

static void test_psi_disappears(void **unused)
{
    (void)unused;
    start();
    wait_until(live_is("psi-system+meminfo"));
    tree_remove(&tree, "/proc/pressure/memory");
    for (int i = 0; i < 2000 && !live_is("meminfo"); i++) {
        mz_pressure_wake(watcher);
        pause_ms(10);
    }
    assert_true(live_is("meminfo"));
    tree_meminfo(&tree, 16384, 700); /* and that still works */
    wait_until(host_get(&host, evictions) >= 1);
}

static void test_malformed_files_are_survived(void **unused)
{
    (void)unused;
    start();
    tree_write(&tree, "/proc/meminfo", "MemTotal:\nMemAvailable: -5 kB\n");
    tree_write(&tree, "/proc/pressure/memory", "some\xff\n");
    for (int i = 0; i < 2000 && !live_is("none"); i++) {
        mz_pressure_wake(watcher);
        pause_ms(10);
    }
    assert_true(live_is("none"));
    assert_int_equal(mz_pressure_trim(watcher, 50), 0); /* requests are still heard */
    wait_until(host_get(&host, evictions) >= 1);
}

static void test_switched_off(void **unused)
{
    (void)unused;
    setenv("MEMORY_PRESSURE_WATCH", "/dev/null", 1);
    tree_meminfo(&tree, 16384, 100);
    start();
    wait_until(status().sample.now_ns != 0);
    assert_string_equal(status().live, "off");
    assert_int_equal(mz_pressure_trim(watcher, 40), 0); /* what the host application says counts */
    wait_until(host_get(&host, evictions) >= 1);
    wait_until(status().evictions >= 1);
    assert_string_equal(status().last.why, "trim");
    assert_int_equal(status().sample.memory_bytes, 0);
}

static void test_fifo(void **unused)
{
    uint64_t reports;
    int fd;

    (void)unused;
    assert_int_equal(mkfifo(tree_path(&tree, "/fifo"), 0600), 0);
    tree_note(&tree, "/fifo");
    setenv("MEMORY_PRESSURE_WATCH", tree_path(&tree, "/fifo"), 1);
    start();
    wait_until(live_is("systemd+psi-system+meminfo"));
    fd = open(tree_path(&tree, "/fifo"), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    wait_until(host_get(&host, evictions) >= 1);
    assert_true(host_get(&host, evicted_bytes) >= 204 * MIB); /* the first own step: 5 % */
    reports = status().reports;
    assert_int_equal(status().sources[0].reports, reports); /* the FIFO's */
    close(fd);
    wait_until(status().reports > reports); /* opened again */
    assert_true(live_is("systemd+psi-system+meminfo"));
    fd = open(tree_path(&tree, "/fifo"), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    wait_until(write(fd, "x", 1) == 1 && host_get(&host, evictions) >= 2);
    close(fd);
}

static void test_socket_goes_and_others_take_over(void **unused)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;

    (void)unused;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", tree_path(&tree, "/socket"));
    tree_note(&tree, "/socket");
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    setenv("MEMORY_PRESSURE_WATCH", address.sun_path, 1);
    start();
    peer = accept(listener, NULL, NULL);
    assert_true(peer >= 0);
    assert_int_equal(write(peer, "x", 1), 1);
    wait_until(host_get(&host, evictions) >= 1);
    close(peer);
    close(listener);
    wait_until(live_is("psi-system+meminfo"));
    tree_meminfo(&tree, 16384, 100);
    wait_until(host_get(&host, evictions) >= 2);
}

static void test_cgroup_at_its_limit(void **unused)
{
    (void)unused;
    tree_write(&tree, "/proc/self/cgroup", "0::/app\n");
    tree_write(&tree, "/proc/self/mountinfo", TREE_CGROUP2);
    tree_write(&tree, "/sys/fs/cgroup/app/cgroup.type", "domain\n");
    tree_write(&tree, "/sys/fs/cgroup/app/memory.max", "max\n");
    tree_write(&tree, "/sys/fs/cgroup/app/memory.high", "8589934592\n");
    tree_write(&tree, "/sys/fs/cgroup/app/memory.current", "4294967296\n");
    tree_write(&tree, "/sys/fs/cgroup/app/memory.stat", "anon 1\ninactive_file 0\n");
    tree_write(&tree, "/sys/fs/cgroup/app/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n");
    tree_psi(&tree, "/sys/fs/cgroup/app/memory.pressure", 0, 0);
    start();
    wait_until(status().sample.now_ns != 0);
    assert_string_equal(status().live, "psi-cgroup+cgroup-events+psi-system+cgroup-limit+meminfo");
    assert_int_equal(status().sample.group_headroom_bytes, 4 * GIB);
    assert_int_equal(host_get(&host, evictions), 0);
    tree_write(&tree, "/sys/fs/cgroup/app/memory.current", "8489934592\n");
    wait_until(status().evictions >= 1);
    assert_string_equal(status().last.why, "cgroup headroom");
}

static void test_trim(void **unused)
{
    (void)unused;
    host.facts.dirty_bytes = 200 * MIB;
    start();
    assert_int_equal(mz_pressure_trim(watcher, 16), -EINVAL);
    assert_int_equal(mz_pressure_trim(watcher, 20), 0);
    wait_until(host_get(&host, facts.dirty_bytes) == 0);
    assert_int_equal(host_get(&host, evictions), 0); /* hidden: nothing hot is taken */
    assert_int_equal(mz_pressure_trim(watcher, 40), 0);
    wait_until(host_get(&host, facts.remaining_bytes) <= 256 * MIB + MIB);
    assert_true(host_get(&host, facts.remaining_bytes) >= 256 * MIB - MIB);
}

static void test_idle_and_options(void **unused)
{
    (void)unused;
    start();
    wait_until(status().sample.now_ns != 0);
    assert_int_equal(host_get(&host, evictions), 0);
    options.policy.idle_ms = 50;
    options.policy.idle_permyriad = 5000;
    mz_pressure_options_set(watcher, &options);
    wait_until(host_get(&host, facts.remaining_bytes) <= 256 * MIB + MIB);
    wait_until(status().evictions >= 1);
    assert_string_equal(status().last.why, "idle");
}

static void test_limit_set_at_run_time(void **unused)
{
    (void)unused;
    start();
    host_set(&host, facts.limit_bytes, 3 * GIB);
    mz_pressure_wake(watcher);
    wait_until(host_get(&host, facts.remaining_bytes) == 3 * GIB);
}

static void test_failures_are_counted_and_not_repeated_at_once(void **unused)
{
    uint64_t begin = mz_os_now_ns(), most;

    (void)unused;
    host.evict_result = -EIO;
    tree_meminfo(&tree, 16384, 100);
    start();
    wait_until(status().failures >= 1);
    for (int i = 0; i < 20; i++) {
        mz_pressure_wake(watcher);
        pause_ms(5);
    }
    most = 1 + (mz_os_now_ns() - begin) / UINT64_C(10000000000); /* 10 s lie between two attempts */
    assert_true(host_get(&host, evictions) <= most);
}

static void test_an_eviction_without_effect_is_a_failure(void **unused)
{
    (void)unused;
    host.evict_result = 1; /* reports success, frees nothing */
    tree_meminfo(&tree, 16384, 100);
    start();
    wait_until(status().failures >= 1);
}

static void test_host_calls_back(void **unused)
{
    (void)unused;
    start();
    host_set(&host, calls_back, watcher);
    assert_int_equal(mz_pressure_trim(watcher, 50), 0);
    wait_until(host_get(&host, evictions) >= 1);
    assert_int_equal(mz_pressure_trim(watcher, 50), 0);
    wait_until(host_get(&host, evictions) >= 2);
}

static void test_a_flood_of_reports_is_slowed_down(void **unused)
{
    struct mz_pressure_status before, after;
    uint64_t begin, elapsed_ns;
    int fd;

    (void)unused;
    assert_int_equal(mkfifo(tree_path(&tree, "/fifo"), 0600), 0);
    tree_note(&tree, "/fifo");
    setenv("MEMORY_PRESSURE_WATCH", tree_path(&tree, "/fifo"), 1);
    start();
    fd = open(tree_path(&tree, "/fifo"), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    before = status();
    begin = mz_os_now_ns();
    for (int i = 0; i < 500; i++) {
        (void)!write(fd, "x", 1);
        pause_ms(2);
    }
    elapsed_ns = mz_os_now_ns() - begin;
    after = status();
    close(fd);
    assert_true(after.reports - before.reports <= elapsed_ns / 100000000 + 2);
}

/* Whatever call fails at start or later: an error or a watcher, never a crash or a hang. */
static void test_failing_calls(void **unused)
{
    (void)unused;
    for (uint64_t nth = 1; nth <= 60; nth++) {
        struct mz_pressure_host table = host_table(&host);
        int r;

        mz_fault_plan(MZ_FAULT_ANY, nth,
                      nth % 3 == 0   ? MZ_FAULT_SHORT
                      : nth % 3 == 1 ? EIO
                                     : ENOMEM,
                      nth % 2);
        r = mz_pressure_start(&options, &table, &watcher);
        if (r == 0) {
            mz_pressure_wake(watcher);
            (void)mz_pressure_trim(watcher, 20);
            mz_pressure_stop(watcher);
        } else {
            assert_true(r < 0);
        }
        watcher = NULL;
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    }
}

static void test_arguments(void **unused)
{
    struct mz_pressure_host table = {0};

    (void)unused;
    assert_int_equal(mz_pressure_start(&options, &table, &watcher), -EINVAL);
    assert_null(watcher);
    mz_pressure_stop(NULL);
    table = (struct mz_pressure_host){.user = &host, .facts = host_facts}; /* the rest may be missing */
    tree_meminfo(&tree, 16384, 100);
    assert_int_equal(mz_pressure_start(&options, &table, &watcher), 0);
    wait_until(status().failures >= 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_quiet),
        TEST(test_falling_memory_evicts),
        TEST(test_peers_are_asked),
        TEST(test_psi_disappears),
        TEST(test_malformed_files_are_survived),
        TEST(test_switched_off),
        TEST(test_fifo),
        TEST(test_socket_goes_and_others_take_over),
        TEST(test_cgroup_at_its_limit),
        TEST(test_trim),
        TEST(test_idle_and_options),
        TEST(test_limit_set_at_run_time),
        TEST(test_failures_are_counted_and_not_repeated_at_once),
        TEST(test_an_eviction_without_effect_is_a_failure),
        TEST(test_host_calls_back),
        TEST(test_a_flood_of_reports_is_slowed_down),
        TEST(test_failing_calls),
        TEST(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
