/* Planned failures: the n-th call of a kind, once or for good, from the environment and by call; the counts
 * are exact whatever the number of threads. */
#include "os_test.h"

#include <pthread.h>
#include <sys/wait.h>

#include "os/fault.h"
#include "os/log.h"

/* Set before the first call, in main(): the environment is read once. */
static void test_environment(void **state)
{
    (void)state;
    assert_int_equal(mz_fault_hit(MZ_FAULT_READ), 0);
    assert_int_equal(mz_fault_hit(MZ_FAULT_WRITE), 0);
    assert_int_equal(mz_fault_hit(MZ_FAULT_WRITE), -ENOSPC);
    assert_int_equal(mz_fault_hit(MZ_FAULT_WRITE), -ENOSPC);
    assert_int_equal(mz_fault_count(), 3);
    assert_int_equal(mz_fault_hits(), 2);
    assert_int_equal(mz_fault_read_ms(), 7);
    mz_fault_slow_reads(0);
    assert_int_equal(mz_fault_read_ms(), 0);
}

static void test_once(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_READ, 2, EIO, false);
    assert_int_equal(mz_fault_hit(MZ_FAULT_READ), 0);
    assert_int_equal(mz_fault_hit(MZ_FAULT_MMAP), 0);
    assert_int_equal(mz_fault_hit(MZ_FAULT_READ), -EIO);
    assert_int_equal(mz_fault_hit(MZ_FAULT_READ), 0);
    assert_int_equal(mz_fault_count(), 3);
    assert_int_equal(mz_fault_hits(), 1);
}

static void test_any_kind(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_ANY, 2, ENOMEM, false);
    assert_int_equal(mz_fault_hit(MZ_FAULT_READ), 0);
    assert_int_equal(mz_fault_hit(MZ_FAULT_THREAD), -ENOMEM);
    assert_int_equal(mz_fault_hits(), 1);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(mz_fault_hit(MZ_FAULT_READ), 0);
    assert_int_equal(mz_fault_count(), 0);
    assert_int_equal(mz_fault_hits(), 0);
}

static void test_short_is_for_transfers(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_ANY, 1, MZ_FAULT_SHORT, true);
    assert_int_equal(mz_fault_hit(MZ_FAULT_READ), -MZ_FAULT_SHORT);
    assert_int_equal(mz_fault_hit(MZ_FAULT_WRITE), -MZ_FAULT_SHORT);
    assert_int_equal(mz_fault_hit(MZ_FAULT_MMAP), -EIO);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
}

static void test_allocations(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_ALLOC, 1, ENOMEM, true);
    assert_null(mz_alloc(8));
    assert_null(mz_calloc(1, 8));
    assert_null(mz_realloc(NULL, 8));
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    char *p = mz_calloc(4, 4);
    assert_non_null(p);
    assert_int_equal(p[15], 0);
    p = mz_realloc(p, 64);
    assert_non_null(p);
    free(p);
}

static void *hit_often(void *failed)
{
    for (int i = 0; i < 1000; i++)
        if (mz_fault_hit(MZ_FAULT_STAT))
            __atomic_fetch_add((int *)failed, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    int failed = 0;
    mz_fault_plan(MZ_FAULT_STAT, 2345, EIO, false);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hit_often, &failed), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(mz_fault_count(), 4000);
    assert_int_equal(mz_fault_hits(), 1);
    assert_int_equal(failed, 1);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
}

static void warned(enum mz_log_level level, const char *text, void *user)
{
    if (level == MZ_LOG_WARN && strstr(text, "MZ_FAULT"))
        ++*(int *)user;
}

/* Runs before anything reads the environment here, in a child for each text. */
static int environment_says(const char *text, enum mz_fault_kind kind)
{
    pid_t child = fork();
    if (child == 0) {
        int warnings = 0;
        mz_log_sink(warned, &warnings);
        setenv("MZ_FAULT", text, 1);
        int r = mz_fault_hit(kind);
        _exit(warnings ? 200 : -r & 0x7f);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_environment_texts(void **state)
{
    (void)state;
    assert_int_equal(environment_says("mmap:1", MZ_FAULT_MMAP), ENOMEM);
    assert_int_equal(environment_says("thread:1", MZ_FAULT_THREAD), EAGAIN);
    assert_int_equal(environment_says("uring:1", MZ_FAULT_URING), ENOSYS);
    assert_int_equal(environment_says("open:1:13", MZ_FAULT_OPEN), EACCES);
    assert_int_equal(environment_says("any:1:EROFS:sticky", MZ_FAULT_STAT), EROFS);
    assert_int_equal(environment_says("", MZ_FAULT_STAT), 0);
    static const char *const wrong[] = {"x",
                                        "read",
                                        "read:0",
                                        "read:x",
                                        "read:1:EWHAT",
                                        "read:1:EIO:often",
                                        ":",
                                        "read:1:EIO:sticky:more",
                                        "read:1:-5"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(environment_says(wrong[i], MZ_FAULT_READ), 200);
}

int main(void)
{
    setenv("MZ_FAULT", "write:2:ENOSPC:sticky", 1);
    setenv("MZ_FAULT_READ_MS", "7", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment_texts),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_any_kind),
        cmocka_unit_test(test_short_is_for_transfers),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
