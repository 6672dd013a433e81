/* Many requests in flight, by io_uring and by plain calls: every byte arrives, ends of files and slow reads
 * included. */
#include "transfer_test.h"

#include "os/os.h"

/* Runs a check on both engines; *state is not used by cmocka's fixtures here. */
static void on_both(void (*check)(struct mz_transfer *t, uint32_t depth))
{
    static const uint32_t depths[] = {1, 3, 8, 64};
    const char *why;
    if (!mz_transfer_uring(&why))
        print_message("note: io_uring is not tried: %s\n", why);
    for (int uring = 0; uring < 2; uring++)
        for (int i = 0; i < 4; i++) {
            struct mz_transfer *t = NULL;
            assert_int_equal(mz_transfer_open(depths[i], uring, &t), 0);
            assert_true(mz_transfer_is_uring(t) == (uring && mz_transfer_uring(NULL)));
            check(t, depths[i]);
            mz_transfer_close(t);
        }
}

static void check_read(struct mz_transfer *t, uint32_t depth)
{
    int error = 0;
    assert_int_equal(read_pieces(t, depth, 0, &error), 0);
    assert_int_equal(read_pieces(t, depth, 512, &error), 0);
    assert_int_equal(read_pieces(t, depth, 3, &error), 0);
}

static void test_read(void **state)
{
    (void)state;
    on_both(check_read);
}

static void check_write(struct mz_transfer *t, uint32_t depth)
{
    struct mz_request requests[PIECES];
    fill_pattern(memory, BYTES, depth);
    for (int i = 0; i < PIECES; i++) {
        unsigned shift = i % 4 == 3 ? 5 : 0; /* some aligned, some not; the last one with a ragged end */
        requests[i] = (struct mz_request){
            .file = &file,
            .memory = memory + i * PIECE + shift,
            .offset = (uint64_t)BYTES + (uint64_t)i * PIECE + shift,
            .bytes = PIECE - shift - (i == PIECES - 2 ? 100 : 0),
            .write = true,
        };
        if (mz_transfer_pending(t) == depth)
            assert_int_equal(mz_transfer_wait(t)->result, 0);
        mz_transfer_submit(t, &requests[i]);
    }
    for (struct mz_request *r; (r = mz_transfer_wait(t));)
        assert_int_equal(r->result, 0);
    unsigned char *back = malloc(PIECE);
    assert_non_null(back);
    for (int i = 0; i < PIECES; i++) {
        assert_int_equal(requests[i].done, requests[i].bytes);
        assert_int_equal(mz_file_read(&file, back, requests[i].bytes, requests[i].offset), 0);
        assert_memory_equal(back, requests[i].memory, requests[i].bytes);
    }
    free(back);
}

static void test_write(void **state)
{
    (void)state;
    on_both(check_write);
}

static void check_one_end(struct mz_transfer *t, uint64_t offset, uint64_t there, bool short_ok)
{
    struct mz_request r = {
        .file = &file, .memory = memory, .offset = offset, .bytes = PIECE, .short_ok = short_ok};
    memset(memory, 0, PIECE);
    mz_transfer_submit(t, &r);
    assert_ptr_equal(mz_transfer_wait(t), &r);
    assert_int_equal(r.result, short_ok ? 0 : -ENODATA);
    assert_int_equal(r.done, there);
    for (uint64_t i = 0; i < there; i++)
        assert_int_equal(memory[i], pattern[(offset + i) % BYTES]);
}

static void check_end(struct mz_transfer *t, uint32_t depth)
{
    (void)depth;
    for (int short_ok = 0; short_ok < 2; short_ok++) {
        check_one_end(t, BYTES, 100, short_ok);
        check_one_end(t, BYTES - 4096, 4196, short_ok);
        check_one_end(t, BYTES - 5, 105, short_ok);
        check_one_end(t, FILE_END, 0, short_ok);
        check_one_end(t, 16 * BYTES, 0, short_ok);
    }
}

static void test_end_of_file(void **state)
{
    (void)state;
    on_both(check_end);
}

static void check_nothing(struct mz_transfer *t, uint32_t depth)
{
    (void)depth;
    struct mz_request r = {.file = &file, .memory = memory, .bytes = 0, .result = 77};
    assert_null(mz_transfer_wait(t));
    mz_transfer_submit(t, &r);
    assert_int_equal(mz_transfer_pending(t), 1);
    assert_ptr_equal(mz_transfer_wait(t), &r);
    assert_int_equal(r.result, 0);
    assert_int_equal(r.done, 0);
    assert_null(mz_transfer_wait(t));
}

static void test_nothing(void **state)
{
    (void)state;
    on_both(check_nothing);
}

/* Closing waits: afterwards nothing is read into memory any more. */
static void check_close(struct mz_transfer *t, uint32_t depth)
{
    (void)t;
    struct mz_transfer *own;
    struct mz_request requests[PIECES];
    assert_int_equal(mz_transfer_open(depth, mz_transfer_is_uring(t), &own), 0);
    memset(memory, 0, BYTES);
    for (uint32_t i = 0; i < PIECES && i < depth; i++) {
        requests[i] = (struct mz_request){.file = &file,
                                          .memory = memory + i * PIECE,
                                          .offset = (uint64_t)i * PIECE,
                                          .bytes = PIECE,
                                          .result = 77};
        mz_transfer_submit(own, &requests[i]);
    }
    mz_transfer_close(own);
    memset(memory, 0, BYTES);
    for (uint32_t i = 0; i < PIECES && i < depth; i++)
        assert_int_equal(requests[i].result, 0);
    int error = 0;
    assert_int_equal(read_pieces(t, depth, 0, &error), 0); /* other transfers go on */
}

static void test_close(void **state)
{
    (void)state;
    on_both(check_close);
    mz_transfer_close(NULL);
}

static void check_slow(struct mz_transfer *t, uint32_t depth)
{
    (void)depth;
    struct mz_request r = {.file = &file, .memory = memory, .bytes = PIECE};
    mz_fault_slow_reads(30);
    uint64_t begin = mz_os_now_ns();
    mz_transfer_submit(t, &r);
    assert_ptr_equal(mz_transfer_wait(t), &r);
    assert_true(mz_os_now_ns() - begin >= 30000000);
    mz_fault_slow_reads(0);
    assert_memory_equal(memory, pattern, PIECE);
}

static void test_slow(void **state)
{
    (void)state;
    on_both(check_slow);
}

static void test_refused_arguments(void **state)
{
    (void)state;
    struct mz_transfer *t = NULL;
    assert_int_equal(mz_transfer_open(0, true, &t), -EINVAL);
    assert_int_equal(mz_transfer_open(65, true, &t), -EINVAL);
    mz_fault_plan(MZ_FAULT_ALLOC, 1, ENOMEM, false);
    assert_int_equal(mz_transfer_open(1, false, &t), -ENOMEM);
    assert_null(t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_transfer, tear_down_transfer)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_read),  TEST(test_write), TEST(test_end_of_file),       TEST(test_nothing),
        TEST(test_close), TEST(test_slow),  TEST(test_refused_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
