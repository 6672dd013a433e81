/* The control socket as a carrier of lines: an answerer that repeats what it hears stands in for the
 * protocol. Lines that begin with
 * '?' are long commands, which are answered when the test opens the door. */
#include "control_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "control/client.h"
#include "control/lanes.h"
#include "control/runtime.h"
#include "control/socket.h"

#define SHORT_MS 100   /* the limit under test */
#define LONG_MS  60000 /* limits that must not matter, however loaded the machine is */

static char folder[64];
static struct mz_lanes *lanes;
static struct mz_socket *server;
static pthread_mutex_t door_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t door_moved = PTHREAD_COND_INITIALIZER;
static bool door_open;
static atomic_int answered;

static char *line_of(const char *text, size_t bytes)
{
    char *line = malloc(bytes + 2);

    memcpy(line, text, bytes);
    memcpy(line + bytes, "\n", 2);
    return line;
}

static char *greet(void *user)
{
    (void)user;
    return line_of("{\"protocol\": 1}", 15);
}

static enum mz_lane lane_of(void *user, const char *line, size_t bytes)
{
    (void)user;
    return bytes && line[0] == '?' ? MZ_LANE_WAIT : MZ_LANE_VIEW;
}

static char *answer(void *user, const char *line, size_t bytes)
{
    (void)user;
    if (bytes && line[0] == '?') {
        (void)pthread_mutex_lock(&door_lock);
        while (!door_open)
            (void)pthread_cond_wait(&door_moved, &door_lock);
        (void)pthread_mutex_unlock(&door_lock);
    }
    atomic_fetch_add(&answered, 1);
    if (bytes && line[0] == '!') { /* a reply as large as they may be */
        char *large = malloc(MZ_LINE_BYTES + 1);
        memset(large, 'x', MZ_LINE_BYTES);
        memcpy(large + MZ_LINE_BYTES - 1, "\n", 2);
        return large;
    }
    return line_of(line, bytes);
}

static char *refuse(void *user, int err)
{
    (void)user;
    return line_of(err == -EMSGSIZE ? "too long" : "busy", err == -EMSGSIZE ? 8 : 4);
}

static void move_door(bool open)
{
    (void)pthread_mutex_lock(&door_lock);
    door_open = open;
    (void)pthread_cond_broadcast(&door_moved);
    (void)pthread_mutex_unlock(&door_lock);
}

static int start(uint32_t idle_ms, uint32_t slow_ms)
{
    struct mz_socket_config config = {
        .host = {.greeting = greet, .lane = lane_of, .answer = answer, .refusal = refuse},
        .idle_ms = idle_ms,
        .slow_ms = slow_ms,
    };

    make_folder(folder, sizeof(folder));
    (void)setenv("MZ_RUNTIME_DIR", folder, 1);
    move_door(false);
    assert_int_equal(mz_lanes_create(&lanes), 0);
    config.lanes = lanes;
    config.folder_fd = mz_runtime_make(folder);
    assert_true(config.folder_fd >= 0);
    assert_int_equal(mz_socket_start(&config, &server), 0);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return start(LONG_MS, LONG_MS);
}

static int setup_idle(void **state)
{
    (void)state;
    return start(SHORT_MS, LONG_MS);
}

static int setup_slow(void **state)
{
    (void)state;
    return start(LONG_MS, SHORT_MS);
}

static int teardown(void **state)
{
    (void)state;
    move_door(true);
    mz_socket_stop(server);
    mz_lanes_destroy(lanes);
    remove_folder(folder);
    return 0;
}

/* ------------------------------------------------------------------------------------------------- a plain
 * client */

static int connect_raw(void)
{
    int dir = mz_runtime_open(folder, geteuid());
    int fd = mz_runtime_connect(dir, getpid());

    (void)close(dir);
    assert_true(fd >= 0);
    return fd;
}

/* Reads up to the newline; returns the length without it, -1 when the other end closed. */
static ssize_t read_line(int fd, char *buf, size_t size)
{
    size_t n = 0;

    while (n < size) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_true(poll(&p, 1, PATIENCE_MS) == 1);
        ssize_t got = read(fd, buf + n, 1);
        if (got <= 0)
            return -1;
        if (buf[n] == '\n') {
            buf[n] = '\0';
            return (ssize_t)n;
        }
        n++;
    }
    return (ssize_t)n;
}

