/*
 * Every instruction set gives the same bytes as the portable code: images of every data family and of many
 * element counts, from and to unaligned addresses, decoded chunks, every code with every maximum, hashes. The
 * floating-point environment of the calling thread changes nothing and is left as it was.
 */
#include "cmocka_all.h"
#include "codec/codec.h"
#include "codec/codec_int.h"
#include "codec_data.h"

#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define ELEMENTS_MAX 20000u
#define BYTES_MAX    (2u * ELEMENTS_MAX)
#define CAP          (MZ_CODEC_HEADER_BYTES + 2u * BYTES_MAX)

static const struct mz_chunk_key key = {.owner = 9, .layer = 2, .chunk = 7, .row_elements = 64};

static uint8_t plain[BYTES_MAX + 64], image[2][CAP + 64], decoded[2][BYTES_MAX + 64];

/* Calls check for each instruction set but the portable one; says which ones this CPU lacks. */
static void for_each_isa(void (*check)(const char *isa))
{
    for (unsigned i = 0; mz_codec_isa_at(i); i++) {
        const char *isa = mz_codec_isa_at(i);
        if (strcmp(isa, "portable") == 0)
            continue;
        if (mz_codec_isa_select(isa) != 0)
            print_message("%s: not on this CPU\n", isa);
        else
            check(isa);
    }
    mz_codec_isa_select(NULL);
}

static uint64_t encode_with(const char *isa, const struct mz_codec *codec, const uint8_t *src, uint64_t bytes,
                            uint8_t *dst)
{
    uint64_t image_bytes = 0;
    assert_int_equal(mz_codec_isa_select(isa), 0);
    assert_int_equal(mz_codec_encode(codec, &key, src, bytes, dst, CAP, &image_bytes), 0);
    return image_bytes;
}

static void decode_with(const char *isa, const uint8_t *src, uint64_t src_bytes, uint8_t *dst, uint64_t bytes)
{
    assert_int_equal(mz_codec_isa_select(isa), 0);
    assert_int_equal(mz_codec_decode(&key, src, src_bytes, dst, bytes), 0);
}

static void compare_one(const char *isa, const struct mz_codec *codec, enum codec_family family,
                        uint64_t elements)
{
    static uint16_t aligned[ELEMENTS_MAX];
    const uint64_t bytes = 2 * elements, shift = elements % 37;
    codec_fill(family, elements, elements, 64, aligned);
    memcpy(plain + shift, aligned, bytes);
    uint64_t n = encode_with("portable", codec, plain + shift, bytes, image[0]);
    assert_int_equal(encode_with(isa, codec, plain + shift, bytes, image[1] + shift), n);
    if (memcmp(image[0], image[1] + shift, n) != 0)
        fail_msg("%s encodes %s otherwise with %s (%llu elements)", codec->name, codec_family_name(family),
                 isa, (unsigned long long)elements);
    decode_with("portable", image[0], n, decoded[0], bytes);
    decode_with(isa, image[1] + shift, n, decoded[1] + shift + 1, bytes);
    if (memcmp(decoded[0], decoded[1] + shift + 1, bytes) != 0)
        fail_msg("%s decodes %s otherwise with %s (%llu elements)", codec->name, codec_family_name(family),
                 isa, (unsigned long long)elements);
}

static void compare_families(const char *isa)
{
    for (unsigned c = 0; mz_codec_at(c); c++)
        for (unsigned f = 0; f < FAMILY_COUNT; f++) {
            for (uint64_t elements = 0; elements < 1100; elements += 1 + elements / 40)
                compare_one(isa, mz_codec_at(c), (enum codec_family)f, elements);
            compare_one(isa, mz_codec_at(c), (enum codec_family)f, ELEMENTS_MAX);
        }
}

static void same_images(void **state)
{
    (void)state;
    for_each_isa(compare_families);
}

