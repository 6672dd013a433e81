/* Reading and writing exactly what was asked for: aligned or not, direct or buffered, short, interrupted or
 * failing. */
#include "os_test.h"

#include "os/fault.h"
#include "os/file.h"
#include "os/mem.h"

#define BYTES (1024 * 1024 + 100) /* its end is not aligned */

static unsigned char *bytes;  /* what the file holds */
static unsigned char *memory; /* BYTES and a page, at an aligned address */
static struct mz_file file;

static int set_up(void **state)
{
    (void)state;
    make_test_folder();
    bytes = malloc(BYTES);
    memory = aligned_alloc(4096, (BYTES + 8192) / 4096 * 4096);
    assert_non_null(bytes);
    assert_non_null(memory);
    fill_pattern(bytes, BYTES, 3);
    const char *path = make_file("model", bytes, BYTES);
    int fd = open(path, O_RDWR);
    assert_int_equal(fsync(fd), 0);
    close(fd);
    assert_int_equal(mz_file_open(path, 0, 0, &file), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    mz_file_close(&file);
    free(bytes);
    free(memory);
    remove_made();
    return 0;
}

static void check_read(uint64_t shift, uint64_t offset, uint64_t size)
{
    memset(memory, 0xee, BYTES + 4096);
    assert_int_equal(mz_file_read(&file, memory + shift, size, offset), 0);
    assert_memory_equal(memory + shift, bytes + offset, size);
    assert_int_equal(memory[shift + size], 0xee);
    if (shift)
        assert_int_equal(memory[shift - 1], 0xee);
}

static void check_reads(void)
{
    check_read(0, 0, 65536);      /* all aligned */
    check_read(0, 0, BYTES);      /* with a ragged end */
    check_read(32, 32, 65536);    /* nothing aligned */
    check_read(512, 4096, 65536); /* aligned to sectors only */
    check_read(0, 4096, 5);       /* less than a sector */
    check_read(7, BYTES - 3, 3);  /* the last bytes */
    check_read(0, 0, 0);
    assert_int_equal(mz_file_read(&file, memory, 4096, BYTES - 3), -ENODATA);
    assert_int_equal(mz_file_read(&file, memory, 4096, 4 * BYTES), -ENODATA);
    assert_int_equal(mz_file_read(&file, memory, 512, 2 * 1024 * 1024), -ENODATA);
}

static void test_read(void **state)
{
    (void)state;
    if (file.direct_fd < 0)
        print_message("note: no direct I/O on this file system\n");
    check_reads();
}

static void test_read_buffered(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", in_folder("model"));
    mz_file_close(&file);
    mz_fault_plan(MZ_FAULT_OPEN, 2, EINVAL, false); /* the second is the one for direct I/O */
    assert_int_equal(mz_file_open(path, 0, 0, &file), 0);
    assert_int_equal(file.direct_fd, -1);
    assert_int_equal(file.mem_align, 1);
    assert_int_equal(file.file_align, 1);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    check_reads();
}

/* A kernel that does not tell the alignment. */
static void test_untold_alignment(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", in_folder("model"));
    if (file.direct_fd < 0) {
        print_message("skipped: no direct I/O on this file system\n");
        skip();
    }
    mz_file_close(&file);
    mz_fault_plan(MZ_FAULT_STAT, 2, EINVAL, false); /* the first is fstat */
    assert_int_equal(mz_file_open(path, 0, 0, &file), 0);
    assert_int_equal(file.mem_align, 4096);
    assert_int_equal(file.file_align, 4096);
    check_reads();
}

static void test_short_and_interrupted_reads(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_READ, 1, MZ_FAULT_SHORT, false);
    check_reads();
    mz_fault_plan(MZ_FAULT_READ, 1, MZ_FAULT_SHORT, true);
    check_reads();
    mz_fault_plan(MZ_FAULT_READ, 1, EINTR, false);
    check_reads();
    mz_fault_plan(MZ_FAULT_READ, 2, EAGAIN, false);
    check_reads();
    mz_fault_plan(MZ_FAULT_READ, 1, EINVAL, false); /* direct I/O that is stricter than it said */
    if (file.direct_fd >= 0)
        check_read(0, 0, 65536);
    mz_fault_plan(MZ_FAULT_READ, 1, EINTR, true); /* ends all the same */
    assert_int_equal(mz_file_read(&file, memory, 4096, 0), -EINTR);
}