static void send_text(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void expect(int fd, const char *text)
{
    char buf[256];

    assert_true(read_line(fd, buf, sizeof(buf)) >= 0);
    assert_string_equal(buf, text);
}

static void expect_end(int fd)
{
    char byte[4096];

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_true(poll(&p, 1, PATIENCE_MS) == 1);
        if (read(fd, byte, sizeof(byte)) <= 0)
            return;
    }
}

static int connect_greeted(void)
{
    int fd = connect_raw();

    expect(fd, "{\"protocol\": 1}");
    return fd;
}

/* ------------------------------------------------------------------------------------------------- tests */

static void answers_in_order(void **state)
{
    int fd = connect_greeted();

    (void)state;
    send_text(fd, "one\ntwo\n\nthree\nfo"); /* several at once, an empty one, half of one */
    expect(fd, "one");
    expect(fd, "two");
    expect(fd, "");
    expect(fd, "three");
    send_text(fd, "u");
    send_text(fd, "r\n");
    expect(fd, "four");
    (void)close(fd);
}

static void half_a_line_and_gone(void **state)
{
    int before = open_fds();

    (void)state;
    for (int i = 0; i < 100; i++) {
        int fd = connect_greeted();
        send_text(fd, "half");
        (void)close(fd);
    }
    eventually(open_fds() == before);
    int fd = connect_greeted();
    send_text(fd, "alive\n");
    expect(fd, "alive");
    (void)close(fd);
}

static void closing_one_way_still_gets_its_answer(void **state)
{
    int fd = connect_greeted();

    (void)state;
    send_text(fd, "last\n");
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    expect(fd, "last");
    expect_end(fd);
    (void)close(fd);
}

static void oversize(void **state)
{
    static char line[MZ_LINE_BYTES + 1];
    int fd = connect_greeted();

    (void)state;
    memset(line, 'a', sizeof(line));
    line[MZ_LINE_BYTES - 1] = '\n'; /* the longest allowed */
    assert_int_equal(send(fd, line, MZ_LINE_BYTES, MSG_NOSIGNAL), MZ_LINE_BYTES);
    static char back[MZ_LINE_BYTES];
    assert_int_equal(read_line(fd, back, sizeof(back)), MZ_LINE_BYTES - 1);
    line[MZ_LINE_BYTES - 1] = 'a';
    assert_int_equal(send(fd, line, MZ_LINE_BYTES, MSG_NOSIGNAL), MZ_LINE_BYTES);
    expect(fd, "too long");
    expect_end(fd);
    (void)close(fd);
}

static void long_commands_keep_nobody_waiting(void **state)
{
    int slow = connect_greeted(), quick = connect_greeted();

    (void)state;
    send_text(slow, "?wait\n");
    for (int i = 0; i < 50; i++) {
        send_text(quick, "quick\n");
        expect(quick, "quick");
    }
    move_door(true);
    expect(slow, "?wait");
    (void)close(slow);
    (void)close(quick);
}

static void gone_before_the_answer(void **state)
{
    int before = open_fds(), done = atomic_load(&answered);
    int fd = connect_greeted();

    (void)state;
    send_text(fd, "?wait\n");
    (void)close(fd);
    eventually(open_fds() == before);
    int other = connect_greeted(); /* may get the same slot: must not get that answer */
    move_door(true);
    eventually(atomic_load(&answered) == done + 1);
    send_text(other, "mine\n");
    expect(other, "mine");
    (void)close(other);
}

