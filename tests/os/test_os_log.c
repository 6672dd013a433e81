/* Messages: level, one line whatever is in them, said once however many threads come by, errno left alone. */
#include "os_test.h"

#include <pthread.h>

#include "os/log.h"

struct heard {
    int count;
    enum mz_log_level level;
    char text[1200];
};

static void hear(enum mz_log_level level, const char *text, void *user)
{
    struct heard *heard = user;
    heard->count++;
    heard->level = level;
    snprintf(heard->text, sizeof heard->text, "%s", text);
}

static struct heard heard;

static int listen_anew(void **state)
{
    (void)state;
    memset(&heard, 0, sizeof heard);
    mz_log_sink(hear, &heard);
    return 0;
}

static int stop_listening(void **state)
{
    (void)state;
    mz_log_sink(NULL, NULL);
    return 0;
}

static void test_level(void **state)
{
    (void)state;
    mz_log(MZ_LOG_INFO, "shown %d", 1);
    mz_log(MZ_LOG_DEBUG, "not shown");
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.level, MZ_LOG_INFO);
    assert_string_equal(heard.text, "shown 1");
}

static void test_one_line(void **state)
{
    (void)state;
    mz_log(MZ_LOG_WARN, "file %s", "a\nb\x1b[31m\x7f");
    assert_string_equal(heard.text, "file a?b?[31m?");
}

static void test_long_text_is_cut(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    mz_log(MZ_LOG_WARN, "%s", text);
    assert_int_equal(strlen(heard.text), 1023);
}

static void test_errno_is_kept(void **state)
{
    (void)state;
    errno = ENOSPC;
    mz_log(MZ_LOG_ERROR, "x");
    assert_int_equal(errno, ENOSPC);
}

static void test_errno_text(void **state)
{
    (void)state;
    assert_string_equal(mz_log_errno(ENOSPC), "No space left on device");
    assert_string_equal(mz_log_errno(-ENOSPC), "No space left on device");
    assert_non_null(mz_log_errno(99999));
}

static void *say_once(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100; i++)
        mz_log_once(MZ_LOG_INFO, "only once");
    return NULL;
}

static void test_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, say_once, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(heard.count, 1);
}

static void test_standard_error(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    mz_log_sink(NULL, NULL);
    dup2(ends[1], STDERR_FILENO);
    mz_log(MZ_LOG_WARN, "to the user");
    dup2(saved, STDERR_FILENO);
    close(ends[1]);
    close(saved);
    char text[100] = "";
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_string_equal(text, "mzcache: to the user\n");
}

int main(void)
{
    unsetenv("MZ_LOG");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_level, listen_anew, stop_listening),
        cmocka_unit_test_setup_teardown(test_one_line, listen_anew, stop_listening),
        cmocka_unit_test_setup_teardown(test_long_text_is_cut, listen_anew, stop_listening),
        cmocka_unit_test_setup_teardown(test_errno_is_kept, listen_anew, stop_listening),
        cmocka_unit_test_setup_teardown(test_errno_text, listen_anew, stop_listening),
        cmocka_unit_test_setup_teardown(test_once, listen_anew, stop_listening),
        cmocka_unit_test_setup_teardown(test_standard_error, listen_anew, stop_listening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