static void test_failing_reads(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_READ, 1, EIO, false);
    assert_int_equal(mz_file_read(&file, memory, 65536, 0), -EIO);
    check_read(0, 0, 65536);
    mz_fault_plan(MZ_FAULT_READ, 2, EIO, false); /* the ragged end */
    if (file.direct_fd >= 0)
        assert_int_equal(mz_file_read(&file, memory, BYTES, 0), -EIO);
}

static void test_nothing_stays_cached(void **state)
{
    (void)state;
    (void)posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED);
    for (uint64_t at = 0; at + 65536 <= BYTES; at += 65536)
        check_read(7, at, 65536); /* address not aligned: through the page cache */
    assert_true(mz_file_cached(&file) <= BYTES / 4);
    check_read(0, 0, BYTES);
    assert_true(mz_file_cached(&file) <= BYTES / 4);
    FILE *f = fopen(in_folder("model"), "r");
    assert_non_null(f);
    assert_int_equal(fread(memory, 1, BYTES, f), BYTES);
    fclose(f);
    assert_true(mz_file_cached(&file) >= BYTES / 2); /* and it can tell */
}

static void test_identity(void **state)
{
    (void)state;
    struct mz_file other = {.fd = -1};
    char path[512];
    snprintf(path, sizeof path, "%s", in_folder("model"));
    assert_int_equal(file.size, BYTES);
    assert_int_equal(mz_file_open(path, file.dev, file.inode, &other), 0);
    mz_file_close(&other);
    mz_file_close(&other);
    assert_int_equal(mz_file_open(path, file.dev, file.inode + 1, &other), -ESTALE);
    assert_int_equal(mz_file_open(path, file.dev + 1, file.inode, &other), -ESTALE);
    assert_int_equal(mz_file_open(in_folder("none"), 0, 0, &other), -ENOENT);
    assert_int_equal(mz_file_open(test_folder, 0, 0, &other), -EINVAL);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    made(in_folder("pipe"));
    assert_int_equal(mz_file_open(in_folder("pipe"), 0, 0, &other), -EINVAL); /* and does not hang */
    assert_int_equal(other.fd, -1);
    struct mz_file zeroed = {0};
    mz_file_close(&zeroed);
    assert_true(fcntl(0, F_GETFD) >= 0 || errno == EBADF);
}

static void test_changed(void **state)
{
    (void)state;
    assert_int_equal(mz_file_check(&file), 0);
    int fd = open(in_folder("model"), O_WRONLY);
    struct timespec later[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(futimens(fd, later), 0);
    assert_int_equal(mz_file_check(&file), -ESTALE);
    later[1].tv_sec = (time_t)(file.mtime_ns / 1000000000);
    later[1].tv_nsec = (long)(file.mtime_ns % 1000000000);
    assert_int_equal(futimens(fd, later), 0);
    assert_int_equal(mz_file_check(&file), 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(futimens(fd, later), 0);
    assert_int_equal(mz_file_check(&file), -ESTALE);
    close(fd);
    assert_int_equal(mz_file_read(&file, memory, 65536, 0), -ENODATA);
}

static void test_opening_fails(void **state)
{
    (void)state;
    char path[512];
    struct mz_file other = {.fd = -1};
    snprintf(path, sizeof path, "%s", in_folder("model"));
    mz_fault_plan(MZ_FAULT_OPEN, 1, EMFILE, false);
    assert_int_equal(mz_file_open(path, 0, 0, &other), -EMFILE);
    mz_fault_plan(MZ_FAULT_STAT, 1, EIO, false);
    assert_int_equal(mz_file_open(path, 0, 0, &other), -EIO);
    assert_int_equal(other.fd, -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_read),
        TEST(test_read_buffered),
        TEST(test_untold_alignment),
        TEST(test_short_and_interrupted_reads),
        TEST(test_failing_reads),
        TEST(test_nothing_stays_cached),
        TEST(test_identity),
        TEST(test_changed),
        TEST(test_opening_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
