/* Limits of cgroups, from made-up trees: v1, v2, both, containers, and what is broken. */
#include "os_test.h"

#include "os/fault.h"
#include "os/machine.h"

#define MIB  (UINT64_C(1) << 20)
#define NONE UINT64_MAX

static void put_number(const char *folder, const char *file, uint64_t bytes)
{
    char name[400], text[40];
    snprintf(name, sizeof name, "%s/%s", folder, file);
    snprintf(text, sizeof text, bytes == NONE ? "max\n" : "%llu\n", (unsigned long long)bytes);
    make_text(name, text);
}

static void put_stat(const char *folder, const char *key, uint64_t bytes)
{
    char name[400], text[200];
    snprintf(name, sizeof name, "%s/memory.stat", folder);
    snprintf(text, sizeof text, "anon 5\nshmem 9\n%s %llu\nunevictable 0\n", key, (unsigned long long)bytes);
    make_text(name, text);
}

static void group_v2(const char *folder, uint64_t max, uint64_t high, uint64_t current, uint64_t inactive)
{
    put_number(folder, "memory.max", max);
    put_number(folder, "memory.high", high);
    put_number(folder, "memory.current", current);
    put_stat(folder, "inactive_file", inactive);
}

static void group_v1(const char *folder, uint64_t limit, uint64_t usage, uint64_t inactive)
{
    put_number(folder, "memory.limit_in_bytes", limit);
    put_number(folder, "memory.usage_in_bytes", usage);
    put_stat(folder, "total_inactive_file", inactive);
}

#define MOUNT_OTHER                                                                                          \
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\nnonsense\n23 22 0:21 / /proc rw - proc proc "   \
    "rw\n"
#define MOUNT_V2 "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_V1                                                                                             \
    "31 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"                                            \
    "32 22 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"

static void expect(uint64_t headroom, uint64_t limit, uint64_t current)
{
    uint64_t h = 1, l = 1, c = 1, together = 1;
    assert_int_equal(mz_machine_cgroup_headroom(&h), 0);
    assert_int_equal(mz_machine_cgroup_limit(&l, &c, &together), 0);
    assert_int_equal(together, h);
    assert_true(h == headroom);
    assert_true(l == limit);
    assert_true(c == current);
}

static void expect_error(int error)
{
    uint64_t h = 1, l = 1, c = 1, together = 1;
    assert_int_equal(mz_machine_cgroup_headroom(&h), error);
    assert_int_equal(mz_machine_cgroup_limit(&l, &c, &together), error);
    assert_true(h == 1 && l == 1 && c == 1 && together == 1);
}

static void test_none(void **state)
{
    (void)state;
    expect(NONE, NONE, 0); /* a kernel without cgroups */
    make_text("proc/self/cgroup", "0::/\n");
    expect(NONE, NONE, 0); /* not mounted */
    make_text("proc/self/mountinfo", MOUNT_OTHER MOUNT_V2);
    expect(NONE, NONE, 0); /* the root group has no files */
    make_text("proc/self/cgroup", "garbage\n::\n0:\n");
    expect(NONE, NONE, 0);
}

#define ROOT_V2 "sys/fs/cgroup"

static void test_v2(void **state)
{
    (void)state;
    make_text("proc/self/cgroup", "0::/user.slice/app.scope\n");
    make_text("proc/self/mountinfo", MOUNT_OTHER MOUNT_V2);
    group_v2(ROOT_V2 "/user.slice/app.scope", NONE, NONE, 300 * MIB, 0);
    group_v2(ROOT_V2 "/user.slice", NONE, NONE, 900 * MIB, 0);
    expect(NONE, NONE, 0);
    group_v2(ROOT_V2 "/user.slice/app.scope", 1000 * MIB, NONE, 300 * MIB, 0);
    expect(700 * MIB, 1000 * MIB, 300 * MIB);
    group_v2(ROOT_V2 "/user.slice/app.scope", 1000 * MIB, 500 * MIB, 300 * MIB,
             50 * MIB); /* high is tighter */
    expect(250 * MIB, 500 * MIB, 300 * MIB);
    group_v2(ROOT_V2 "/user.slice", 1000 * MIB, NONE, 900 * MIB, 0); /* an ancestor with less room */
    expect(100 * MIB, 500 * MIB, 300 * MIB);
    group_v2(ROOT_V2 "/user.slice", 800 * MIB, NONE, 900 * MIB, 20 * MIB); /* over its limit */
    expect(0, 500 * MIB, 300 * MIB);
    group_v2(ROOT_V2 "/user.slice", 0, NONE, 0, 0);
    expect(0, 0, 0);
}

