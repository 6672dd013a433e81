/* The commands against a living process with a model on the fake engine. */
#include "cli_test.h"

#include <signal.h>

static char folder[64];
static struct fake fake;

static int setup(void **state)
{
    (void)state;
    live_in_folder(folder, sizeof(folder));
    fake_start(&fake, "model");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_end(&fake);
    remove_folder(folder);
    return 0;
}

static void ps(void **state)
{
    (void)state;
    mzcache("ps");
    expect_exit(0);
    assert_non_null(strstr(last.out, fake.pid_text));
    mzcache("ps", "--json");
    expect_exit(0);
    json_t *row = output_json();
    assert_int_equal(number(row, "pid"), fake.pid);
    assert_true(number(row, "total_bytes") > 0);
    assert_true(json_is_null(json_object_get(row, "idle_ms"))); /* never used */
    json_decref(row);
    fake_use(&fake);
    mzcache("ps", "--json");
    row = output_json();
    assert_true(json_is_integer(json_object_get(row, "idle_ms")));
    json_decref(row);
}

static void ps_hides_those_without_a_model(void **state)
{
    struct fake router;

    (void)state;
    fake_start(&router, "empty");
    mzcache("ps");
    expect_exit(0);
    assert_null(strstr(last.out, router.pid_text));
    mzcache("ps", "--all");
    expect_exit(0);
    assert_non_null(strstr(last.out, router.pid_text));
    mzcache("status", "--json"); /* of the other one alone */
    expect_exit(0);
    json_decref(output_json());
    fake_end(&router);
}

static void status(void **state)
{
    (void)state;
    mzcache("status");
    expect_exit(0);
    assert_non_null(strstr(last.out, "weights"));
    assert_non_null(strstr(last.out, "memory pressure"));
    assert_non_null(strstr(last.out, "options, where not the default: swap-folder="));
    mzcache("status", "--pid", fake.pid_text, "--json");
    expect_exit(0);
    json_t *s = output_json();
    assert_non_null(json_object_get(json_object_get(s, "kinds"), "kv"));
    assert_string_equal(json_string_value(json_object_get(json_object_get(s, "options"), "kv")), "exact");
    assert_null(json_object_get(s, "ok"));
    json_decref(s);
}

static double remaining_percent(void)
{
    mzcache("ps", "--json");
    json_t *row = output_json();
    double percent = json_number_value(json_object_get(row, "remaining_percent"));

    json_decref(row);
    return percent;
}

static void evict_and_restore(void **state)
{
    (void)state;
    mzcache("evict", "1M", "--json");
    expect_exit(0);
    json_t *report = output_json();
    assert_true(number(report, "freed_bytes") >= UINT64_C(1) << 20);
    json_decref(report);
    mzcache("evict", "--to", "50%");
    expect_exit(0);
    assert_non_null(strstr(last.out, "freed"));
    assert_true(remaining_percent() <= 50);
    mzcache("evict", "100%", "--json");
    expect_exit(0);
    report = output_json();
    assert_int_equal(number(report, "asked_bytes"), number(report, "total_bytes"));
    json_decref(report);
    assert_true(remaining_percent() < 25);
    mzcache("restore", "--wait", "--json");
    expect_exit(0);
    assert_true(remaining_percent() > 99.9);
    fake_use(&fake); /* with the right bytes */
    mzcache("restore");
    expect_exit(0);
    assert_string_equal(last.out, "");
    mzcache("restore", "--stop");
    expect_exit(0);
}

static void limit(void **state)
{
    (void)state;
    mzcache("limit", "4K");
    expect_exit(4);
    assert_non_null(strstr(last.err, "at least: ")); /* names the floor */
    mzcache("limit", "1G", "--json");
    expect_exit(0);
    json_t *reply = output_json();
    assert_int_equal(number(reply, "limit_bytes"), UINT64_C(1) << 30);
    json_decref(reply);
    mzcache("limit", "off");
    expect_exit(0);
    assert_non_null(strstr(last.out, "off"));
}

static void option(void **state)
{
    (void)state;
    mzcache("option");
    expect_exit(0);
    assert_non_null(strstr(last.out, "swap-folder"));
    mzcache("option", "hold", "3s");
    expect_exit(0);
    mzcache("option", "hold");
    expect_exit(0);
    assert_string_equal(last.out, "3s\n");
    mzcache("option", "hold", "never");
    expect_exit(2);
    assert_string_equal(last.err, "mzcache: hold: \"never\" is not TIME (see mzcache option --help)\n");
    mzcache("option", "workers", "4");
    expect_exit(1);
    assert_non_null(strstr(last.err, "start"));
    mzcache("option", "control", "off");
    expect_exit(1);
    assert_non_null(strstr(last.err, "start"));
}

static void several(void **state)
{
    struct fake other;

    (void)state;
    fake_start(&other, "model");
    mzcache("limit", "1G");
    expect_exit(2); /* which one? */
    mzcache("limit", "1G", "--all");
    expect_exit(0);
    mzcache("limit", "off", "--all");
    expect_exit(0);
    /* A size comes from the one idle longest: the other one was never used. */
    fake_use(&fake);
    mzcache("evict", "1M", "--json");
    expect_exit(0);
    json_t *report = output_json();
    assert_int_equal(number(report, "pid"), other.pid);
    json_decref(report);
    fake_use(&other);
    mzcache("evict", "--to", "90%", "--pid", fake.pid_text, "--json");
    expect_exit(0);
    report = output_json();
    assert_int_equal(number(report, "pid"), fake.pid);
    json_decref(report);
    fake_end(&other);
}

/* How many lines of the output name the process. */
static int lines_of(const struct fake *f)
{
    char wanted[48];
    int n = 0;

    (void)snprintf(wanted, sizeof(wanted), "\"pid\":%s,", f->pid_text);
    for (const char *at = last.out; (at = strstr(at, wanted)) != NULL; at++)
        n++;
    return n;
}

