/* io_uring refused by a seccomp filter, early (no ring) and late (a ring that takes no requests): the probe
 * finds out, says why, and plain calls do the work. */
#include "transfer_test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "os/log.h"

static void quiet(enum mz_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

/* From here on this process gets EPERM for the call. */
static bool refuse(long call)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* In a child: 0 refused and read all the same; 1 wrong; 77 no filter possible here. */
static int try_without(long call)
{
    const char *why = NULL;
    struct mz_transfer *t = NULL;
    int error = 0;
    if (!refuse(call))
        return 77;
    if (mz_transfer_uring(&why) || !why || !why[0] || mz_transfer_uring(&why))
        return 1;
    if (mz_transfer_open(4, true, &t) || mz_transfer_is_uring(t))
        return 1;
    int failed = read_pieces(t, 4, 0, &error);
    mz_transfer_close(t);
    return failed != 0;
}

static void check(long call)
{
    pid_t child = fork();
    if (child == 0)
        _exit(try_without(call));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: no seccomp filter can be set here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_early(void **state)
{
    (void)state;
    check(SYS_io_uring_setup);
}

static void test_late(void **state)
{
    (void)state;
    check(SYS_io_uring_enter);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_transfer, tear_down_transfer)

int main(void)
{
    mz_log_sink(quiet, NULL);
    const struct CMUnitTest tests[] = {TEST(test_early), TEST(test_late)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