static void test_v2_without_high_or_stat(void **state)
{
    (void)state;
    make_text("proc/self/cgroup", "0::/a\n");
    make_text("proc/self/mountinfo", MOUNT_V2);
    put_number(ROOT_V2 "/a", "memory.max", 100 * MIB);
    put_number(ROOT_V2 "/a", "memory.current", 40 * MIB);
    expect(60 * MIB, 100 * MIB, 40 * MIB);
    put_stat(ROOT_V2 "/a", "inactive_file", 50 * MIB); /* more than is charged */
    expect(100 * MIB, 100 * MIB, 40 * MIB);
}

static void test_v1(void **state)
{
    (void)state;
    const uint64_t unlimited = UINT64_C(9223372036854771712);
    make_text("proc/self/cgroup", "9:name=systemd:/x\n5:cpu,cpuacct:/y\n4:hugetlb,memory:/jobs/one\n0::/\n");
    make_text("proc/self/mountinfo", MOUNT_OTHER MOUNT_V1);
    group_v1("sys/fs/cgroup/memory", unlimited, 5000 * MIB, 0);
    group_v1("sys/fs/cgroup/memory/jobs", unlimited, 900 * MIB, 0);
    group_v1("sys/fs/cgroup/memory/jobs/one", unlimited, 300 * MIB, 0);
    expect(NONE, NONE, 0);
    group_v1("sys/fs/cgroup/memory/jobs", 1000 * MIB, 900 * MIB, 30 * MIB);
    expect(130 * MIB, 1000 * MIB, 900 * MIB);
    group_v1("sys/fs/cgroup/memory/jobs/one", 400 * MIB, 300 * MIB, 0);
    expect(100 * MIB, 400 * MIB, 300 * MIB);
    group_v1("sys/fs/cgroup/memory", 5010 * MIB, 5000 * MIB, 0);
    expect(10 * MIB, 400 * MIB, 300 * MIB);
}

