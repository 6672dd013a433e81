/* Each source alone: what it reads from good, malformed, jumping and disappearing files, and systemd's
 * protocol with a file, a FIFO, a socket. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "os/fault.h"
#include "os/pressure_fd.h"
#include "pressure/source.h"
#include "tree.h"

#define MS UINT64_C(1000000)

static struct mz_policy_sample sample_at(uint64_t ms)
{
    struct mz_policy_sample s;

    mz_policy_sample_clear(&s);
    s.now_ns = s.boottime_ns = ms * MS;
    return s;
}

/* ---- parsers */

static void test_psi_text(void **unused)
{
    static const struct {
        const char *text;
        int r;
        uint64_t some, full;
    } rows[] = {
        {"some avg10=0.00 avg60=1.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
         "total=45\n",
         0, 123, 45},
        {"some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", 0, 7,
         0}, /* no full line, as for the processor */
        {"full avg10=0.00 avg60=0.00 avg300=0.00 total=45\nsome avg10=0.00 total=9", 0, 9, 45},
        {"some avg10=0.00 avg60=0.00 avg300=0.00 total=18446744073709551615\n", 0, UINT64_MAX, 0},
        {"", -EBADMSG, 0, 0},
        {"some", -EBADMSG, 0, 0},
        {"some avg10=0.00\nfull avg10=0.00 total=5\n", -EBADMSG, 0, 0},
        {"some avg10=0.00 total=\n", -EBADMSG, 0, 0},
        {"some avg10=0.00 total=-5\n", -EBADMSG, 0, 0},
        {"some avg10=0.00 total=max\n", -EBADMSG, 0, 0},
        {"some avg10=0.00 total=12x\n", -EBADMSG, 0, 0},
        {"some avg10=0.00 total=18446744073709551616\n", -EBADMSG, 0, 0},
        {"some avg10=0.00 total=99999999999999999999999999999\n", -EBADMSG, 0, 0},
        {"some avg10=0.00 total=1\nfull avg10=0.00 total=x\n", -EBADMSG, 0, 0},
        {"awesome avg10=0.00 total=1\n", -EBADMSG, 0, 0},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        uint64_t some = 77, full = 77;

        assert_int_equal(mz_psi_parse(rows[i].text, &some, &full), rows[i].r);
        assert_int_equal(some, rows[i].r ? 77 : rows[i].some);
        assert_int_equal(full, rows[i].r ? 77 : rows[i].full);
    }
}

static void test_base64(void **unused)
{
    static const struct {
        const char *text;
        int r;
        const char *bytes;
    } rows[] = {
        {"", 0, ""},
        {"aGVsbG8=", 0, "hello"},
        {"aGVsbG8h", 0, "hello!"},
        {"aA==", 0, "h"},
        {"c29tZSAyMDAwMDAgMjAwMDAwMA==", 0, "some 200000 2000000"},
        {"aGVsbG8", -EBADMSG, NULL},
        {"aGVs bG8=", -EBADMSG, NULL},
        {"aA==aA==", -EBADMSG, NULL},
        {"====", -EBADMSG, NULL},
        {"a===", -EBADMSG, NULL},
        {"aG=s", -EBADMSG, NULL},
        {"aGV\n", -EBADMSG, NULL},
        {"aGVsbG8haGVsbG8haGVsbG8haGVsbG8haGVsbG8h", -ENOBUFS, NULL},
    };
    char buf[24];

    (void)unused;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t n = 77;

        assert_int_equal(mz_base64_decode(rows[i].text, buf, sizeof(buf), &n), rows[i].r);
        if (rows[i].r == 0) {
            assert_int_equal(n, strlen(rows[i].bytes));
            assert_memory_equal(buf, rows[i].bytes, n);
        } else {
            assert_int_equal(n, 77);
        }
    }
}

/* ---- files of a fake machine */

