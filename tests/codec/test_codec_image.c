/*
 * Images: the header's bytes, the table of codecs, sizes, errors, what is rejected (a flipped bit anywhere, a
 * cut image, another chunk's image), NaN and infinities, and that nothing is written where it should not be.
 * Golden hashes pin the format down: images of earlier versions must stay readable or be refused by their
 * version.
 */
#include "cmocka_all.h"
#include "codec/codec.h"
#include "codec_data.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS 1000u
#define BYTES    (2u * ELEMENTS)
#define CAP      4096u
#define GUARD    0xa5

static const struct mz_chunk_key key = {
    .owner = 4, .layer = 11, .chunk = 3, .row_elements = 128, .k_or_v = 1};

static uint16_t plain[ELEMENTS];
static uint8_t image[CAP], out[BYTES + 128];

static uint64_t encode(const char *name, enum codec_family family)
{
    uint64_t n = 0;
    codec_fill(family, 1, ELEMENTS, 128, plain);
    assert_int_equal(mz_codec_encode(mz_codec_find(name), &key, plain, BYTES, image, CAP, &n), 0);
    return n;
}

static void table(void **state)
{
    static const char *const names[] = {"raw", "q8", "q8_flexgen"};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        const struct mz_codec *codec = mz_codec_find(names[i]);
        assert_non_null(codec);
        assert_ptr_equal(codec, mz_codec_at(i));
        assert_ptr_equal(codec, mz_codec_by_id(codec->id));
        assert_int_equal(codec->id, i);
        assert_int_equal(codec->lossy, i != 0);
        assert_true(codec->idempotent);
    }
    assert_null(mz_codec_at(3));
    assert_null(mz_codec_find("zip"));
    assert_null(mz_codec_find(NULL));
    assert_null(mz_codec_by_id(77));
}

static void sizes(void **state)
{
    const struct mz_codec *q8 = mz_codec_find("q8"), *flexgen = mz_codec_find("q8_flexgen");
    (void)state;
    assert_int_equal(mz_codec_image_bytes(q8, 2048), 64 + 1088);
    assert_int_equal(mz_codec_image_bytes(flexgen, 2048), 64 + 1088);
    assert_int_equal(mz_codec_image_bytes(q8, 2), 64 + 3);
    assert_int_equal(mz_codec_bound(q8, 2048), 64 + 2048);
    assert_int_equal(mz_codec_bound(q8, 2), 64 + 3);
    assert_int_equal(mz_codec_bound(mz_codec_find("raw"), 0), 64);
    assert_true(mz_codec_bound(q8, UINT64_MAX) == UINT64_MAX);
    assert_true(mz_codec_bound(q8, UINT64_MAX - 1) == UINT64_MAX);
}

static void header_says_what_it_holds(void **state)
{
    struct mz_codec_image read;
    (void)state;
    uint64_t n = encode("q8", FAMILY_GAUSSIAN);
    /* magic, version 1, codec 1 of version 1, asked for 1, lossy, V */
    assert_memory_equal(image, "MZKV\1\0\1\0\1\0\1\0\1\0\1\0", 16);
    assert_int_equal(mz_codec_image_read(image, n, &read), 0);
    assert_string_equal(read.codec->name, "q8");
    assert_string_equal(read.asked->name, "q8");
    assert_int_equal(read.plain_bytes, BYTES);
    assert_int_equal(read.payload_bytes, n - MZ_CODEC_HEADER_BYTES);
    assert_memory_equal(&read.key, &key, offsetof(struct mz_chunk_key, k_or_v) + sizeof(key.k_or_v));
    assert_true(mz_codec_is_lossy_image(image, n));
    assert_false(mz_codec_is_lossy_image(image, 63));
    n = encode("raw", FAMILY_GAUSSIAN);
    assert_false(mz_codec_is_lossy_image(image, n));
}