/* What is asked of all reaches all; a size goes on to the next process when the first has no more. */
static void all_of_several(void **state)
{
    struct fake other;

    (void)state;
    fake_start(&other, "model");
    mzcache("status", "--json");
    expect_exit(0);
    assert_int_equal(lines_of(&fake), 1);
    assert_int_equal(lines_of(&other), 1);
    mzcache("evict", "--to", "50%", "--json");
    expect_exit(0);
    assert_int_equal(lines_of(&fake), 1);
    assert_int_equal(lines_of(&other), 1);
    mzcache("evict", "1T", "--json");
    expect_exit(0);
    assert_int_equal(lines_of(&fake), 1);
    assert_int_equal(lines_of(&other), 1);
    mzcache("restore", "--wait", "--json");
    expect_exit(0);
    assert_int_equal(lines_of(&fake), 1);
    assert_int_equal(lines_of(&other), 1);
    mzcache("evict", "1M", "--pid", fake.pid_text);
    mzcache("evict", "1M", "--pid", other.pid_text);
    mzcache("evict", "1M", "--pid", fake.pid_text);
    mzcache("log", "--json"); /* of both, the oldest first */
    expect_exit(0);
    double before = 0;
    for (char *line = strtok(last.out, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *event = json_loads(line, 0, NULL);
        double time_s = json_number_value(json_object_get(event, "time_s"));
        assert_true(time_s > 0 && time_s >= before);
        before = time_s;
        json_decref(event);
    }
    mzcache("top", "--count", "1");
    expect_exit(0);
    assert_non_null(strstr(last.out, fake.pid_text));
    assert_non_null(strstr(last.out, other.pid_text));
    mzcache("option");
    expect_exit(2); /* which one? */
    mzcache("log", "--follow");
    expect_exit(2);
    mzcache("option", "hold", "4s", "--all");
    expect_exit(0);
    mzcache("option", "hold", "--pid", other.pid_text);
    expect_exit(0);
    assert_string_equal(last.out, "4s\n");
    fake_end(&other);
}

static void log_and_top(void **state)
{
    (void)state;
    mzcache("evict", "1M");
    expect_exit(0);
    mzcache("log");
    expect_exit(0);
    assert_non_null(strstr(last.out, fake.pid_text));
    assert_non_null(strstr(last.out, "  mzcache evict\n"));
    mzcache("log", "--json");
    expect_exit(0);
    for (char *line = strtok(last.out, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *event = json_loads(line, 0, NULL);
        assert_true(json_is_string(json_object_get(event, "what")));
        assert_int_equal(number(event, "pid"), fake.pid);
        json_decref(event);
    }
    mzcache("top", "--count", "1");
    expect_exit(0);
    assert_non_null(strstr(last.out, fake.pid_text));
    assert_non_null(strstr(last.out, "["));
    assert_non_null(strstr(last.out, "evict"));
}

static void to_follow_one_is_named(void **state)
{
    struct fake other;

    (void)state;
    fake_start(&other, "model");
    mzcache("log", "--follow");
    expect_exit(2);
    assert_non_null(strstr(last.err, "--pid"));
    assert_null(strstr(last.err, "--all")); /* log has no such option */
    mzcache("limit", "off");
    expect_exit(2);
    assert_non_null(strstr(last.err, "--all"));
    fake_end(&other);
}

static void follow_ends_with_the_process(void **state)
{
    struct fake other;
    int status;

    (void)state;
    fake_start(&other, "model");
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        (void)execl(MZ_COMMAND, "mzcache", "log", "--follow", "--pid", other.pid_text, (char *)NULL);
        _exit(99);
    }
    pause_ms(50);
    fake_end(&other);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    /* 0: it followed to the end; 3: it was so late that the process was gone already. */
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
}

static void the_killed_leave_no_trace(void **state)
{
    struct fake other;
    char path[128];

    (void)state;
    fake_start(&other, "model");
    (void)snprintf(path, sizeof(path), "%s/%s.sock", folder, other.pid_text);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(kill(other.pid, SIGKILL), 0);
    assert_int_equal(waitpid(other.pid, NULL, 0), other.pid);
    (void)close(other.to);
    (void)close(other.from);
    mzcache("ps");
    expect_exit(0);
    assert_null(strstr(last.out, other.pid_text));
    assert_int_equal(access(path, F_OK), -1);
    mzcache("evict", "1M", "--pid", other.pid_text);
    expect_exit(3);
}

static void exit_removes_the_socket(void **state)
{
    struct fake other;
    char path[128];

    (void)state;
    fake_start(&other, "model");
    (void)snprintf(path, sizeof(path), "%s/%s.sock", folder, other.pid_text);
    assert_int_equal(access(path, F_OK), 0);
    fake_end(&other);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ps, setup, teardown),
        cmocka_unit_test_setup_teardown(ps_hides_those_without_a_model, setup, teardown),
        cmocka_unit_test_setup_teardown(status, setup, teardown),
        cmocka_unit_test_setup_teardown(evict_and_restore, setup, teardown),
        cmocka_unit_test_setup_teardown(limit, setup, teardown),
        cmocka_unit_test_setup_teardown(option, setup, teardown),
        cmocka_unit_test_setup_teardown(several, setup, teardown),
        cmocka_unit_test_setup_teardown(all_of_several, setup, teardown),
        cmocka_unit_test_setup_teardown(log_and_top, setup, teardown),
        cmocka_unit_test_setup_teardown(to_follow_one_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(follow_ends_with_the_process, setup, teardown),
        cmocka_unit_test_setup_teardown(the_killed_leave_no_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(exit_removes_the_socket, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
