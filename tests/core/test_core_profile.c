/* The profile: what is saved is loaded, what cannot be is refused whatever is wrong with it, times follow
 * from sizes, learning is slow and bounded, and measuring gives figures for everything. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "codec/codec.h"
#include "core/profile.h"
#include "core/profile_measure.h"
#include "os/fault.h"

#define MIB (UINT64_C(1) << 20)

static char folder[] = "/var/tmp/mz-profile-XXXXXX";
static char cache[64], saved[96];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(cache, sizeof cache, "%s/mzcache", folder);
    snprintf(saved, sizeof saved, "%s/profile-disk0.json", cache);
    return setenv("XDG_CACHE_HOME", folder, 1);
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(saved);
    rmdir(cache);
    return rmdir(folder); /* fails when a file is left in it */
}

static struct mz_profile example(void)
{
    struct mz_profile p;
    mz_profile_guess(&p, 4);
    memcpy(p.device, "disk0", sizeof "disk0");
    p.when = 1750000000;
    p.read_gbps = 2.5;
    p.write_gbps = 1.25;
    p.read_factor = 0.5;
    p.decode_gbps[MZ_CODEC_Q8] = 40;
    p.encode_gbps[MZ_CODEC_Q8] = 20;
    p.decode_factor[MZ_CODEC_Q8] = 0.75;
    for (uint32_t i = 0; i < MZ_PROFILE_SIZES; i++)
        p.read_curve_gbps[i] = 1 + i / 4.0;
    p.request_bytes = 1u << 20;
    return p;
}

static void write_saved(const char *text, size_t bytes)
{
    FILE *file = fopen(saved, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct mz_profile p = example(), back;
    assert_int_equal(mz_profile_load("disk0", &back), -ENOENT);
    assert_int_equal(mz_profile_save(&p), 0); /* makes the folder */
    memset(&back, 0xee, sizeof back);
    assert_int_equal(mz_profile_load("disk0", &back), 0);
    assert_memory_equal(&back.decode_gbps, &p.decode_gbps, sizeof p.decode_gbps);
    assert_memory_equal(&back.encode_gbps, &p.encode_gbps, sizeof p.encode_gbps);
    assert_memory_equal(&back.decode_factor, &p.decode_factor, sizeof p.decode_factor);
    assert_memory_equal(&back.read_curve_gbps, &p.read_curve_gbps, sizeof p.read_curve_gbps);
    assert_true(back.read_gbps == 2.5 && back.write_gbps == 1.25 && back.read_factor == 0.5);
    assert_int_equal(back.request_bytes, 1u << 20);
    assert_int_equal(back.workers, 4);
    assert_int_equal(back.when, 1750000000);
    assert_string_equal(back.device, "disk0");
    p.read_gbps = 3; /* replaces */
    assert_int_equal(mz_profile_save(&p), 0);
    assert_int_equal(mz_profile_load("disk0", &back), 0);
    assert_true(back.read_gbps == 3);
    assert_int_equal(mz_profile_load("disk1", &back), -ENOENT);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",   "a/b",     "/",
        "..", ".hidden", "0123456789012345678901234567890123456789012345678901234567890123456789"};
    char path[4096];
    struct mz_profile p = example();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(mz_profile_path(bad[i], path, sizeof path), -EINVAL);
        assert_int_equal(mz_profile_load(bad[i], &p), -EINVAL);
    }
    memcpy(p.device, "a/b", 4);
    assert_int_equal(mz_profile_save(&p), -EINVAL);
    memset(p.device, 'x', sizeof p.device); /* no end */
    assert_int_equal(mz_profile_save(&p), -EINVAL);
    assert_int_equal(mz_profile_path("disk0", path, 10), -ENAMETOOLONG);
    assert_int_equal(mz_profile_path("disk0", path, sizeof path), 0);
    assert_string_equal(path, saved);
}

/* What a device is called comes from /sys, which a test can replace. */
static void test_device(void **state)
{
    (void)state;
    char name[64], small[4];
    setenv("MZ_SYSROOT", "/nonexistent", 1);
    assert_int_equal(mz_profile_device(makedev(7, 13), name, sizeof name), 0);
    assert_string_equal(name, "dev-7-13");
    assert_int_equal(mz_profile_device(makedev(7, 13), small, sizeof small), -ENOSPC);
    unsetenv("MZ_SYSROOT");
    assert_int_equal(mz_profile_measure_device(folder, true, name, sizeof name), 0);
    assert_null(strchr(name, '/'));
    assert_true(*name != 0 && *name != '.');
    assert_true(mz_profile_measure_device("/dev/null/none", true, name, sizeof name) < 0);
}

