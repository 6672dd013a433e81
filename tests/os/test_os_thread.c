/* Threads: named, deaf to the host's signals, refused by plan; a condition that times out and one that is
 * woken. */
#include "os_test.h"

#include <signal.h>

#include "os/fault.h"
#include "os/os.h"
#include "os/thread.h"

struct seen {
    sigset_t mask;
    char name[16];
};

static void *look(void *arg)
{
    struct seen *seen = arg;
    pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
    pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    mz_os_thread_yields(10, true);
    return seen;
}

static void test_start(void **state)
{
    (void)state;
    pthread_t thread;
    struct seen seen;
    sigset_t before, after;
    void *ret;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(mz_thread_start(&thread, "mz-a-rather-long-name", look, &seen), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(pthread_join(thread, &ret), 0);
    assert_ptr_equal(ret, &seen);
    assert_string_equal(seen.name, "mz-a-rather-lon");
    static const int blocked[] = {SIGINT,  SIGTERM, SIGHUP,  SIGUSR1, SIGUSR2,
                                  SIGCHLD, SIGALRM, SIGPIPE, SIGWINCH};
    for (size_t i = 0; i < sizeof blocked / sizeof blocked[0]; i++) {
        assert_int_equal(sigismember(&seen.mask, blocked[i]), 1);
        assert_int_equal(sigismember(&after, blocked[i]), sigismember(&before, blocked[i]));
    }
    assert_int_equal(sigismember(&seen.mask, SIGSEGV), 0);
}

static void test_refused(void **state)
{
    (void)state;
    pthread_t thread;
    struct seen seen;
    mz_fault_plan(MZ_FAULT_THREAD, 1, EAGAIN, false);
    assert_int_equal(mz_thread_start(&thread, "x", look, &seen), -EAGAIN);
    mz_fault_plan(MZ_FAULT_ALLOC, 1, ENOMEM, false);
    assert_int_equal(mz_thread_start(&thread, "x", look, &seen), -ENOMEM);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
}

struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool there; /* lock */
};

static void *come(void *arg)
{
    struct meeting *m = arg;
    pthread_mutex_lock(&m->lock);
    m->there = true;
    pthread_cond_signal(&m->cond);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static void test_condition(void **state)
{
    (void)state;
    struct meeting m = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    assert_int_equal(mz_cond_init(&m.cond), 0);
    pthread_mutex_lock(&m.lock);
    uint64_t begin = mz_os_now_ns();
    while (mz_cond_wait_ms(&m.cond, &m.lock, 20) == 0) /* woken for nothing is allowed */
        ;
    assert_true(mz_os_now_ns() - begin >= 20000000);
    assert_int_equal(mz_thread_start(&thread, "mz-comes", come, &m), 0);
    while (!m.there)
        assert_int_equal(mz_cond_wait_ms(&m.cond, &m.lock, 60000), 0);
    pthread_mutex_unlock(&m.lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&m.cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_condition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
