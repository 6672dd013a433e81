/* Every call behind a transfer fails in turn, once and for good, on both engines: requests come back with an
 * error or with every byte right, and the transfer works afterwards. */
#include "transfer_test.h"

#include "os/log.h"

#define DEPTH 4

static void quiet(enum mz_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

/* One pass with a plan. Returns false when the plan was not reached. */
static bool pass(bool uring, unsigned shift, enum mz_fault_kind kind, uint64_t nth, int err, bool sticky)
{
    struct mz_transfer *t = NULL;
    int error = 0;
    assert_int_equal(mz_transfer_open(DEPTH, uring, &t), 0);
    mz_fault_plan(kind, nth, err, sticky);
    int failed = read_pieces(t, DEPTH, shift, &error);
    uint64_t hits = mz_fault_hits();
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    bool survivable = err == MZ_FAULT_SHORT || err == EINTR || kind == MZ_FAULT_URING;
    if (hits && survivable && !(sticky && err == EINTR && kind == MZ_FAULT_READ))
        assert_int_equal(failed, 0);
    else if (hits) {
        assert_int_equal(error, -err);
        assert_true(sticky ? failed > 0 : failed == 1);
    } else {
        assert_int_equal(failed, 0);
    }
    assert_int_equal(read_pieces(t, DEPTH, shift, &error), 0);
    mz_transfer_close(t);
    return hits > 0;
}

static void loop(bool uring, unsigned shift, enum mz_fault_kind kind, int err)
{
    for (int sticky = 0; sticky < 2; sticky++) {
        uint64_t n = 1;
        while (pass(uring, shift, kind, n, err, sticky))
            n++;
        assert_true(n > 1 || (kind == MZ_FAULT_URING && !(uring && mz_transfer_uring(NULL))));
    }
}

static void test_reads(void **state)
{
    (void)state;
    static const int errors[] = {EIO, EINTR, MZ_FAULT_SHORT};
    for (int uring = 0; uring < 2; uring++)
        for (int i = 0; i < 3; i++) {
            loop(uring, 0, MZ_FAULT_READ, errors[i]);
            loop(uring, 9, MZ_FAULT_READ, errors[i]);
        }
}

/* The ring stops taking requests, or cannot be waited on, in the middle: plain calls go on. */
static void test_ring(void **state)
{
    (void)state;
    const char *why;
    if (!mz_transfer_uring(&why)) {
        print_message("skipped: no io_uring here: %s\n", why);
        skip();
    }
    loop(true, 0, MZ_FAULT_URING, ENOSYS);
    loop(true, 0, MZ_FAULT_URING, EINTR);
}

/* A direct read is refused although the address is aligned as the file system wants it: buffered, then. */
static void test_stricter_than_told(void **state)
{
    (void)state;
    for (int uring = 0; uring < 2; uring++) {
        struct mz_transfer *t;
        int error = 0;
        assert_int_equal(mz_transfer_open(DEPTH, uring, &t), 0);
        mz_fault_plan(MZ_FAULT_READ, 2, EINVAL, false);
        assert_int_equal(read_pieces(t, DEPTH, 0, &error), file.direct_fd < 0);
        mz_transfer_close(t);
    }
}

static void test_writes(void **state)
{
    (void)state;
    static const int errors[] = {ENOSPC, EIO, EDQUOT};
    for (int uring = 0; uring < 2; uring++)
        for (int i = 0; i < 3; i++)
            for (uint64_t nth = 1; nth < 3;
                 nth++) { /* the second is the one that makes buffered bytes final */
                struct mz_transfer *t;
                struct mz_request r = {
                    .file = &file, .memory = pattern + 1, .offset = 1, .bytes = 1000, .write = true};
                assert_int_equal(mz_transfer_open(DEPTH, uring, &t), 0);
                mz_fault_plan(MZ_FAULT_WRITE, nth, errors[i], false);
                mz_transfer_submit(t, &r);
                assert_ptr_equal(mz_transfer_wait(t), &r);
                assert_int_equal(r.result, -errors[i]);
                mz_transfer_submit(t, &r);
                assert_ptr_equal(mz_transfer_wait(t), &r);
                assert_int_equal(r.result, 0);
                mz_transfer_close(t);
            }
}

/* No ring to be had at opening: plain calls, without a word to the caller. */
static void test_open(void **state)
{
    (void)state;
    struct mz_transfer *t;
    int error = 0;
    (void)mz_transfer_uring(NULL);
    mz_fault_plan(MZ_FAULT_URING, 1, ENOMEM, true);
    assert_int_equal(mz_transfer_open(DEPTH, true, &t), 0);
    assert_false(mz_transfer_is_uring(t));
    assert_int_equal(read_pieces(t, DEPTH, 0, &error), 0);
    mz_transfer_close(t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_transfer, tear_down_transfer)

int main(void)
{
    mz_log_sink(quiet, NULL);
    const struct CMUnitTest tests[] = {
        TEST(test_reads), TEST(test_ring), TEST(test_stricter_than_told), TEST(test_writes), TEST(test_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