/* Each is a whole file; none may be believed. */
static void test_malformed(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "null",
        "{}",
        "\"version\"",
        "not json",
        "{\"version\":2,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536}",
        "{\"version\":\"1\",\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536}",
        "{\"version\":1,\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536}",
        "{\"version\":1,\"device\":\"disk1\",\"when\":1,\"workers\":1,\"request_bytes\":65536}",
        "{\"version\":1,\"device\":7,\"when\":1,\"workers\":1,\"request_bytes\":65536}",
        "{\"version\":1,\"device\":\"a/../disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":-1,\"workers\":1,\"request_bytes\":65536}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":0,\"request_bytes\":65536}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":4294967297,\"request_bytes\":65536}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":0}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65537}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":33554432}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,\"read_gbps\":"
        "\"2\"}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,\"read_gbps\":-"
        "2}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,\"read_gbps\":"
        "1e300}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,\"read_gbps\":"
        "1e-300}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,\"read_"
        "factor\":0}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,\"read_"
        "factor\":5}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,\"codecs\":[]}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,\"codecs\":{"
        "\"q8\":1}}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,"
        "\"codecs\":{\"q8\":{\"decode_gbps\":true}}}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,"
        "\"codecs\":{\"q8\":{\"decode_gbps\":1e9}}}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,\"read_curve_"
        "gbps\":1}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,"
        "\"read_curve_gbps\":[1,1,1,1,1,1,1,1]}",
        "{\"version\":1,\"device\":\"disk0\",\"when\":1,\"workers\":1,\"request_bytes\":65536,"
        "\"read_curve_gbps\":[\"1\"]}",
    };
    struct mz_profile p = example(), before = p;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_saved(bad[i], strlen(bad[i]));
        assert_int_equal(mz_profile_load("disk0", &p), -EBADMSG);
    }
    write_saved("{}\0{}", 5); /* a NUL inside */
    assert_int_equal(mz_profile_load("disk0", &p), -EBADMSG);
    char *large = malloc(1 << 20);
    memset(large, ' ', 1 << 20);
    write_saved(large, 1 << 20);
    free(large);
    assert_int_equal(mz_profile_load("disk0", &p), -EBADMSG);
    assert_memory_equal(&p, &before, sizeof p); /* written only on success */
}

/* Every beginning of a good file, and every file with one byte changed: refused, or figures that can be. */
static void test_damaged(void **state)
{
    (void)state;
    struct mz_profile p = example(), back;
    char *text;
    assert_int_equal(mz_profile_print(&p, &text), 0);
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] != '}')
        length--;
    for (size_t i = 0; i < length; i++) {
        char kept = text[i];
        text[i] = 0;
        assert_int_equal(mz_profile_parse(text, &back), -EBADMSG);
        for (unsigned j = 0; j < 3; j++) {
            text[i] = "9-\""[j];
            if (mz_profile_parse(text, &back) == 0) {
                assert_true(isfinite(mz_profile_gbps(&back, MZ_PROFILE_READ)));
                assert_true(mz_profile_gbps(&back, MZ_PROFILE_READ) > 0);
                assert_true(back.workers >= 1 && back.request_bytes >= 65536);
            }
        }
        text[i] = kept;
    }
    assert_int_equal(mz_profile_parse(text, &back), 0);
    free(text);
}

static void test_minimal(void **state)
{
    (void)state;
    struct mz_profile p;
    /* Codecs of another build are passed over; what is missing is a guess. */
    assert_int_equal(
        mz_profile_parse("{\"version\":1,\"device\":\"disk0\",\"when\":0,\"workers\":2,"
                         "\"request_bytes\":65536,\"codecs\":{\"new\":{\"decode_gbps\":1}},\"more\":[]}",
                         &p),
        0);
    assert_true(p.read_gbps == 0 && p.read_factor == 1);
    assert_true(mz_profile_gbps(&p, MZ_PROFILE_READ) == 1);
    assert_true(mz_profile_gbps(&p, MZ_PROFILE_DECODE + MZ_CODEC_Q8) == 4); /* one of the two decodes */
    p.workers = 8;
    assert_true(mz_profile_gbps(&p, MZ_PROFILE_DECODE + MZ_CODEC_Q8) == 16);
    struct mz_profile empty = {0}; /* nobody filled it in */
    for (uint32_t path = 0; path < 64; path++)
        assert_true(mz_profile_gbps(&empty, path) > 0);
}