static void test_psi_counters(void **unused)
{
    struct tree t;
    struct mz_pressure_source s;
    struct mz_policy_sample at;

    (void)unused;
    tree_begin(&t);
    tree_psi(&t, "/proc/pressure/memory", 1000000, 0);
    mz_pressure_source_open(&s, &mz_pressure_source_psi_system);
    assert_true(s.live);
    assert_false(s.triggers); /* an ordinary file reports nothing, and must not be overwritten */
    assert_int_equal(s.fd, -1);
    assert_non_null(strstr(s.detail, "read only"));
    at = sample_at(1000);
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.system_some_permyriad, 0); /* the first reading has nothing to compare with */
    tree_psi(&t, "/proc/pressure/memory", 1200000, 50000);
    at = sample_at(2000);
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.system_some_permyriad, 2000);
    assert_int_equal(at.system_full_permyriad, 500);
    at = sample_at(2050); /* too soon for a new rate: the last one holds */
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.system_some_permyriad, 2000);
    tree_psi(&t, "/proc/pressure/memory", 5, 0); /* jumped back */
    at = sample_at(3000);
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.system_some_permyriad, 0);
    tree_psi(&t, "/proc/pressure/memory", UINT64_MAX, UINT64_MAX); /* jumped ahead */
    at = sample_at(4000);
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.system_some_permyriad, 10000);
    at = sample_at(10); /* the clock jumped back */
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.system_some_permyriad, 0);
    tree_write(&t, "/proc/pressure/memory", "nonsense");
    assert_int_equal(s.ops->read(&s, &at), -EBADMSG);
    tree_remove(&t, "/proc/pressure/memory");
    assert_int_equal(s.ops->read(&s, &at), -ENOENT);
    mz_pressure_source_close(&s, -ENOENT);
    assert_false(s.live);
    mz_pressure_source_open(&s, &mz_pressure_source_psi_system);
    assert_false(s.live);
    assert_string_not_equal(s.detail, "");
    tree_end(&t);
}

static void test_psi_events(void **unused)
{
    struct mz_pressure_source s = {.ops = &mz_pressure_source_psi_system, .fd = -1};
    struct mz_policy_sample at = sample_at(1000);

    (void)unused;
    assert_int_equal(s.ops->event(&s, POLLPRI, &at), 0);
    assert_int_equal(at.system_told, MZ_LEVEL_MEDIUM);
    assert_int_equal(at.told, MZ_LEVEL_NONE);
    assert_int_equal(s.ops->event(&s, POLLPRI | POLLERR, &at), -ENODEV); /* turned off or removed */
    assert_int_equal(mz_pressure_source_psi_group.event(&s, POLLPRI, &at), 0);
    assert_int_equal(at.told, MZ_LEVEL_MEDIUM);
    assert_int_equal(mz_pressure_source_psi_group.event(&s, POLLERR, &at), -ENODEV);
}

static void test_psi_of_the_root_group_is_the_machine(void **unused)
{
    struct tree t;
    struct mz_pressure_source s;

    (void)unused;
    tree_begin(&t);
    tree_write(&t, "/proc/self/mountinfo", TREE_CGROUP2);
    tree_write(&t, "/proc/self/cgroup", "0::/\n");
    tree_psi(&t, "/sys/fs/cgroup/memory.pressure", 1, 1);
    mz_pressure_source_open(&s, &mz_pressure_source_psi_group);
    assert_false(s.live);
    assert_non_null(strstr(s.detail, "root"));
    tree_write(&t, "/sys/fs/cgroup/cgroup.type",
               "domain\n"); /* a namespace: its root is a group like others */
    mz_pressure_source_open(&s, &mz_pressure_source_psi_group);
    assert_true(s.live);
    mz_pressure_source_close(&s, 0);
    tree_end(&t);
}