static void slow_readers_are_dropped(void **state)
{
    int fd = connect_greeted(), before = open_fds();

    (void)state;
    /* Asks for large replies and reads none: at some point neither side can send any more. */
    for (int i = 0; i < 10000; i++)
        if (send(fd, "!\n", 2, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
    eventually(open_fds() == before - 1);
    int other = connect_greeted();
    send_text(other, "alive\n");
    expect(other, "alive");
    (void)close(other);
    (void)close(fd);
}

/* All connected before the first one asks: more than the table holds, so the others wait in the queue. */
static void a_thousand_clients(void **state)
{
    enum { CLIENTS = 1000 };
    static int fds[CLIENTS];
    struct rlimit limit, old;
    char text[32];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    limit = old;
    if (limit.rlim_cur < 2 * CLIENTS)
        limit.rlim_cur = limit.rlim_max < 2 * CLIENTS ? limit.rlim_max : 2 * CLIENTS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int clients = limit.rlim_cur >= 2 * CLIENTS ? CLIENTS : (int)limit.rlim_cur / 2 - 50;
    int before = open_fds();
    for (int i = 0; i < clients; i++) {
        fds[i] = connect_raw();
        (void)snprintf(text, sizeof(text), "client %d\n", i);
        send_text(fds[i], text);
    }
    assert_true(open_fds() <= before + clients + MZ_SOCKET_CLIENTS);
    for (int i = 0; i < clients; i++) {
        expect(fds[i], "{\"protocol\": 1}");
        (void)snprintf(text, sizeof(text), "client %d", i);
        expect(fds[i], text);
        (void)close(fds[i]);
    }
    eventually(open_fds() == before);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

/* As many idle connections as the table holds do not keep others out for ever. */
static void idle_ones_make_room(void **state)
{
    int fds[MZ_SOCKET_CLIENTS];

    (void)state;
    for (int i = 0; i < MZ_SOCKET_CLIENTS; i++)
        fds[i] = connect_greeted();
    int fd = connect_greeted();
    send_text(fd, "in\n");
    expect(fd, "in");
    (void)close(fd);
    for (int i = 0; i < MZ_SOCKET_CLIENTS; i++)
        (void)close(fds[i]);
}

/* As another user, by path: what connect() or read() give. 0: the connection was closed without a word. */
static int try_as_another_user(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char byte;

    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    if (setgid(65534) < 0 || setuid(65534) < 0)
        return 3;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
        return errno == EACCES ? 4 : 5;
    ssize_t n = read(fd, &byte, 1);
    return n == 0 || (n < 0 && errno == ECONNRESET) ? 0 : 6;
}

static int run_as_another_user(const char *path)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(try_as_another_user(path));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void other_users_are_closed(void **state)
{
    char path[128];

    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    (void)snprintf(path, sizeof(path), "%s/%ld.sock", folder, (long)getpid());
    assert_int_equal(run_as_another_user(path), 4); /* not even through the folder */
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chmod(path, 0777), 0);
    assert_int_equal(run_as_another_user(path), 0);
    assert_int_equal(chmod(folder, 0700), 0);
    int fd = connect_greeted();
    send_text(fd, "ours\n");
    expect(fd, "ours");
    (void)close(fd);
}

static void children_do_not_hold_it(void **state)
{
    int fd = connect_greeted(), status;

    (void)state;
    mz_socket_fork_prepare(server);
    pid_t pid = fork();
    if (pid == 0) {
        mz_socket_fork_child(server);
        /* What is left: standard channels and our own end of the connection. */
        int left = open_fds();
        _exit(left > 60 ? 60 : left);
    }
    int expected = open_fds();
    mz_socket_fork_parent(server);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    /* Listening socket, wake-up descriptor, folder and the accepted connection were closed in the child. */
    assert_int_equal(WEXITSTATUS(status), expected - 4);
    send_text(fd, "alive\n");
    expect(fd, "alive");
    (void)close(fd);
}

static void stop_with_an_answer_under_way(void **state)
{
    int fd = connect_greeted();

    (void)state;
    send_text(fd, "?wait\n");
    (void)close(fd); /* teardown opens the door and stops */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(half_a_line_and_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(closing_one_way_still_gets_its_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(oversize, setup, teardown),
        cmocka_unit_test_setup_teardown(long_commands_keep_nobody_waiting, setup, teardown),
        cmocka_unit_test_setup_teardown(gone_before_the_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(slow_readers_are_dropped, setup_slow, teardown),
        cmocka_unit_test_setup_teardown(a_thousand_clients, setup, teardown),
        cmocka_unit_test_setup_teardown(idle_ones_make_room, setup_idle, teardown),
        cmocka_unit_test_setup_teardown(other_users_are_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(children_do_not_hold_it, setup, teardown),
        cmocka_unit_test_setup_teardown(stop_with_an_answer_under_way, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
