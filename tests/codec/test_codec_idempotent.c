/*
 * What has been through a codec once encodes to the same image again, byte for byte: on every data family,
 * for token counts up to a long chunk and element counts that leave tails, with every instruction set of this
 * machine. A second decoding is then equal too. FlexGen's rule as published is run through the same check and
 * must fail it: a check that cannot fail proves nothing.
 */
#include "cmocka_all.h"
#include "codec/codec.h"
#include "codec/fp16.h"
#include "codec_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX (1024u * 1024u)

struct buffers {
    uint16_t *plain, *once, *twice;
    uint8_t *image, *again;
    uint64_t cap;
};

static int buffers_make(void **state)
{
    struct buffers *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    b->cap = mz_codec_bound(mz_codec_find("q8"), 2 * ELEMENTS_MAX);
    b->plain = malloc(2 * ELEMENTS_MAX);
    b->once = malloc(2 * ELEMENTS_MAX);
    b->twice = malloc(2 * ELEMENTS_MAX);
    b->image = malloc(b->cap);
    b->again = malloc(b->cap);
    assert_true(b->plain && b->once && b->twice && b->image && b->again);
    *state = b;
    return 0;
}

static int buffers_free(void **state)
{
    struct buffers *b = *state;
    free(b->plain);
    free(b->once);
    free(b->twice);
    free(b->image);
    free(b->again);
    free(b);
    return mz_codec_isa_select(NULL);
}

static void check_one(struct buffers *b, const struct mz_codec *codec, enum codec_family family,
                      uint64_t elements, uint32_t row_elements)
{
    const struct mz_chunk_key key = {.layer = 5, .chunk = 2, .row_elements = row_elements, .k_or_v = 1};
    const uint64_t bytes = 2 * elements;
    uint64_t first = 0, second = 0;
    codec_fill(family, elements, elements, row_elements, b->plain);
    assert_int_equal(mz_codec_encode(codec, &key, b->plain, bytes, b->image, b->cap, &first), 0);
    assert_int_equal(mz_codec_decode(&key, b->image, first, b->once, bytes), 0);
    assert_int_equal(mz_codec_encode(codec, &key, b->once, bytes, b->again, b->cap, &second), 0);
    assert_int_equal(first, second);
    if (memcmp(b->image, b->again, first) != 0)
        fail_msg("%s changes %s at the second pass (%llu elements, %s)", codec->name,
                 codec_family_name(family), (unsigned long long)elements, mz_codec_isa());
    assert_int_equal(mz_codec_decode(&key, b->again, second, b->twice, bytes), 0);
    assert_memory_equal(b->once, b->twice, bytes);
    if (!mz_codec_is_lossy_image(b->image, first))
        assert_memory_equal(b->plain, b->once, bytes);
    assert_int_equal(mz_codec_is_lossy_image(b->image, first),
                     codec->lossy && (codec_family_is_finite(family) || !elements));
}

static void every_family(struct buffers *b, uint64_t elements, uint32_t row_elements)
{
    for (unsigned c = 0; mz_codec_at(c); c++)
        for (unsigned f = 0; f < FAMILY_COUNT; f++)
            check_one(b, mz_codec_at(c), (enum codec_family)f, elements, row_elements);
}

/* Rows of 1024 (8 heads of 128) with the token counts up to 1024 that borders are at, and some between. */
static void token_counts(void **state)
{
    static const uint32_t tokens[] = {1,   2,   3,   7,   15,  16,  17,   31,  64,
                                      100, 255, 256, 257, 511, 777, 1023, 1024};
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
        every_family(*state, (uint64_t)tokens[i] * 1024, 1024);
}

/* Rows that groups do not divide: 3 heads of 64, one of 80, of 100; and every short chunk. */
static void odd_shapes(void **state)
{
    static const uint32_t rows[] = {192, 80, 100, 1, 33};
    for (uint64_t elements = 0; elements <= 200; elements++)
        every_family(*state, elements, 64);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        every_family(*state, (uint64_t)rows[i] * 257, rows[i]);
}

static void every_isa(void **state)
{
    for (unsigned i = 0; mz_codec_isa_at(i); i++) {
        if (mz_codec_isa_select(mz_codec_isa_at(i)) != 0) {
            print_message("%s: not on this CPU\n", mz_codec_isa_at(i));
            continue;
        }
        every_family(*state, 256 * 192, 192);
        every_family(*state, 1024 + 37, 64);
    }
    mz_codec_isa_select(NULL);
}

/* fp16 arithmetic: each operation is rounded, as torch does it for half tensors. */
static float rounded(float value)
{
    return mz_half_to_float(mz_float_to_half(value));
}

struct published {
    uint16_t minimum, scale;
    uint8_t codes[64];
};

/* FlexGen, compression.py: scale = 255 / (max - min), code = round(clamp((x - min) * scale)). */
static void published_encode(const uint16_t *x, struct published *out)
{
    float low = INFINITY, high = -INFINITY;
    for (int i = 0; i < 64; i++) {
        low = fminf(low, mz_half_to_float(x[i]));
        high = fmaxf(high, mz_half_to_float(x[i]));
    }
    float scale = rounded(255.0f / rounded(high - low));
    out->minimum = mz_float_to_half(low);
    out->scale = mz_float_to_half(scale);
    for (int i = 0; i < 64; i++) {
        float code = rounded(rounded(mz_half_to_float(x[i]) - low) * scale);
        code = code > 0.0f ? code : 0.0f; /* a NaN ends here, too */
        out->codes[i] = (uint8_t)rintf(code < 255.0f ? code : 255.0f);
    }
}

static void published_decode(const struct published *in, uint16_t *y)
{
    for (int i = 0; i < 64; i++) {
        float quotient = rounded((float)in->codes[i] / mz_half_to_float(in->scale));
        y[i] = mz_float_to_half(quotient + mz_half_to_float(in->minimum));
    }
}

static unsigned published_changes(enum codec_family family, unsigned groups)
{
    unsigned changed = 0;
    for (unsigned g = 0; g < groups; g++) {
        uint16_t x[64], y[64];
        struct published first, second;
        memset(&first, 0, sizeof(first));
        memset(&second, 0, sizeof(second));
        codec_fill(family, g, 64, 64, x);
        published_encode(x, &first);
        published_decode(&first, y);
        published_encode(y, &second);
        changed += memcmp(&first, &second, sizeof(first)) != 0;
    }
    return changed;
}

static void published_flexgen_fails(void **state)
{
    static const enum codec_family families[] = {FAMILY_GAUSSIAN, FAMILY_T2, FAMILY_OFFSET};
    (void)state;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        unsigned changed = published_changes(families[i], 20000);
        print_message("FlexGen as published changes %.2f %% of the groups of %s\n", changed / 200.0,
                      codec_family_name(families[i]));
        assert_true(changed > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(token_counts, buffers_make, buffers_free),
        cmocka_unit_test_setup_teardown(odd_shapes, buffers_make, buffers_free),
        cmocka_unit_test_setup_teardown(every_isa, buffers_make, buffers_free),
        cmocka_unit_test(published_flexgen_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
