/* Which file stands behind an address, whatever its name is made of. */
#include "os_test.h"

#include <sys/mman.h>

#include "os/fault.h"
#include "os/file.h"
#include "os/maps.h"
#include "os/mem.h"

/* Maps the second page of a new file of three. */
static char *map_file(const char *name, const char **ret_path)
{
    static char bytes[3 * 65536];
    size_t page = (size_t)mz_os_page_bytes();
    *ret_path = make_file(name, bytes, 3 * page);
    int fd = open(*ret_path, O_RDONLY);
    assert_true(fd >= 0);
    char *p = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, (off_t)page);
    close(fd);
    assert_true(p != MAP_FAILED);
    return p;
}

static void check_name(const char *name)
{
    const char *path;
    struct mz_mapping m;
    struct stat st;
    char *p = map_file(name, &path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(mz_maps_find(p + 5, &m), 0);
    assert_string_equal(m.path, path);
    assert_false(m.deleted);
    assert_true(m.start == (uintptr_t)p && m.end == (uintptr_t)p + mz_os_page_bytes());
    assert_int_equal(m.offset, mz_os_page_bytes());
    assert_int_equal(m.inode, st.st_ino);
    assert_true(m.readable && m.shared && !m.writable);
    struct mz_file file;
    assert_int_equal(mz_file_open(m.path, m.dev, m.inode, &file), 0); /* also where maps and stat() differ */
    mz_file_close(&file);
    munmap(p, mz_os_page_bytes());
}

static void test_names(void **state)
{
    (void)state;
    check_name("plain.gguf");
    check_name("with blanks  and\ttab");
    check_name("with\nnewline");
    check_name("with\\012 not a newline");
    check_name("really (deleted)");
    check_name("both\n (deleted)");
}

static void test_deleted(void **state)
{
    (void)state;
    const char *path;
    struct mz_mapping m;
    char *p = map_file("gone\nsoon", &path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mz_maps_find(p, &m), 0);
    assert_true(m.deleted);
    assert_string_equal(m.path, path);
    munmap(p, mz_os_page_bytes());
}

static void test_replaced(void **state)
{
    (void)state;
    const char *path;
    struct mz_mapping m;
    struct mz_file file;
    char *p = map_file("model", &path);
    assert_int_equal(rename(make_text("new", "other"), path), 0);
    assert_int_equal(mz_maps_find(p, &m), 0);
    assert_true(m.deleted);
    assert_int_equal(mz_file_open(m.path, m.dev, m.inode, &file), -ESTALE);
    munmap(p, mz_os_page_bytes());
}

static void test_anonymous(void **state)
{
    (void)state;
    struct mz_mapping m;
    size_t page = (size_t)mz_os_page_bytes();
    char *p = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mz_maps_find(p, &m), 0);
    assert_string_equal(m.path, "");
    assert_true(m.readable && m.writable && !m.shared && !m.deleted && m.inode == 0);
    munmap(p + page, page);
    assert_int_equal(mz_maps_find(p + page, &m), -ENOENT);
    assert_int_equal(mz_maps_find(p + page - 1, &m), 0);
    assert_int_equal(mz_maps_find(p + 2 * page, &m), 0);
    munmap(p, 3 * page);
    assert_int_equal(mz_maps_find(NULL, &m), -ENOENT);
}

static void test_faults(void **state)
{
    (void)state;
    struct mz_mapping m;
    mz_fault_plan(MZ_FAULT_OPEN, 1, EMFILE, false);
    assert_int_equal(mz_maps_find(&m, &m), -EIO);
    mz_fault_plan(MZ_FAULT_READ, 1, EIO, false);
    assert_int_equal(mz_maps_find(&m, &m), -EIO);
    mz_fault_plan(MZ_FAULT_READ, 1, MZ_FAULT_SHORT, true); /* lines come in pieces */
    assert_int_equal(mz_maps_find(&m, &m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names, set_up_folder, tear_down_folder),
        cmocka_unit_test_setup_teardown(test_deleted, set_up_folder, tear_down_folder),
        cmocka_unit_test_setup_teardown(test_replaced, set_up_folder, tear_down_folder),
        cmocka_unit_test_setup_teardown(test_anonymous, set_up_folder, tear_down_folder),
        cmocka_unit_test_setup_teardown(test_faults, set_up_folder, tear_down_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