static void test_times(void **state)
{
    (void)state;
    struct mz_profile p = example(); /* reads at 2.5 * 0.5 GB/s, decodes at 40 * 0.75 */
    assert_true(mz_profile_read_ns(&p, 1250) == 1000);
    assert_true(mz_profile_decode_ns(&p, MZ_CODEC_Q8, 30000) == 1000);
    assert_true(mz_profile_read_ns(&p, 0) == 0);
    assert_true(mz_profile_decode_ns(&p, 99, 16000) > 0);
    double sum = 0;
    for (int i = 1; i < 1000; i++) {
        double ns = mz_profile_read_ns(&p, (uint64_t)i * 1237);
        assert_true(ns == floor(ns));
        sum += ns;
    }
    for (int i = 999; i > 0; i--)
        sum -= mz_profile_read_ns(&p, (uint64_t)i * 1237);
    assert_true(sum == 0);
}

/* A path that became three times slower, then as fast again; and nonsense. */
static void test_learning(void **state)
{
    (void)state;
    static const uint32_t paths[] = {MZ_PROFILE_READ, MZ_PROFILE_WRITE, MZ_PROFILE_DECODE + MZ_CODEC_Q8,
                                     MZ_PROFILE_ENCODE + MZ_CODEC_RAW};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct mz_profile p;
        mz_profile_guess(&p, 2);
        double base = mz_profile_gbps(&p, paths[i]), last = base;
        uint64_t bytes = 64 * MIB, slow_ns = (uint64_t)((double)bytes / (base / 3));
        for (int j = 0; j < 60; j++) {
            mz_profile_learn(&p, paths[i], bytes, slow_ns);
            double now = mz_profile_gbps(&p, paths[i]);
            assert_true(now <= last && now > last * 0.8); /* slowly */
            last = now;
        }
        assert_true(fabs(last / base - 1 / 3.0) < 0.01);
        for (int j = 0; j < 60; j++)
            mz_profile_learn(&p, paths[i], bytes, slow_ns / 3);
        assert_true(fabs(mz_profile_gbps(&p, paths[i]) / base - 1) < 0.02);
        for (int j = 0; j < 200; j++)
            mz_profile_learn(&p, paths[i], UINT64_MAX, 1); /* as fast as can be: within bounds */
        assert_true(mz_profile_gbps(&p, paths[i]) == base * 4);
        for (int j = 0; j < 200; j++)
            mz_profile_learn(&p, paths[i], 64 * MIB, UINT64_MAX);
        assert_true(mz_profile_gbps(&p, paths[i]) == base / 4);
        struct mz_profile before = p;
        mz_profile_learn(&p, paths[i], MIB - 1, 1); /* too small to mean anything */
        mz_profile_learn(&p, paths[i], MIB, 0);
        assert_memory_equal(&p, &before, sizeof p);
    }
}

/* Other paths stay as they were; a small sample counts less. */
static void test_learning_is_apart(void **state)
{
    (void)state;
    struct mz_profile p = example(), large = p, small = p;
    mz_profile_learn(&large, MZ_PROFILE_READ, 64 * MIB, 64 * MIB);
    mz_profile_learn(&small, MZ_PROFILE_READ, MIB, MIB);
    double moved_large = fabs(large.read_factor - p.read_factor),
           moved_small = fabs(small.read_factor - p.read_factor);
    assert_true(moved_large > 0 && moved_small > 0 && moved_small < moved_large / 10);
    large.read_factor = p.read_factor;
    assert_memory_equal(&large, &p, sizeof p);
}

/* Saving with the n-th call failing: the file is the old one or the new one, whole. Returns whether a call
 * failed. */
static bool save_with_fault(uint64_t n)
{
    struct mz_profile old = example(), new = old, back;
    new.read_gbps = 7;
    assert_int_equal(mz_profile_save(&old), 0);
    mz_fault_plan(MZ_FAULT_ANY, n, EIO, false);
    int r = mz_profile_save(&new);
    bool failed = mz_fault_hits() > 0;
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(mz_profile_load("disk0", &back), 0);
    assert_true(back.read_gbps == (r == 0 ? 7 : 2.5));
    assert_true(failed || r == 0);
    return failed;
}

static void test_saving_fails(void **state)
{
    (void)state;
    struct mz_profile p = example(), back;
    uint64_t n = 1;
    while (save_with_fault(n))
        assert_true(n++ < 20);
    assert_true(n > 1);
    for (int kind = MZ_FAULT_READ; kind <= MZ_FAULT_OPEN; kind++) {
        if (kind == MZ_FAULT_WRITE)
            continue;
        mz_fault_plan((enum mz_fault_kind)kind, 1, EIO, true);
        assert_int_equal(mz_profile_load("disk0", &back), -EIO);
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    }
    mz_fault_plan(MZ_FAULT_READ, 1, MZ_FAULT_SHORT, true);
    assert_int_equal(mz_profile_load("disk0", &back), 0);
    mz_fault_plan(MZ_FAULT_WRITE, 1, MZ_FAULT_SHORT, true);
    assert_int_equal(mz_profile_save(&p), 0);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    p.read_gbps = NAN;
    assert_int_equal(mz_profile_save(&p), -EINVAL);
}