/* Nothing outside of the image and the chunk is written, and padding behind an image is ignored. */
static void bounds(void **state)
{
    (void)state;
    for (unsigned c = 0; mz_codec_at(c); c++)
        for (uint64_t elements = 0; elements < 300; elements++) {
            const uint64_t exact = mz_codec_image_bytes(mz_codec_at(c), 2 * elements);
            uint64_t n = 0;
            codec_fill(FAMILY_T2, elements, elements, 64, plain);
            memset(image, GUARD, sizeof(image));
            assert_int_equal(
                mz_codec_encode(mz_codec_at(c), &key, plain, 2 * elements, image + 64, exact, &n), 0);
            assert_int_equal(n, exact);
            for (unsigned i = 0; i < 64; i++)
                assert_true(image[i] == GUARD && image[64 + n + i] == GUARD);
            memset(out, GUARD, sizeof(out));
            assert_int_equal(mz_codec_decode(&key, image + 64, n + 64, out + 64, 2 * elements), 0);
            for (unsigned i = 0; i < 64; i++)
                assert_true(out[i] == GUARD && out[64 + 2 * elements + i] == GUARD);
        }
}

static void too_small_and_odd(void **state)
{
    const struct mz_codec *q8 = mz_codec_find("q8");
    const uint64_t exact = mz_codec_image_bytes(q8, BYTES);
    uint64_t n = 12345;
    (void)state;
    codec_fill(FAMILY_GAUSSIAN, 1, ELEMENTS, 128, plain);
    for (uint64_t cap = 0; cap < exact; cap += cap < 70 ? 1 : 61)
        assert_int_equal(mz_codec_encode(q8, &key, plain, BYTES, image, cap, &n), -ENOSPC);
    assert_int_equal(mz_codec_encode(q8, &key, plain, BYTES - 1, image, CAP, &n), -EINVAL);
    assert_int_equal(mz_codec_encode(q8, &key, plain, UINT64_MAX - 1, image, CAP, &n), -EINVAL);
    plain[ELEMENTS - 1] = 0x7e00;
    assert_int_equal(mz_codec_encode(q8, &key, plain, BYTES, image, exact, &n), -ENOSPC);
    assert_int_equal(n, 12345);
}

static void nonfinite_is_raw(void **state)
{
    static const uint16_t values[] = {0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xffff};
    static const unsigned places[] = {0, 31, 32, 500, 767, 768, ELEMENTS - 9, ELEMENTS - 1};
    (void)state;
    for (unsigned isa = 0; mz_codec_isa_at(isa); isa++) {
        if (mz_codec_isa_select(mz_codec_isa_at(isa)) != 0)
            continue;
        for (unsigned i = 0; i < 6 * 8 * 2; i++) {
            const struct mz_codec *codec = mz_codec_at(1 + i % 2);
            struct mz_codec_image read;
            uint64_t n = 0;
            codec_fill(FAMILY_T2, i, ELEMENTS, 128, plain);
            plain[places[i / 2 % 8]] = values[i / 16];
            assert_int_equal(mz_codec_encode(codec, &key, plain, BYTES, image, CAP, &n), 0);
            assert_int_equal(mz_codec_image_read(image, n, &read), 0);
            assert_string_equal(read.codec->name, "raw");
            assert_ptr_equal(read.asked, codec);
            assert_false(mz_codec_is_lossy_image(image, n));
            assert_int_equal(mz_codec_decode(&key, image, n, out, BYTES), 0);
            assert_memory_equal(out, plain, BYTES);
        }
    }
    mz_codec_isa_select(NULL);
}

static void assert_untouched(void)
{
    for (unsigned i = 0; i < sizeof(out); i++)
        assert_int_equal(out[i], GUARD);
}

static void flipped_bits(void **state)
{
    (void)state;
    memset(out, GUARD, sizeof(out));
    for (unsigned c = 0; mz_codec_at(c); c++) {
        uint64_t n = encode(mz_codec_at(c)->name, FAMILY_GAUSSIAN);
        for (uint64_t bit = 0; bit < 8 * n; bit++) {
            image[bit / 8] = (uint8_t)(image[bit / 8] ^ 1u << bit % 8);
            int rc = mz_codec_decode(&key, image, n, out, BYTES);
            assert_true(rc == -EBADMSG || (rc == -EINVAL && bit < 8 * MZ_CODEC_HEADER_BYTES));
            image[bit / 8] = (uint8_t)(image[bit / 8] ^ 1u << bit % 8);
        }
        assert_untouched();
    }
}

