/* The swap file: without a name, private, on real storage; a full disk and late errors are told, never taken
 * for a write that worked. */
#include "os_test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include "os/fault.h"
#include "os/file.h"

#define BYTES 262144

static unsigned char *pattern, *memory;
static struct mz_file file;

static unsigned files_in(const char *folder)
{
    unsigned n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.' || (e->d_name[1] != 0 && strcmp(e->d_name, ".."));
    closedir(d);
    return n;
}

static int set_up(void **state)
{
    (void)state;
    make_test_folder();
    file = (struct mz_file){.fd = -1, .direct_fd = -1};
    pattern = aligned_alloc(4096, BYTES);
    memory = aligned_alloc(4096, BYTES);
    assert_non_null(pattern);
    assert_non_null(memory);
    fill_pattern(pattern, BYTES, 5);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    mz_file_close(&file);
    free(pattern);
    free(memory);
    remove_made();
    return 0;
}

static void check_private(void)
{
    struct stat st;
    assert_int_equal(fstat(file.fd, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(files_in(test_folder), 0);
    assert_true(fcntl(file.fd, F_GETFD) & FD_CLOEXEC);
    if (file.direct_fd >= 0)
        assert_true(fcntl(file.direct_fd, F_GETFD) & FD_CLOEXEC);
}

static void check_there_and_back(uint64_t shift, uint64_t offset, uint64_t size)
{
    assert_int_equal(mz_file_write(&file, pattern + shift, size, offset), 0);
    memset(memory, 0, BYTES);
    assert_int_equal(mz_file_read(&file, memory + shift, size, offset), 0);
    assert_memory_equal(memory + shift, pattern + shift, size);
}

static void check_all(void)
{
    check_there_and_back(0, 0, BYTES);
    check_there_and_back(0, 10 * BYTES, BYTES); /* behind a hole */
    check_there_and_back(32, 1000, 100000);
    check_there_and_back(0, 4096, 4097);
    check_there_and_back(1, 3 * BYTES, 1);
}

static void test_unnamed(void **state)
{
    (void)state;
    assert_int_equal(mz_file_open_swap(test_folder, false, &file), 0);
    check_private();
    check_all();
}

/* Where O_TMPFILE is missing. */
static void test_unlinked_at_once(void **state)
{
    (void)state;
    static const int reasons[] = {EOPNOTSUPP, EISDIR, EINVAL};
    mode_t mask = umask(0);
    for (int i = 0; i < 3; i++) {
        mz_fault_plan(MZ_FAULT_OPEN, 1, reasons[i], false);
        assert_int_equal(mz_file_open_swap(test_folder, false, &file), 0);
        assert_int_equal(mz_fault_hits(), 1);
        check_private();
        check_all();
        mz_file_close(&file);
    }
    umask(mask);
}

static void test_folder_in_memory(void **state)
{
    (void)state;
    struct statfs fs;
    if (statfs("/dev/shm", &fs) || fs.f_type != 0x01021994) {
        print_message("skipped: /dev/shm is no tmpfs\n");
        skip();
    }
    assert_int_equal(mz_file_open_swap("/dev/shm", false, &file), -EMEDIUMTYPE);
    assert_int_equal(file.fd, -1);
    int r = mz_file_open_swap("/dev/shm", true, &file);
    if (r == -EACCES || r == -EROFS) {
        print_message("not tried: /dev/shm cannot be written to\n");
        return;
    }
    assert_int_equal(r, 0);
    check_all();
}

static void test_folder_unusable(void **state)
{
    (void)state;
    assert_int_equal(mz_file_open_swap(in_folder("none"), false, &file), -ENOENT);
    assert_int_equal(mz_file_open_swap(make_text("file", "x"), false, &file), -ENOTDIR);
    static const int reasons[] = {EACCES, EROFS, ENOSPC, EMFILE};
    for (int i = 0; i < 4; i++) {
        mz_fault_plan(MZ_FAULT_OPEN, 1, reasons[i], true);
        assert_int_equal(mz_file_open_swap(test_folder, false, &file), -reasons[i]);
    }
    for (uint64_t n = 1; n < 4; n++) { /* statfs, flags (survived), fstat */
        mz_fault_plan(MZ_FAULT_STAT, n, EIO, false);
        int r = mz_file_open_swap(test_folder, false, &file);
        assert_int_equal(r, n == 2 ? 0 : -EIO);
        mz_file_close(&file);
    }
    assert_int_equal(files_in(test_folder), 1);
}

static void test_failing_writes(void **state)
{
    (void)state;
    assert_int_equal(mz_file_open_swap(test_folder, false, &file), 0);
    static const int reasons[] = {EIO, ENOSPC, EDQUOT};
    for (int i = 0; i < 3; i++) {
        mz_fault_plan(MZ_FAULT_WRITE, 1, reasons[i], false);
        assert_int_equal(mz_file_write(&file, pattern, BYTES, 0), -reasons[i]);
        mz_fault_plan(MZ_FAULT_WRITE, 2, reasons[i], false); /* late: when buffered bytes reach the device */
        assert_int_equal(mz_file_write(&file, pattern + 1, 1000, 7), -reasons[i]);
    }
    mz_fault_plan(MZ_FAULT_WRITE, 1, MZ_FAULT_SHORT, true);
    check_all();
    mz_fault_plan(MZ_FAULT_WRITE, 1, EINTR, false);
    check_all();
}

/* A real end of the disk: a file may not grow over the limit. The kernel writes up to it and refuses the rest. */
static void test_full(void **state)
{
    (void)state;
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = BYTES / 2, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(mz_file_open_swap(test_folder, false, &file), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int r = mz_file_write(&file, pattern, BYTES, 0), beyond = mz_file_write(&file, pattern, 4096, BYTES);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(r, -EFBIG);
    assert_int_equal(beyond, -EFBIG);
    check_all();
}

static void test_punch_and_space(void **state)
{
    (void)state;
    struct stat before, after;
    uint64_t space = 0;
    assert_int_equal(mz_file_open_swap(test_folder, false, &file), 0);
    assert_int_equal(mz_file_space(&file, &space), 0);
    assert_true(space > 0);
    mz_fault_plan(MZ_FAULT_STAT, 1, EIO, false);
    assert_int_equal(mz_file_space(&file, &space), -EIO);
    assert_int_equal(mz_file_write(&file, pattern, BYTES, 0), 0);
    assert_int_equal(fsync(file.fd), 0);
    assert_int_equal(fstat(file.fd, &before), 0);
    mz_file_punch(&file, 0, BYTES / 2);
    assert_int_equal(fstat(file.fd, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    if (after.st_blocks == before.st_blocks)
        print_message("note: this file system punches no holes\n");
    assert_int_equal(mz_file_read(&file, memory, BYTES / 2, BYTES / 2), 0);
    assert_memory_equal(memory, pattern + BYTES / 2, BYTES / 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_unnamed),         TEST(test_unlinked_at_once), TEST(test_folder_in_memory),
        TEST(test_folder_unusable), TEST(test_failing_writes),   TEST(test_full),
        TEST(test_punch_and_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