/* All codes of all maxima: also the ones that no encoder writes, as -128. */
static void compare_payloads(const char *isa)
{
    const struct mz_codec_kernels *portable, *other;
    uint8_t maxima[2 * 8], codes[8 * MZ_Q8_GROUP], out[2][8 * 2 * MZ_Q8_GROUP];
    assert_int_equal(mz_codec_isa_select("portable"), 0);
    portable = mz_codec_kernels();
    assert_int_equal(mz_codec_isa_select(isa), 0);
    other = mz_codec_kernels();
    for (unsigned maximum = 0; maximum < MZ_HALF_INF; maximum++) {
        for (unsigned i = 0; i < sizeof(codes); i++)
            codes[i] = (uint8_t)i;
        for (unsigned i = 0; i < 8; i++)
            memcpy(maxima + 2 * i, &(uint16_t){(uint16_t)maximum}, 2);
        portable->q8_decode(maxima, codes, 8, out[0]);
        other->q8_decode(maxima, codes, 8, out[1]);
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
    }
}

static void same_decoding_of_every_code(void **state)
{
    (void)state;
    for_each_isa(compare_payloads);
}

static void compare_hashes(const char *isa)
{
    static uint8_t data[5000];
    uint64_t state = 5;
    for (unsigned i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(codec_random(&state) >> 56);
    for (uint64_t n = 0; n < sizeof(data); n += 1 + n / 30) {
        mz_codec_isa_select("portable");
        uint64_t expected = mz_codec_kernels()->hash(data, n, n * 12345);
        mz_codec_isa_select(isa);
        assert_true(mz_codec_kernels()->hash(data, n, n * 12345) == expected);
    }
}

static void same_hashes(void **state)
{
    (void)state;
    for_each_isa(compare_hashes);
}

static void set_odd_arithmetic(void)
{
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, subnormals are zero */
#endif
}

static void arithmetic_of_the_thread(void **state)
{
    static const enum codec_family families[] = {FAMILY_GAUSSIAN, FAMILY_SUBNORMAL, FAMILY_LARGE};
    static uint16_t aligned[ELEMENTS_MAX];
    const uint64_t bytes = 2 * 5000;
    (void)state;
    for (size_t f = 0; f < 3; f++)
        for (unsigned c = 0; mz_codec_at(c); c++) {
            codec_fill(families[f], 1, 5000, 64, aligned);
            uint64_t n = encode_with("portable", mz_codec_at(c), (uint8_t *)aligned, bytes, image[0]);
            decode_with("portable", image[0], n, decoded[0], bytes);
            for (unsigned i = 0; mz_codec_isa_at(i); i++) {
                if (mz_codec_isa_select(mz_codec_isa_at(i)) != 0)
                    continue;
                set_odd_arithmetic();
                uint64_t m =
                    encode_with(mz_codec_isa_at(i), mz_codec_at(c), (uint8_t *)aligned, bytes, image[1]);
                decode_with(mz_codec_isa_at(i), image[1], m, decoded[1], bytes);
                int rounding = fegetround();
                fesetenv(FE_DFL_ENV);
                assert_int_equal(rounding, FE_UPWARD);
                assert_int_equal(m, n);
                assert_memory_equal(image[0], image[1], n);
                assert_memory_equal(decoded[0], decoded[1], bytes);
            }
        }
    mz_codec_isa_select(NULL);
}

static void selection(void **state)
{
    (void)state;
    assert_int_equal(mz_codec_isa_select("sse9"), -ENOENT);
    assert_int_equal(mz_codec_isa_select("portable"), 0);
    assert_string_equal(mz_codec_isa(), "portable");
    assert_int_equal(mz_codec_isa_select(NULL), 0);
    print_message("the best instruction set here is %s\n", mz_codec_isa());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection),
        cmocka_unit_test(same_images),
        cmocka_unit_test(same_decoding_of_every_code),
        cmocka_unit_test(same_hashes),
        cmocka_unit_test(arithmetic_of_the_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
