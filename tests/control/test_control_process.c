/* The process's one core: started once however many ask, known by name, off in forked children, gone without
 * a trace. */
#include "control_test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "control/api.h"
#include "control/client.h"
#include "control/process.h"
#include "fake_engine.h"
#include "mzcache.h"
#include "os/log.h"
#include "small_model.h"

static char folder[64];
static struct small_model model;

static void *start(void *arg)
{
    struct mz_core **core = arg;

    return mz_process_start(fake_engine(), core) == 0 ? arg : NULL;
}

static int setup(void **state)
{
    (void)state;
    live_in_folder(folder, sizeof(folder));
    (void)setenv("MZ_HOLD", "7s", 1);
    (void)setenv("MZ_STEP", "nonsense", 1); /* said, and left as it was */
    (void)setenv("MZ_LIMIT", "90%", 1);     /* of what will be loaded */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static void before_the_start(void **state)
{
    struct mz_state status;
    char *text, value[8];

    (void)state;
    assert_string_equal(mz_version(), MZ_VERSION);
    assert_null(mz_process_core());
    assert_int_equal(mz_evict(1, NULL), -ENODEV);
    assert_int_equal(mz_evict_to(0, NULL), -ENODEV);
    assert_int_equal(mz_restore(true), -ENODEV);
    assert_int_equal(mz_restore_cancel(), -ENODEV);
    assert_int_equal(mz_limit(0, NULL), -ENODEV);
    assert_int_equal(mz_status(&status), -ENODEV);
    assert_int_equal(mz_trim(40), -ENODEV);
    assert_int_equal(mz_option_set("kv", "q8"), -ENODEV);
    assert_int_equal(mz_option_get("kv", value, sizeof(value)), -ENODEV);
    assert_int_equal(mz_dump(&text), -ENODEV);
}

static void started_once(void **state)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    struct mz_core *cores[THREADS];
    void *done;

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, start, &cores[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_non_null(done);
        assert_ptr_equal(cores[i], cores[0]);
    }
    assert_ptr_equal(mz_process_core(), cores[0]);
    assert_non_null(mz_process_watch());
    assert_false(mz_process_forked());
    assert_int_equal(small_model_make(&model, cores[0]), 0);
}

static void by_name(void **state)
{
    static const char *const names[] = {"mz_version", "mz_evict",      "mz_evict_to",      "mz_restore",
                                        "mz_limit",   "mz_status",     "mz_trim",          "mz_option_set",
                                        "mz_dump",    "mz_option_get", "mz_restore_cancel"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        assert_non_null(mz_api_find(names[i]));
    assert_null(mz_api_find("mz_nothing"));
    mz_version_fn version = (mz_version_fn)(uintptr_t)mz_api_find("mz_version");
    assert_string_equal(version(), MZ_VERSION);
}

static void api(void **state)
{
    struct mz_report report = {.reserved = {1}};
    struct mz_state now;
    char value[64], *text;
    uint64_t floor = 0;

    (void)state;
    assert_int_equal(mz_status(&now), 0);
    uint64_t total = now.total_bytes;
    assert_int_equal(total, SMALL_LAYERS * (SMALL_WEIGHT_BYTES + SMALL_CACHE_BYTES));
    assert_int_equal(mz_evict(UINT64_C(1) << 20, &report), 0);
    assert_true(report.freed_bytes >= UINT64_C(1) << 20);
    assert_int_equal(report.reserved[0], 0);
    assert_int_equal(mz_evict_to(10001, NULL), -EINVAL);
    assert_int_equal(mz_evict_to(0, &report), 0);
    assert_int_equal(report.total_bytes, total);
    assert_int_equal(mz_status(&now), 0);
    assert_int_equal(now.remaining_bytes, report.remaining_bytes);
    assert_int_equal(now.weights.total_bytes + now.kv.total_bytes + now.other.total_bytes, total);
    assert_int_equal(mz_limit(4096, &floor), -ERANGE);
    assert_true(floor > 4096);
    assert_int_equal(mz_restore(true), 0);
    assert_int_equal(mz_status(&now), 0);
    assert_int_equal(now.remaining_bytes, total);
    assert_int_equal(small_model_use(&model), 0);
    assert_int_equal(mz_status(&now), 0);
    assert_int_not_equal(now.idle_ms, UINT64_MAX);
    assert_int_equal(mz_option_get("hold", value, sizeof(value)), 0);
    assert_string_equal(value, "7s");
    assert_int_equal(mz_option_get("step", value, sizeof(value)), 0);
    assert_string_equal(value, "own");
    assert_int_equal(mz_option_get("hold", value, 2), -ENOSPC);
    assert_int_equal(mz_option_get("nothing", value, sizeof(value)), -ENOENT);
    assert_int_equal(mz_option_set("runtime-dir", "/"), -EBUSY);
    assert_int_equal(mz_option_set(NULL, "x"), -EINVAL);
    assert_int_equal(mz_trim(20), 0);
    assert_int_equal(mz_trim(41), -EINVAL);
    assert_int_equal(mz_dump(&text), 0);
    assert_non_null(strstr(text, "\"kinds\""));
    free(text);
}

static atomic_bool limit_tried;

static void see_message(enum mz_log_level level, const char *text, void *user)
{
    (void)level;
    (void)user;
    if (strstr(text, "limit 90% was not set")) /* this model is smaller than any floor */
        atomic_store(&limit_tried, true);
}

/* A share of what is loaded counts once a graph ran, and not before, whatever else was asked for. */
static void a_limit_in_percent_waits(void **state)
{
    struct mz_state now;

    (void)state;
    mz_log_sink(see_message, NULL);
    assert_int_equal(mz_status(&now), 0);
    assert_int_equal(now.idle_ms, UINT64_MAX); /* never used */
    assert_int_equal(mz_restore(true), 0);
    assert_int_equal(mz_status(&now), 0);
    assert_int_not_equal(now.idle_ms, UINT64_MAX);
    assert_false(atomic_load(&limit_tried));
    assert_int_equal(small_model_use(&model), 0);
    eventually(atomic_load(&limit_tried));
    mz_log_sink(NULL, NULL);
}

static void over_the_socket(void **state)
{
    struct mz_client *client;
    json_t *reply, *request = json_pack("{s:s, s:i}", "cmd", "evict", "percent", 50);

    (void)state;
    assert_int_equal(mz_client_open(getpid(), PATIENCE_MS, &client), 0);
    assert_int_equal(mz_client_ask(client, request, PATIENCE_MS, &reply), 0);
    assert_true(json_is_true(json_object_get(reply, "ok")));
    json_decref(reply);
    json_decref(request);
    mz_client_close(client);
    assert_int_equal(small_model_use(&model), 0);
}

/* Whether a descriptor of this process is of a file in our folder, which has no name any more. */
static bool holds_a_file(void)
{
    DIR *dir = opendir("/proc/self/fd");
    char path[4096];
    bool held = false;

    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, path, sizeof(path) - 1);
        path[n > 0 ? n : 0] = '\0';
        held = held || (strncmp(path, folder, strlen(folder)) == 0 && path[strlen(folder)] == '/');
    }
    if (dir)
        (void)closedir(dir);
    return held;
}

