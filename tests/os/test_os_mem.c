/* Reserved ranges: nothing resident until asked for, bytes kept by populating, zeros after releasing; what is
 * counted is what is there. */
#include "os_test.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "os/fault.h"
#include "os/mem.h"

#define MIB (UINT64_C(1) << 20)

static uint64_t page;

static uint64_t resident(const void *base, uint64_t bytes)
{
    uint64_t in_memory, swapped;
    assert_int_equal(mz_os_resident(base, bytes, &in_memory, &swapped), 0);
    return in_memory + swapped; /* other programs may push us out at any time */
}

/* In small pages, which can be counted, also where the machine gives huge ones to all. */
static unsigned char *reserve(uint64_t bytes)
{
    void *p;
    assert_int_equal(mz_os_reserve(bytes, &p), 0);
    assert_int_equal((uintptr_t)p % MZ_OS_HUGE_BYTES, 0);
    (void)mz_os_advise_huge(p, bytes, false); /* a kernel without any refuses */
    return p;
}

static int plan_nothing(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    return 0;
}

static void test_reserve(void **state)
{
    (void)state;
    void *p = NULL;
    unsigned char *base = reserve(5 * MIB + page);
    assert_int_equal(resident(base, 5 * MIB + page), 0);
    base[0] = 1;
    base[5 * MIB + page - 1] = 1;
    assert_int_equal(resident(base, 5 * MIB + page), 2 * page);
    mz_os_unreserve(base, 5 * MIB + page);
    mz_os_unreserve(NULL, 0);
    assert_int_equal(mz_os_reserve(0, &p), -EINVAL);
    assert_int_equal(mz_os_reserve(page + 1, &p), -EINVAL);
    assert_int_equal(mz_os_reserve(UINT64_C(1) << 63, &p), -ENOMEM);
    assert_int_equal(mz_os_reserve(UINT64_C(1) << 60, &p), -ENOMEM);
    assert_null(p);
}

/* More than the machine has: only what is touched counts. */
static void test_reserve_much(void **state)
{
    (void)state;
    const uint64_t much = UINT64_C(256) << 30; /* the thread sanitizer leaves no terabyte */
    unsigned char *base = reserve(much);
    assert_int_equal(resident(base, much), 0);
    mz_os_unreserve(base, much);
}

static void test_reserve_faults(void **state)
{
    (void)state;
    void *p = NULL;
    mz_fault_plan(MZ_FAULT_MMAP, 1, ENOMEM, true);
    assert_int_equal(mz_os_reserve(MIB, &p), -ENOMEM);
    mz_fault_plan(MZ_FAULT_MADVISE, 2, ENOMEM, false);
    assert_int_equal(mz_os_reserve(MIB, &p), -ENOMEM);
    assert_null(p);
    /* Without room for the alignment: in the exact size. */
    mz_fault_plan(MZ_FAULT_MMAP, 1, ENOMEM, false);
    int r = mz_os_reserve(4 * MIB, &p);
    assert_true(r == 0 || r == -ENOMEM);
    if (r == 0) {
        assert_int_equal((uintptr_t)p % MZ_OS_HUGE_BYTES, 0);
        memset(p, 1, 4 * MIB);
        mz_os_unreserve(p, 4 * MIB);
    }
}

static void test_populate(void **state)
{
    (void)state;
    unsigned char *base = reserve(4 * MIB);
    base[page] = 77;
    assert_int_equal(mz_os_populate(base, MIB), 0);
    assert_int_equal(resident(base, 4 * MIB), MIB);
    assert_int_equal(base[page], 77);
    mz_fault_plan(MZ_FAULT_POPULATE, 1, ENOMEM, false);
    assert_int_equal(mz_os_populate(base + 2 * MIB, MIB), -ENOMEM);
    mz_fault_plan(MZ_FAULT_POPULATE, 1, EINVAL, false); /* an older kernel: by touching */
    base[2 * MIB + page] = 78;
    assert_int_equal(mz_os_populate(base + 2 * MIB, MIB), 0);
    assert_int_equal(base[2 * MIB + page], 78);
    assert_int_equal(resident(base, 4 * MIB), 2 * MIB);
    mz_os_unreserve(base, 4 * MIB);
}