static void test_group_events(void **unused)
{
    static const char *const file = "/sys/fs/cgroup/app/memory.events";
    struct tree t;
    struct mz_pressure_source s;
    struct mz_policy_sample at = sample_at(1000);

    (void)unused;
    tree_begin(&t);
    tree_write(&t, "/proc/self/mountinfo", TREE_CGROUP2);
    tree_write(&t, "/proc/self/cgroup", "0::/app\n");
    mz_pressure_source_open(&s, &mz_pressure_source_group_events);
    assert_false(s.live);
    tree_write(&t, file, "low 0\nhigh 5\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n");
    mz_pressure_source_open(&s, &mz_pressure_source_group_events);
    assert_true(s.live);
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.group_told, MZ_LEVEL_NONE);
    tree_patch(&t, file, "low 0\nhigh 6\nmax 0\noom 0\noom_kill 0\n");
    assert_int_equal(s.ops->event(&s, POLLPRI | POLLERR, &at), 0); /* the kernel always sends both */
    assert_int_equal(at.group_told, MZ_LEVEL_MEDIUM);
    tree_patch(&t, file, "low 0\nhigh 6\nmax 1\noom 0\noom_kill 0\n");
    assert_int_equal(s.ops->event(&s, POLLPRI | POLLERR, &at), 0);
    assert_int_equal(at.group_told, MZ_LEVEL_SEVERE);
    assert_int_equal(at.told, MZ_LEVEL_NONE);
    tree_patch(&t, file, "low 0\nhigh 6\nmax 1\noom 1\noom_kill 1\n"); /* no page cache does that */
    assert_int_equal(s.ops->event(&s, POLLPRI | POLLERR, &at), 0);
    assert_int_equal(at.told, MZ_LEVEL_SEVERE);
    at = sample_at(2000);
    tree_patch(&t, file,
               "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n"); /* moved to a fresh group: jumped back */
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.group_told, MZ_LEVEL_NONE);
    tree_patch(&t, file, "high 1\nmax 0\n"); /* an older kernel's set of counters */
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.group_told, MZ_LEVEL_MEDIUM);
    at = sample_at(3000);
    tree_patch(&t, file, "high\nmax x\n");
    assert_int_equal(s.ops->read(&s, &at), -EBADMSG);
    tree_patch(&t, file, "");
    assert_int_equal(s.ops->read(&s, &at), -EBADMSG);
    assert_int_equal(at.group_told, MZ_LEVEL_NONE);
    mz_pressure_source_close(&s, -ENODEV);
    tree_end(&t);
}

/* v1 counts into an eventfd. */
static void test_group_level(void **unused)
{
    struct mz_pressure_source s = {.ops = &mz_pressure_source_group_events, .fd = -1, .events = POLLIN};
    struct mz_policy_sample at = sample_at(1000);

    (void)unused;
    assert_int_equal(mz_pressure_fd_wake(&s.fd), 0);
    assert_int_equal(s.ops->event(&s, POLLIN, &at), 0); /* nothing there after all */
    assert_int_equal(at.system_told, MZ_LEVEL_NONE);
    mz_pressure_fd_signal(s.fd);
    assert_int_equal(s.ops->event(&s, POLLIN, &at), 0);
    assert_int_equal(at.system_told, MZ_LEVEL_MEDIUM);
    assert_int_equal(at.told, MZ_LEVEL_NONE);
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(s.ops->event(&s, POLLNVAL, &at), -EBADF);
    mz_pressure_source_close(&s, 0);
}

static void test_meminfo(void **unused)
{
    struct tree t;
    struct mz_pressure_source s;
    struct mz_policy_sample at = sample_at(1000);

    (void)unused;
    tree_begin(&t);
    mz_pressure_source_open(&s, &mz_pressure_source_meminfo);
    assert_false(s.live);
    tree_meminfo(&t, 16384, 8000);
    mz_pressure_source_open(&s, &mz_pressure_source_meminfo);
    assert_true(s.live);
    assert_int_equal(s.ops->read(&s, &at), 0);
    assert_int_equal(at.memory_bytes, UINT64_C(16384) << 20);
    assert_int_equal(at.available_bytes, UINT64_C(8000) << 20);
    at = sample_at(2000);
    tree_write(&t, "/proc/meminfo", "MemTotal: lots\nMemAvailable: 5 kB\n");
    assert_true(s.ops->read(&s, &at) < 0);
    assert_int_equal(at.available_bytes, MZ_POLICY_UNKNOWN);
    tree_write(&t, "/proc/meminfo", "");
    assert_true(s.ops->read(&s, &at) < 0);
    mz_pressure_source_close(&s, 0);
    tree_end(&t);
}