/* v1's controller, and v2 mounted beside it for the rest. */
static void test_hybrid(void **state)
{
    (void)state;
    make_text("proc/self/cgroup", "4:memory:/jobs\n0::/user\n");
    make_text("proc/self/mountinfo",
              MOUNT_V1 "33 22 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    group_v1("sys/fs/cgroup/memory/jobs", 400 * MIB, 300 * MIB, 0);
    make_text("sys/fs/cgroup/unified/user/cgroup.procs", "1\n");
    expect(100 * MIB, 400 * MIB, 300 * MIB);
}

/* The container's own group lies at the mount point, with and without a namespace that says so. */
static void test_containers(void **state)
{
    (void)state;
    static const char mount[] = "40 22 0:26 /docker/abc /sys/fs/cgroup ro master:9 - cgroup2 cgroup rw\n";
    make_text("proc/self/mountinfo", mount);
    group_v2(ROOT_V2, 100 * MIB, NONE, 70 * MIB, 0);
    group_v2(ROOT_V2 "/inner", 50 * MIB, NONE, 30 * MIB, 0);
    make_text("proc/self/cgroup", "0::/docker/abc\n");
    expect(30 * MIB, 100 * MIB, 70 * MIB);
    make_text("proc/self/cgroup", "0::/docker/abc/inner\n");
    expect(20 * MIB, 50 * MIB, 30 * MIB);
    make_text("proc/self/cgroup", "0::/docker/abcdef\n"); /* another one: what is mounted is all we see */
    expect(30 * MIB, 100 * MIB, 70 * MIB);
    make_text("proc/self/cgroup", "0::/../other\n");
    expect(30 * MIB, 100 * MIB, 70 * MIB);
}

static void test_escapes(void **state)
{
    (void)state;
    make_text("proc/self/cgroup", "0::/a b\n");
    make_text("proc/self/mountinfo", "40 22 0:26 / /my\\040cgroups\\134x rw - cgroup2 cgroup rw\n");
    group_v2("my cgroups\\x/a b", 100 * MIB, NONE, 70 * MIB, 0);
    expect(30 * MIB, 100 * MIB, 70 * MIB);
}

static void test_broken(void **state)
{
    (void)state;
    make_text("proc/self/cgroup", "0::/a\n");
    make_text("proc/self/mountinfo", MOUNT_V2);
    group_v2(ROOT_V2 "/a", 100 * MIB, NONE, 70 * MIB, 0);
    expect(30 * MIB, 100 * MIB, 70 * MIB);
    make_text(ROOT_V2 "/a/memory.max", "lots\n");
    expect_error(-EBADMSG);
    make_text(ROOT_V2 "/a/memory.max", "");
    expect_error(-EBADMSG);
    group_v2(ROOT_V2 "/a", 100 * MIB, NONE, 70 * MIB, 0);
    make_text(ROOT_V2 "/a/memory.current", "-3\n");
    expect_error(-EBADMSG);
    assert_int_equal(unlink(in_folder(ROOT_V2 "/a/memory.current")), 0);
    expect_error(-EIO);
}

/* Each call fails in turn: an answer, or a plain error, and never a limit that is not there. */
static void test_faults(void **state)
{
    (void)state;
    make_text("proc/self/cgroup", "0::/a\n");
    make_text("proc/self/mountinfo", MOUNT_OTHER MOUNT_V2);
    group_v2(ROOT_V2 "/a", 100 * MIB, NONE, 70 * MIB, 10 * MIB);
    uint64_t n = 0, failed = 0;
    do {
        uint64_t headroom = 1;
        mz_fault_plan(MZ_FAULT_ANY, ++n, EIO, false);
        int r = mz_machine_cgroup_headroom(&headroom);
        failed += r != 0;
        /* Without memory.stat nothing counts as page cache. */
        assert_true(r ? r == -EIO && headroom == 1 : headroom == 40 * MIB || headroom == 30 * MIB);
    } while (mz_fault_hits());
    assert_true(failed >= 6);
    mz_fault_plan(MZ_FAULT_READ, 1, MZ_FAULT_SHORT, true);
    expect(40 * MIB, 100 * MIB, 70 * MIB);
}

/* Page cache is the kernel's to take back, in use or not, but for what a group on the way is promised to keep. */
static void test_page_cache(void **state)
{
    (void)state;
    static const struct {
        uint64_t inactive, active, own_min, min_below; /* MiB; of /a, and memory.min of /a/b */
        uint64_t headroom;
    } cases[] = {
        {0, 0, 0, 0, 30},       /* 100 allowed, 70 charged */
        {10, 0, 0, 0, 40},      {0, 50, 0, 0, 80},         /* a mapping that is read all the time */
        {10, 20, 0, 0, 60},     {40, 60, 0, 0, 100},       /* more than is charged */
        {10, 20, 50, 0, 60},    /* nothing guards a group against its own limit */
        {10, 20, 0, 12, 48},    {10, 20, 0, 30, 30},
        {10, 20, 0, 1000, 30},  /* more than it has */
    };
    make_text("proc/self/cgroup", "0::/a/b/c\n");
    make_text("proc/self/mountinfo", MOUNT_V2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        put_number(ROOT_V2 "/a", "memory.max", 100 * MIB);
        put_number(ROOT_V2 "/a", "memory.current", 70 * MIB);
        put_number(ROOT_V2 "/a", "memory.min", cases[i].own_min * MIB);
        put_number(ROOT_V2 "/a/b", "memory.min", cases[i].min_below * MIB);
        put_number(ROOT_V2 "/a/b/c", "memory.min", 25 * MIB); /* worth what the group above has */
        snprintf(text, sizeof text, "inactive_file %llu\nactive_file %llu\n",
                 (unsigned long long)(cases[i].inactive * MIB), (unsigned long long)(cases[i].active * MIB));
        make_text(ROOT_V2 "/a/memory.stat", text);
        expect(cases[i].headroom * MIB, 100 * MIB, 70 * MIB);
    }
    put_number(ROOT_V2 "/a/b", "memory.min", NONE);
    expect(30 * MIB, 100 * MIB, 70 * MIB);
}

static void test_page_cache_v1(void **state)
{
    (void)state;
    make_text("proc/self/cgroup", "4:memory:/a\n");
    make_text("proc/self/mountinfo", MOUNT_V1);
    group_v1("sys/fs/cgroup/memory/a", 100 * MIB, 70 * MIB, 0);
    make_text("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\nactive_file 1\ntotal_inactive_file 1048576\n"
                                                    "total_active_file 2097152\n");
    expect(33 * MIB, 100 * MIB, 70 * MIB);
}

/* Where the files of our own group are, to watch them. */
static void test_folder_of_our_group(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool unified;
        int r;
        const char *folder;
    } rows[] = {
        {"0::/user.slice/app.service\n", true, 0, "/sys/fs/cgroup/user.slice/app.service"},
        {"0::/\n", true, 0, "/sys/fs/cgroup"},
        {"4:memory:/box\n0::/a\n", true, 0, "/sys/fs/cgroup/a"},
        {"4:memory:/box\n0::/a\n", false, 0, "/sys/fs/cgroup/memory/box"},
        {"9:cpu,memory,io:/x\n", false, 0, "/sys/fs/cgroup/memory/x"},
        {"9:name=memory:/x\n", false, -ENOENT, NULL},
        {"0::/../other\n", true, -ENOENT, NULL}, /* outside of our namespace */
        {"0::/a", true, 0, "/sys/fs/cgroup/a"},
        {"", true, -ENOENT, NULL},
        {"0:", true, -ENOENT, NULL},
        {"0::relative\n", true, -ENOENT, NULL},
        {"garbage\n\n:::\n0::/late\n", true, 0, "/sys/fs/cgroup/late"},
        {"10::/a\n", true, -ENOENT, NULL},
    };
    char buf[64];
    make_text("proc/self/mountinfo", MOUNT_OTHER MOUNT_V1 MOUNT_V2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_text("proc/self/cgroup", rows[i].text);
        assert_int_equal(mz_machine_cgroup_folder(rows[i].unified, buf, sizeof buf), rows[i].r);
        if (rows[i].r == 0)
            assert_string_equal(buf, rows[i].folder);
    }
    make_text("proc/self/cgroup", "0::/long-long-long-long-long-long-long-long-long-long-long\n");
    assert_int_equal(mz_machine_cgroup_folder(true, buf, sizeof buf), -ENAMETOOLONG);
}

/* A container sees the tree from its own group, whether /proc names that by a path of the host or not. */
static void test_our_group_in_a_container(void **state)
{
    (void)state;
    char buf[64];
    make_text("proc/self/mountinfo", "40 22 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    make_text("proc/self/cgroup", "0::/docker/abc/inner\n");
    assert_int_equal(mz_machine_cgroup_folder(true, buf, sizeof buf), 0);
    assert_string_equal(buf, "/sys/fs/cgroup/inner");
    make_text("proc/self/cgroup", "0::/docker/abcdef\n");
    assert_int_equal(mz_machine_cgroup_folder(true, buf, sizeof buf), -ENOENT);
    assert_int_equal(unlink(in_folder("proc/self/mountinfo")), 0);
    assert_int_equal(mz_machine_cgroup_folder(true, buf, sizeof buf), -ENOENT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_root, tear_down_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_none),    TEST(test_v2),     TEST(test_v2_without_high_or_stat),
        TEST(test_v1),      TEST(test_hybrid), TEST(test_containers),
        TEST(test_escapes), TEST(test_broken), TEST(test_faults),
        TEST(test_page_cache), TEST(test_page_cache_v1), TEST(test_folder_of_our_group), TEST(test_our_group_in_a_container),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