/* -------------------------------------------------------------------------------- measuring */

static struct mz_profile_job job(void)
{
    return (struct mz_profile_job){
        .folder = folder, .force = true, .uring = true, .workers = 2, .file_bytes = 8 * MIB};
}

static void test_measures(void **state)
{
    (void)state;
    for (int uring = 0; uring < 2; uring++) {
        struct mz_profile_job quick = job();
        struct mz_profile p;
        char *text;
        quick.uring = uring;
        assert_int_equal(mz_profile_measure(&quick, &p), 0);
        assert_true(p.read_gbps > 0 && p.write_gbps > 0);
        const struct mz_codec *codec;
        for (unsigned i = 0; (codec = mz_codec_at(i)); i++)
            if (codec->id < MZ_PROFILE_CODECS)
                assert_true(p.decode_gbps[codec->id] > 0 && p.encode_gbps[codec->id] > 0);
        assert_true(p.when > 0 && p.workers == 2);
        assert_true(p.request_bytes >= 256u << 10 && p.request_bytes <= 4u << 20);
        assert_int_equal(mz_profile_print(&p, &text), 0); /* all of it can be */
        print_message("%s\n", text);
        free(text);
    }
}

/* The process's madvise(), seen on its way: whether a piece of memory was taken again that had been given back alone. Of
 * one lane, whose threads run one after the other. */
static struct {
    bool on;
    uintptr_t released;
    size_t bytes;
    uint32_t taken, recycled;
} memory;

int madvise(void *address, size_t bytes, int advice)
{
    uintptr_t at = (uintptr_t)address;

    if (memory.on && advice == MADV_DONTNEED) {
        memory.released = at;
        memory.bytes = bytes;
    } else if (memory.on && advice == MADV_POPULATE_WRITE) {
        memory.taken++;
        memory.recycled += at == memory.released && bytes == memory.bytes && bytes < 64 * MIB;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

/* A few pieces of memory used again and again are faster than what restoring finds. */
static void test_reads_into_distinct_memory(void **state)
{
    (void)state;
    struct mz_profile_job one = job();
    struct mz_profile p;
    one.workers = 1;
    one.file_bytes = 64 * MIB;
    memory.on = true;
    assert_int_equal(mz_profile_measure(&one, &p), 0);
    memory.on = false;
    assert_true(memory.taken > 3); /* filling, and a piece of each size of request */
    assert_int_equal(memory.recycled, 0);
}

static void test_measuring_fails(void **state)
{
    (void)state;
    static const enum mz_fault_kind kinds[] = {MZ_FAULT_OPEN,    MZ_FAULT_WRITE, MZ_FAULT_READ,
                                               MZ_FAULT_ALLOC,   MZ_FAULT_MMAP,  MZ_FAULT_THREAD,
                                               MZ_FAULT_POPULATE};
    struct mz_profile_job plain = job();
    struct mz_profile p = example(), before = p;
    plain.uring = false;
    plain.file_bytes = MIB;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        mz_fault_plan(kinds[i], 1, EIO, true);
        int r = mz_profile_measure(&plain, &p);
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
        assert_true(r < 0);
        assert_memory_equal(&p, &before, sizeof p);
    }
    plain.workers = 0;
    assert_int_equal(mz_profile_measure(&plain, &p), -EINVAL);
    plain.workers = MZ_PROFILE_WORKERS + 1;
    assert_int_equal(mz_profile_measure(&plain, &p), -EINVAL);
    plain.workers = 1;
    plain.file_bytes = 1;
    assert_int_equal(mz_profile_measure(&plain, &p), -EINVAL);
}

static void test_every_second_worker_decodes(void **state)
{
    (void)state;
    assert_int_equal(mz_profile_decoders(0), 1);
    assert_int_equal(mz_profile_decoders(1), 1); /* who reads, too */
    for (uint32_t workers = 2, decoders = 1; workers <= 16; workers++) {
        assert_int_equal(mz_profile_decoders(workers), decoders);
        decoders += mz_profile_decodes(workers);
    }
    assert_false(mz_profile_decodes(0));
    assert_true(mz_profile_decodes(1));
    assert_false(mz_profile_decodes(2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_minimal),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_learning),
        cmocka_unit_test(test_learning_is_apart),
        cmocka_unit_test(test_saving_fails),
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_reads_into_distinct_memory),
        cmocka_unit_test(test_measuring_fails),
        cmocka_unit_test(test_every_second_worker_decodes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