static void misdirected(void **state)
{
    struct mz_chunk_key other[5];
    (void)state;
    memset(out, GUARD, sizeof(out));
    uint64_t n = encode("q8", FAMILY_GAUSSIAN);
    for (unsigned i = 0; i < 5; i++)
        other[i] = key;
    other[0].owner++;
    other[1].layer++;
    other[2].chunk++;
    other[3].row_elements *= 2;
    other[4].k_or_v ^= 1;
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(mz_codec_decode(&other[i], image, n, out, BYTES), -EBADMSG);
    /* A forged key does not help: the hash is seeded with it. */
    image[36]++;
    assert_int_equal(mz_codec_decode(&other[2], image, n, out, BYTES), -EBADMSG);
    assert_untouched();
}

static void cut_and_wrong_sizes(void **state)
{
    (void)state;
    memset(out, GUARD, sizeof(out));
    for (unsigned c = 0; mz_codec_at(c); c++) {
        uint64_t n = encode(mz_codec_at(c)->name, FAMILY_GAUSSIAN);
        for (uint64_t cut = 0; cut < n; cut++)
            assert_int_equal(mz_codec_decode(&key, image, cut, out, BYTES), -EINVAL);
        assert_int_equal(mz_codec_decode(&key, image, n, out, BYTES - 2), -EINVAL);
        assert_int_equal(mz_codec_decode(&key, image, n, out, BYTES + 2), -EINVAL);
        assert_int_equal(mz_codec_decode(&key, image, n, out, 0), -EINVAL);
    }
    memset(image, 0, sizeof(image));
    assert_int_equal(mz_codec_decode(&key, image, CAP, out, BYTES), -EINVAL);
    assert_untouched();
}

static uint64_t fnv(const uint8_t *data, uint64_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static void golden(void **state)
{
    static const uint64_t expected[] = {0xac390b01df9595f3u, 0x77feb99e8b8f0e0fu, 0x19dfccacd263c2f0u};
    (void)state;
    for (unsigned c = 0; c < 3; c++) {
        uint64_t n = encode(mz_codec_at(c)->name, FAMILY_T2);
        print_message("%s: 0x%016llx\n", mz_codec_at(c)->name, (unsigned long long)fnv(image, n));
        assert_true(fnv(image, n) == expected[c]);
    }
}

struct worker {
    uint8_t image[CAP], out[BYTES];
    uint16_t plain[ELEMENTS];
    uint32_t layer;
    int failures;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct mz_chunk_key own = key;
    own.layer = worker->layer;
    for (unsigned i = 0; i < 200; i++) {
        const struct mz_codec *codec = mz_codec_at(i % 3);
        uint64_t n = 0;
        codec_fill(FAMILY_GAUSSIAN, i, ELEMENTS, 128, worker->plain);
        if (mz_codec_encode(codec, &own, worker->plain, BYTES, worker->image, CAP, &n) != 0 ||
            mz_codec_decode(&own, worker->image, n, worker->out, BYTES) != 0 ||
            (!codec->lossy && memcmp(worker->out, worker->plain, BYTES) != 0))
            worker->failures++;
    }
    return NULL;
}

static void threads(void **state)
{
    static struct worker workers[4];
    pthread_t ids[4];
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        workers[i].layer = i;
        assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(ids[i], NULL);
        assert_int_equal(workers[i].failures, 0);
    }
}

int main(void)
{
    /* The threads first: they race for the choice of the instruction set. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads),
        cmocka_unit_test(table),
        cmocka_unit_test(sizes),
        cmocka_unit_test(header_says_what_it_holds),
        cmocka_unit_test(bounds),
        cmocka_unit_test(too_small_and_odd),
        cmocka_unit_test(nonfinite_is_raw),
        cmocka_unit_test(flipped_bits),
        cmocka_unit_test(misdirected),
        cmocka_unit_test(cut_and_wrong_sizes),
        cmocka_unit_test(golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