static void test_release(void **state)
{
    (void)state;
    unsigned char *base = reserve(4 * MIB);
    memset(base, 5, 4 * MIB);
    assert_int_equal(mz_os_release(base + MIB, MIB), 0);
    assert_int_equal(resident(base, 4 * MIB), 3 * MIB);
    assert_int_equal(resident(base + MIB, MIB), 0);
    assert_int_equal(base[MIB - 1], 5);
    assert_int_equal(base[MIB], 0);
    assert_int_equal(base[2 * MIB - 1], 0);
    assert_int_equal(base[2 * MIB], 5);
    mz_fault_plan(MZ_FAULT_MADVISE, 1, EAGAIN, false);
    assert_int_equal(mz_os_release(base, MIB), -EAGAIN);
    assert_int_equal(base[0], 5);
    mz_os_unreserve(base, 4 * MIB);
}

static void test_release_locked(void **state)
{
    (void)state;
    unsigned char *base = reserve(2 * MIB);
    base[0] = 5;
    if (syscall(SYS_mlock, base, page)) { /* not mlock(): the sanitizers make it do nothing */
        print_message("not tried: mlock: %s\n", strerror(errno));
    } else {
        assert_int_equal(mz_os_release(base, page), -EINVAL);
        assert_int_equal(base[0], 5);
    }
    mz_os_unreserve(base, 2 * MIB);
}

/* Every third page, counted both ways, at odd addresses too. */
static void count_pattern(unsigned char *base)
{
    uint64_t expected = 0;
    for (uint64_t at = 0; at < 3 * MIB; at += 3 * page, expected += page)
        base[at] = 1;
    assert_int_equal(resident(base, 4 * MIB), expected);
    assert_int_equal(resident(base + 3 * page - 1, 2),
                     page); /* the last byte of one, the first of the next */
    assert_int_equal(resident(base + 1, 1), page);
    assert_int_equal(resident(base, 0), 0);
    uint64_t alone;
    assert_int_equal(mz_os_resident(base, page, &alone, NULL), 0);
}

static void test_resident(void **state)
{
    (void)state;
    unsigned char *base = reserve(4 * MIB);
    count_pattern(base);
    mz_fault_plan(MZ_FAULT_STAT, 1, ENOTTY, true); /* a kernel before 6.7 */
    count_pattern(base);
    assert_true(mz_fault_hits() > 0);
    mz_os_unreserve(base, 4 * MIB);
}

/* Reading maps the shared zero page, which is nobody's memory. */
static void test_read_only_is_not_resident(void **state)
{
    (void)state;
    unsigned char *base = reserve(2 * MIB), sum = 0;
    for (uint64_t at = 0; at < 2 * MIB; at += page)
        sum = (unsigned char)(sum | *(volatile unsigned char *)(base + at));
    assert_int_equal(sum, 0);
    uint64_t counted = resident(base, 2 * MIB);
    mz_fault_plan(MZ_FAULT_STAT, 1, EPERM, false);
    uint64_t unused;
    bool scans =
        mz_os_resident(base, page, &unused, NULL) == -EIO; /* EPERM is passed on, ENOTTY falls back */
    assert_true(scans);
    if (counted == 2 * MIB)
        print_message("not tried: this kernel has no PAGEMAP_SCAN\n");
    else
        assert_int_equal(counted, 0);
    mz_os_unreserve(base, 2 * MIB);
}

static void test_resident_faults(void **state)
{
    (void)state;
    uint64_t n = 99;
    mz_fault_plan(MZ_FAULT_OPEN, 1, ENOENT, false);
    assert_int_equal(mz_os_resident(&n, 1, &n, NULL), -ENOENT);
    mz_fault_plan(MZ_FAULT_OPEN, 1, EMFILE, false);
    assert_int_equal(mz_os_resident(&n, 1, &n, NULL), -EIO);
    assert_int_equal(n, 99);
}

/* In a child: whether it finds our bytes there. A sanitizer may have put something of its own in the gap. */
static bool sees(const unsigned char *base, const unsigned char *secret, size_t size)
{
    unsigned char got[64];
    int ends[2];
    return pipe(ends) || (write(ends[1], base, size) == (ssize_t)size &&
                          read(ends[0], got, size) == (ssize_t)size && !memcmp(got, secret, size));
}