/* ---- systemd's protocol */

static void protocol(const char *watch, const char *write)
{
    assert_int_equal(setenv("MEMORY_PRESSURE_WATCH", watch, 1), 0);
    if (write != NULL)
        assert_int_equal(setenv("MEMORY_PRESSURE_WRITE", write, 1), 0);
    else
        unsetenv("MEMORY_PRESSURE_WRITE");
}

static void protocol_end(void)
{
    unsetenv("MEMORY_PRESSURE_WATCH");
    unsetenv("MEMORY_PRESSURE_WRITE");
}

/* Waits for the source's descriptor, then hands the event over. */
static int next_event(struct mz_pressure_source *s, struct mz_policy_sample *at)
{
    struct pollfd fd = {.fd = s->fd, .events = s->events};

    assert_int_equal(poll(&fd, 1, 30000), 1);
    return s->ops->event(s, fd.revents, at);
}

static bool is_quiet(const struct mz_pressure_source *s)
{
    struct pollfd fd = {.fd = s->fd, .events = s->events};

    return poll(&fd, 1, 0) == 0;
}

static void test_systemd_refusals(void **unused)
{
    struct mz_pressure_source s;

    (void)unused;
    protocol_end();
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_false(s.live);
    assert_non_null(strstr(s.detail, "not set"));
    assert_false(mz_pressure_source_switched_off());
    protocol("/dev/null", NULL);
    assert_true(mz_pressure_source_switched_off());
    protocol("relative", NULL);
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_false(s.live);
    protocol("/tmp", NULL); /* a folder */
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_false(s.live);
    protocol("/nowhere/at/all", NULL);
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_false(s.live);
    protocol("/dev/zero", NULL);
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_false(s.live);
    protocol("/proc/version", "not base64!");
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_false(s.live);
    assert_non_null(strstr(s.detail, "base64"));
    protocol_end();
}

static void test_systemd_file(void **unused)
{
    struct tree t;
    struct mz_pressure_source s;
    struct mz_policy_sample at = sample_at(1000);
    char text[32] = "";
    FILE *f;

    (void)unused;
    tree_begin(&t);
    tree_write(&t, "/watch", "");
    protocol(tree_path(&t, "/watch"), "aGVsbG8=");
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_true(s.live);
    assert_int_equal(s.events, POLLPRI);
    f = fopen(tree_path(&t, "/watch"), "r"); /* it was written at once, as it stands */
    assert_non_null(f);
    assert_int_equal(fread(text, 1, sizeof(text), f), 5);
    assert_string_equal(text, "hello");
    fclose(f);
    assert_int_equal(s.ops->event(&s, POLLPRI, &at), 0);
    assert_int_equal(at.told, MZ_LEVEL_MEDIUM);
    assert_int_equal(s.ops->event(&s, POLLPRI | POLLERR, &at), -ENODEV);
    mz_pressure_source_close(&s, 0);
    protocol_end();
    tree_end(&t);
}

static void test_systemd_fifo(void **unused)
{
    struct tree t;
    struct mz_pressure_source s;
    struct mz_policy_sample at;

    (void)unused;
    tree_begin(&t);
    assert_int_equal(mkfifo(tree_path(&t, "/fifo"), 0600), 0);
    tree_note(&t, "/fifo");
    protocol(tree_path(&t, "/fifo"), NULL);
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_true(s.live);
    for (int i = 0; i < 3; i++) { /* writers come and go */
        int fd = open(tree_path(&t, "/fifo"), O_WRONLY | O_CLOEXEC | O_NONBLOCK);

        assert_true(fd >= 0);
        assert_true(is_quiet(&s));
        assert_int_equal(write(fd, "x\n", 2), 2);
        at = sample_at(1000);
        assert_int_equal(next_event(&s, &at), 0);
        assert_int_equal(at.told, MZ_LEVEL_MEDIUM);
        assert_true(is_quiet(&s)); /* drained */
        close(fd);
        at = sample_at(1000);
        assert_int_equal(next_event(&s, &at), 0); /* the last writer is gone: opened again */
        assert_int_equal(at.told, MZ_LEVEL_NONE);
        assert_true(is_quiet(&s));
    }
    mz_pressure_source_close(&s, 0);
    protocol_end();
    tree_end(&t);
}