/* What a child does, as its exit status: 0 is right. */
static int in_the_child(void)
{
    struct mz_core *core;
    struct mz_state now;

    if (mz_process_core() || mz_process_watch() || !mz_process_forked())
        return 1;
    if (mz_process_start(fake_engine(), &core) != -ECHILD || mz_status(&now) != -ECHILD ||
        mz_evict(1, NULL) != -ECHILD)
        return 2;
    if (holds_a_file())
        return 3; /* the swap file's blocks would stay with us */
    return mz_restore(true) == -ECHILD ? 0 : 4;
}

/* Runs what was registered for exiting, too. Not where leaks are looked for at exit: in the child, what only
 * the parent's threads point to looks like one. */
static _Noreturn void end_child(int status)
{
#if defined(__SANITIZE_ADDRESS__)
    _exit(status);
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    _exit(status);
#endif
#endif
    exit(status);
}

static void off_in_children(void **state)
{
    int status;
    char path[128];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/%ld.sock", folder, (long)getpid());
    assert_int_equal(mz_evict_to(0, NULL), 0); /* what was written is in the swap file */
    assert_true(holds_a_file());
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0)
            end_child(in_the_child());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(access(path, F_OK), 0);
        struct mz_client *client;
        assert_int_equal(mz_client_open(getpid(), PATIENCE_MS, &client), 0);
        mz_client_close(client);
    }
}

static atomic_bool in_sink;

static void slow_sink(enum mz_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
    atomic_store(&in_sink, true);
    pause_ms(100);
}

static void *log_something(void *arg)
{
    mz_log(MZ_LOG_ERROR, "parent");
    return arg;
}

static void children_can_log(void **state)
{
    pthread_t thread;
    int status;

    (void)state;
    mz_log_sink(slow_sink, NULL);
    assert_int_equal(pthread_create(&thread, NULL, log_something, NULL), 0);
    while (!atomic_load(&in_sink))
        pause_ms(1);
    pid_t pid = fork(); /* in the middle of a message */
    if (pid == 0) {
        (void)alarm(20);
        mz_log_sink(NULL, NULL);
        end_child(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(pthread_join(thread, NULL), 0);
    mz_log_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_the_start), cmocka_unit_test(started_once),
        cmocka_unit_test(by_name),          cmocka_unit_test(a_limit_in_percent_waits),
        cmocka_unit_test(api),
        cmocka_unit_test(over_the_socket),  cmocka_unit_test(off_in_children),
        cmocka_unit_test(children_can_log),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
