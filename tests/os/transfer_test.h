/* A swap file with a known pattern, and requests over it, for the tests of transfers. */
#ifndef MZ_TESTS_OS_TRANSFER_TEST_H
#define MZ_TESTS_OS_TRANSFER_TEST_H

#include "os_test.h"

#include "os/fault.h"
#include "os/file.h"
#include "os/transfer.h"

#define PIECE    65536
#define PIECES   8
#define BYTES    (PIECE * PIECES)
#define FILE_END (BYTES + 100) /* what lies behind BYTES are 100 bytes of the pattern's begin */

static unsigned char *pattern, *memory;
static struct mz_file file;

static inline int set_up_transfer(void **state)
{
    (void)state;
    pattern = aligned_alloc(4096, BYTES);
    memory = aligned_alloc(4096, BYTES + 4096);
    assert_non_null(pattern);
    assert_non_null(memory);
    fill_pattern(pattern, BYTES, 11);
    make_test_folder();
    assert_int_equal(mz_file_open_swap(test_folder, false, &file), 0);
    assert_int_equal(mz_file_write(&file, pattern, BYTES, 0), 0);
    assert_int_equal(mz_file_write(&file, pattern, 100, BYTES), 0);
    return 0;
}

static inline int tear_down_transfer(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    mz_fault_slow_reads(0);
    mz_file_close(&file);
    free(pattern);
    free(memory);
    remove_made();
    return 0;
}

/* Reads the whole file in pieces, `depth` at a time, each at `shift` behind its aligned address, and compares
 * what has come without an error. Returns how many have failed, with `ret_error` the last error. */
static inline int read_pieces(struct mz_transfer *t, uint32_t depth, unsigned shift, int *ret_error)
{
    struct mz_request requests[PIECES];
    int next = 0, failed = 0, fetched = 0;
    memset(memory, 0, BYTES + 4096);
    while (fetched < PIECES) {
        for (; next < PIECES && mz_transfer_pending(t) < depth; next++) {
            requests[next] = (struct mz_request){
                .file = &file,
                .memory = memory + next * PIECE + shift,
                .offset = (uint64_t)next * PIECE,
                .bytes = PIECE - shift,
                .result = 77,
                .user = &requests[next],
            };
            mz_transfer_submit(t, &requests[next]);
        }
        struct mz_request *r = mz_transfer_wait(t);
        assert_non_null(r);
        assert_ptr_equal(r->user, r);
        fetched++;
        if (r->result) {
            failed++;
            *ret_error = r->result;
            continue;
        }
        assert_int_equal(r->done, r->bytes);
        assert_memory_equal(r->memory, pattern + r->offset, r->bytes);
    }
    assert_null(mz_transfer_wait(t));
    assert_int_equal(mz_transfer_pending(t), 0);
    return failed;
}

#endif
