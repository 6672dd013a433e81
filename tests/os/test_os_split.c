/* Releasing half of each huge page really frees half of the memory, if it is split before: by smaps, by the
 * kernel's counter of split pages, and by the charge of a memory cgroup where one can be made. */
#include "os_test.h"

#include <signal.h>
#include <sys/wait.h>

#include "os/mem.h"
#include "os/text.h"

#define MIB   (UINT64_C(1) << 20)
#define PAGES 32 /* huge ones */
#define BYTES (PAGES * MZ_OS_HUGE_BYTES)

static uint64_t huge_bytes(const void *base)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[4096];
    bool ours = false;
    uint64_t sum = 0, n;
    while (f && fgets(line, sizeof line, f)) {
        unsigned long start, end;
        char perms[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, perms) == 3)
            ours = start >= (uintptr_t)base && start < (uintptr_t)base + BYTES;
        else if (ours && !mz_os_find_number(line, "AnonHugePages:", &n))
            sum += n;
    }
    if (f)
        fclose(f);
    return sum;
}

static uint64_t pages_split(void)
{
    static char text[1 << 16];
    uint64_t n = 0;
    if (mz_os_read_text("/proc/vmstat", text, sizeof text) > 0)
        (void)mz_os_find_number(text, "thp_split_page", &n);
    return n;
}

/* A range in huge pages throughout, or skip. */
static unsigned char *populate_huge(void)
{
    void *base;
    if (!mz_os_huge_pages())
        return NULL;
    if (mz_os_reserve(BYTES, &base) || mz_os_advise_huge(base, BYTES, true) || mz_os_populate(base, BYTES))
        return NULL;
    if (huge_bytes(base) == BYTES)
        return base;
    mz_os_unreserve(base, BYTES);
    return NULL;
}

static void release_halves(unsigned char *base, bool upper, bool split)
{
    for (uint64_t at = 0; at < BYTES; at += MZ_OS_HUGE_BYTES) {
        unsigned char *half = base + at + (upper ? MIB : 0);
        if (split)
            mz_os_split_huge(half, MIB);
        (void)mz_os_release(half, MIB);
    }
}

static void check_halves(bool upper)
{
    unsigned char *base = populate_huge();
    if (!base) {
        print_message("skipped: no huge pages to be had here\n");
        skip();
    }
    memset(base, 9, BYTES);
    uint64_t before = pages_split(), resident, swapped;
    release_halves(base, upper, true);
    assert_true(pages_split() >= before + PAGES);
    assert_int_equal(huge_bytes(base), 0);
    assert_int_equal(mz_os_resident(base, BYTES, &resident, &swapped), 0);
    assert_int_equal(resident + swapped, BYTES / 2);
    for (uint64_t at = 0; at < BYTES; at += MIB)
        assert_int_equal(base[at + 1234], (at / MIB % 2 == 1) == upper ? 0 : 9);
    mz_os_unreserve(base, BYTES);
}

static void test_upper_halves(void **state)
{
    (void)state;
    check_halves(true);
}

static void test_lower_halves(void **state)
{
    (void)state;
    check_halves(false);
}

/* From the middle of one to the middle of the last: those between stay whole. */
static void test_only_the_edges(void **state)
{
    (void)state;
    unsigned char *base = populate_huge();
    if (!base) {
        print_message("skipped: no huge pages to be had here\n");
        skip();
    }
    mz_os_split_huge(base + MIB, BYTES - 2 * MIB);
    assert_int_equal(huge_bytes(base), BYTES - 2 * MZ_OS_HUGE_BYTES);
    mz_os_split_huge(base + 2 * MZ_OS_HUGE_BYTES, 3 * MZ_OS_HUGE_BYTES); /* no ragged edge */
    assert_int_equal(huge_bytes(base), BYTES - 2 * MZ_OS_HUGE_BYTES);
    mz_os_split_huge(base + 4 * MZ_OS_HUGE_BYTES + MIB / 2, MIB); /* in the middle of one */
    assert_int_equal(huge_bytes(base), BYTES - 3 * MZ_OS_HUGE_BYTES);
    mz_os_unreserve(base, BYTES);
}

/* A cgroup of our own, under the one that we are in; "" when it cannot be made. */
static char group[512];

static bool make_group(const char *mount, const char *prefix)
{
    char line[512], own[256] = "";
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *at = strstr(line, prefix);
        if (at)
            snprintf(own, sizeof own, "%.*s", (int)strcspn(at + strlen(prefix), "\n"), at + strlen(prefix));
    }
    if (f)
        fclose(f);
    snprintf(group, sizeof group, "%s%s/mzcache-test-%d", mount, strcmp(own, "/") ? own : "", (int)getpid());
    if (own[0] && !mkdir(group, 0700))
        return true;
    group[0] = 0;
    return false;
}

static uint64_t charged(const char *file)
{
    char path[600], text[64];
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s/%s", group, file);
    if (mz_os_read_text(path, text, sizeof text) > 0)
        (void)mz_os_parse_number(text, &n);
    return n;
}

/* In a child inside the group. Exit 0: freed; 1: not freed; 2: could not be tried. */
static int measure_inside(const char *file)
{
    char path[600], pid[32];
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    if (mz_os_write_text(path, pid))
        return 2;
    unsigned char *base = populate_huge();
    if (!base)
        return 2;
    memset(base, 9, BYTES); /* splitting frees pages of nothing but zeros, since Linux 6.12 */
    uint64_t full = charged(file);
    if (full < BYTES)
        return 2;
    release_halves(base, true, true);
    uint64_t half = charged(file);
    print_message("charged: %llu KiB, after half was released: %llu KiB\n", (unsigned long long)full / 1024,
                  (unsigned long long)half / 1024);
    /* CPUs keep up to 64 pages of charge each. */
    return half > full || full - half < BYTES / 2 - 4 * MIB || full - half > BYTES / 2 + 4 * MIB;
}

static void test_charge_falls(void **state)
{
    (void)state;
    const char *file = NULL;
    char path[600];
    if (make_group("/sys/fs/cgroup", "0::")) {
        snprintf(path, sizeof path, "%s/memory.current", group);
        file = access(path, R_OK) ? NULL : "memory.current";
        if (!file)
            rmdir(group);
    }
    if (!file && make_group("/sys/fs/cgroup/memory", ":memory:"))
        file = "memory.usage_in_bytes";
    if (!file) {
        print_message("skipped: no memory cgroup can be made here\n");
        skip();
    }
    pid_t child = fork();
    if (child == 0)
        _exit(measure_inside(file));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    for (int i = 0; rmdir(group) && errno == EBUSY && i < 1000; i++)
        usleep(10000); /* the dead child is counted a moment longer */
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) {
        print_message("skipped: the child could not enter the cgroup, or got no huge pages\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_upper_halves),
        cmocka_unit_test(test_lower_halves),
        cmocka_unit_test(test_only_the_edges),
        cmocka_unit_test(test_charge_falls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