static void test_systemd_socket(void **unused)
{
    struct tree t;
    struct mz_pressure_source s;
    struct mz_policy_sample at = sample_at(1000);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[32];
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;

    (void)unused;
    tree_begin(&t);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", tree_path(&t, "/socket"));
    tree_note(&t, "/socket");
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
    protocol(address.sun_path, "aGVsbG8=");
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_false(s.live); /* nobody listens yet */
    assert_int_equal(listen(listener, 1), 0);
    mz_pressure_source_open(&s, &mz_pressure_source_systemd);
    assert_true(s.live);
    peer = accept(listener, NULL, NULL);
    assert_true(peer >= 0);
    assert_int_equal(read(peer, text, sizeof(text)), 5);
    assert_memory_equal(text, "hello", 5);
    assert_true(is_quiet(&s));
    assert_int_equal(write(peer, "pressure", 8), 8);
    assert_int_equal(next_event(&s, &at), 0);
    assert_int_equal(at.told, MZ_LEVEL_MEDIUM);
    assert_true(is_quiet(&s));
    at = sample_at(2000);
    assert_int_equal(write(peer, "last words", 10), 10);
    close(peer);
    assert_int_equal(next_event(&s, &at), -ECONNRESET);
    assert_int_equal(at.told, MZ_LEVEL_MEDIUM); /* they counted */
    mz_pressure_source_close(&s, -ECONNRESET);
    close(listener);
    protocol_end();
    tree_end(&t);
}

/* ---- every call may fail */

static void test_failing_calls(void **unused)
{
    static const struct mz_pressure_source_ops *const all[] = {
        &mz_pressure_source_systemd,      &mz_pressure_source_psi_group,   &mz_pressure_source_psi_system,
        &mz_pressure_source_group_events, &mz_pressure_source_group_limit, &mz_pressure_source_meminfo};
    struct tree t;

    (void)unused;
    tree_begin(&t);
    tree_write(&t, "/proc/self/mountinfo", TREE_CGROUP2);
    tree_write(&t, "/sys/fs/cgroup/app/cgroup.type", "domain\n");
    tree_write(&t, "/sys/fs/cgroup/app/memory.events", "high 0\nmax 0\noom_kill 0\n");
    tree_psi(&t, "/sys/fs/cgroup/app/memory.pressure", 1, 1);
    tree_psi(&t, "/proc/pressure/memory", 1, 1);
    tree_write(&t, "/proc/self/cgroup", "0::/app\n");
    tree_meminfo(&t, 16384, 8000);
    tree_write(&t, "/watch", "");
    protocol(tree_path(&t, "/watch"), "aGVsbG8=");
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        for (uint64_t nth = 1;; nth++) {
            struct mz_pressure_source s;
            struct mz_policy_sample at = sample_at(1000 * nth);
            uint64_t hits;

            mz_fault_plan(MZ_FAULT_ANY, nth, nth % 2 ? EIO : MZ_FAULT_SHORT, false);
            mz_pressure_source_open(&s, all[i]);
            if (s.live && s.ops->read != NULL)
                (void)s.ops->read(&s, &at);
            hits = mz_fault_hits();
            mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
            assert_true(s.live || s.detail[0] != '\0');
            mz_pressure_source_close(&s, 0);
            if (hits == 0)
                break;
        }
    }
    protocol_end();
    tree_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_psi_text),        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_psi_counters),    cmocka_unit_test(test_psi_events),
        cmocka_unit_test(test_group_events),    cmocka_unit_test(test_psi_of_the_root_group_is_the_machine),
        cmocka_unit_test(test_group_level),     cmocka_unit_test(test_meminfo),
        cmocka_unit_test(test_systemd_refusals), cmocka_unit_test(test_systemd_file),
        cmocka_unit_test(test_systemd_fifo),    cmocka_unit_test(test_systemd_socket),
        cmocka_unit_test(test_failing_calls),
    };

    protocol_end();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