static void test_not_in_children(void **state)
{
    (void)state;
    unsigned char *base = reserve(2 * MIB), secret[64];
    fill_pattern(secret, sizeof secret, 17);
    memcpy(base, secret, sizeof secret);
    assert_true(sees(base, secret, sizeof secret));
    pid_t child = fork();
    if (child == 0)
        _exit(sees(base, secret, sizeof secret));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    mz_os_unreserve(base, 2 * MIB);
}

/* "dd": not in core files, "dc": not in children. */
static void test_flags(void **state)
{
    (void)state;
    unsigned char *base = reserve(2 * MIB);
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    char line[4096], flags[4096] = "";
    bool ours = false;
    while (fgets(line, sizeof line, f)) {
        unsigned long start, end;
        char perms[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, perms) == 3)
            ours = start <= (uintptr_t)base && (uintptr_t)base < end;
        else if (ours && !strncmp(line, "VmFlags:", 8))
            strcpy(flags, line);
    }
    fclose(f);
    if (!flags[0])
        print_message("not tried: smaps has no VmFlags\n");
    else
        assert_true(strstr(flags, " dd") && strstr(flags, " dc"));
    mz_os_unreserve(base, 2 * MIB);
}

static void test_protect(void **state)
{
    (void)state;
    unsigned char *base = reserve(2 * MIB);
    base[page] = 3;
    assert_int_equal(mz_os_protect(base, 2 * page, true), 0);
    int ends[2]; /* the kernel tells by EFAULT what would be a fault */
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], base + page, 1), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(mz_os_protect(base, 2 * page, false), 0);
    assert_int_equal(write(ends[1], base + page, 1), 1);
    close(ends[0]);
    close(ends[1]);
    mz_os_unreserve(base, 2 * MIB);
}

static void test_forget_file_pages(void **state)
{
    (void)state;
    static unsigned char bytes[16 * 65536];
    make_test_folder();
    fill_pattern(bytes, 16 * page, 1);
    int fd = open(make_file("model", bytes, 16 * page), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fsync(fd), 0); /* dirty pages stay */
    unsigned char *p = mmap(NULL, 16 * page, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    assert_memory_equal(p, bytes, 16 * page);
    mz_os_forget_file_pages(p + 1, 16 * page - 1, fd, 1);
    unsigned char there[16] = {0};
    assert_int_equal(mincore(p, 16 * page, there), 0);
    assert_true(there[0] & 1); /* only touched in part */
    assert_memory_equal(p, bytes, 16 * page);
    mz_os_forget_file_pages(p + 1, page, fd, 1); /* no whole page: nothing */
    mz_os_forget_file_pages(p, 16 * page, -1, 0);
    assert_memory_equal(p, bytes, 16 * page);
    munmap(p, 16 * page);
    close(fd);
    remove_made();
}

static void test_huge_advice(void **state)
{
    (void)state;
    make_test_folder();
    setenv("MZ_SYSROOT", test_folder, 1);
    assert_false(mz_os_huge_pages());
    make_text("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    assert_true(mz_os_huge_pages());
    make_text("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    assert_true(mz_os_huge_pages());
    make_text("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    assert_false(mz_os_huge_pages());
    unsetenv("MZ_SYSROOT");
    remove_made();
}

int main(void)
{
    page = mz_os_page_bytes();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_reserve, plan_nothing),
        cmocka_unit_test_teardown(test_reserve_much, plan_nothing),
        cmocka_unit_test_teardown(test_reserve_faults, plan_nothing),
        cmocka_unit_test_teardown(test_populate, plan_nothing),
        cmocka_unit_test_teardown(test_release, plan_nothing),
        cmocka_unit_test_teardown(test_release_locked, plan_nothing),
        cmocka_unit_test_teardown(test_resident, plan_nothing),
        cmocka_unit_test_teardown(test_read_only_is_not_resident, plan_nothing),
        cmocka_unit_test_teardown(test_resident_faults, plan_nothing),
        cmocka_unit_test_teardown(test_not_in_children, plan_nothing),
        cmocka_unit_test_teardown(test_flags, plan_nothing),
        cmocka_unit_test_teardown(test_protect, plan_nothing),
        cmocka_unit_test_teardown(test_forget_file_pages, plan_nothing),
        cmocka_unit_test_teardown(test_huge_advice, plan_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
