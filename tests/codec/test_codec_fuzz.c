/*
 * The decoders on damaged images, always the same ones: with verification each must be refused, without it
 * decoding must stay in bounds (under a sanitizer that is checked to the byte; the buffers have exactly the
 * size asked for).
 *
 *   test_codec_fuzz [FILE...]   tries the files instead: inputs that a fuzzer found
 */
#include "cmocka_all.h"
#include "codec/codec.h"
#include "codec_data.h"
#include "fuzz_decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX 700u
#define CAP          4096u

static uint64_t make_image(uint8_t *dst, uint64_t seed)
{
    const struct mz_chunk_key key = fuzz_key();
    const struct mz_codec *codec = mz_codec_at((unsigned)(seed % 3));
    uint16_t plain[ELEMENTS_MAX];
    uint64_t n = 0, elements = seed * 37 % ELEMENTS_MAX;
    codec_fill((enum codec_family)(seed % FAMILY_COUNT), seed, elements, 64, plain);
    assert_int_equal(mz_codec_encode(codec, &key, plain, 2 * elements, dst, CAP, &n), 0);
    return n;
}

/* One to four changes: a byte, a bit, a size field, a moved piece. Returns the new length. */
static uint64_t mutate(uint8_t *image, uint64_t n, uint64_t *state)
{
    for (uint64_t changes = 1 + codec_random(state) % 4; changes && n; changes--) {
        uint64_t at = codec_random(state) % n, value = codec_random(state);
        switch (codec_random(state) % 6) {
        case 0:
            image[at] = (uint8_t)value;
            break;
        case 1:
            image[at] = (uint8_t)(image[at] ^ 1u << value % 8);
            break;
        case 2: /* plain or payload bytes, near what they were or anything */
            if (n >= MZ_CODEC_HEADER_BYTES)
                memcpy(image + 16 + value % 2 * 8, &(uint64_t){value >> (value % 64)}, 8);
            break;
        case 3: /* codec */
            if (n >= MZ_CODEC_HEADER_BYTES)
                image[6] = (uint8_t)(value % 4), image[12] = (uint8_t)(value / 4 % 2);
            break;
        case 4:
            n = at;
            break;
        default:
            memmove(image + at, image + value % n, n - (at > value % n ? at : value % n));
        }
    }
    return n;
}

static void mutated_images(void **state)
{
    static uint8_t good[CAP], image[CAP];
    uint64_t random = 4711;
    (void)state;
    for (unsigned isa = 0; mz_codec_isa_at(isa); isa++) {
        if (mz_codec_isa_select(mz_codec_isa_at(isa)) != 0)
            continue;
        for (uint64_t i = 0; i < 20000; i++) {
            uint64_t bytes = make_image(good, i % 300), n;
            memcpy(image, good, bytes);
            assert_true(i >= 300 || fuzz_decode_one(image, bytes));
            n = mutate(image, bytes, &random);
            bool same = n == bytes && memcmp(image, good, n) == 0;
            assert_int_equal(fuzz_decode_one(image, n), same);
        }
    }
    mz_codec_isa_select(NULL);
}

/* Random bytes behind a plausible beginning. */
static void random_images(void **state)
{
    static uint8_t image[CAP];
    uint64_t random = 99;
    (void)state;
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t n = codec_random(&random) % CAP;
        for (uint64_t at = 0; at < n; at++)
            image[at] = (uint8_t)(codec_random(&random) >> 40);
        if (n >= MZ_CODEC_HEADER_BYTES && i % 2)
            memcpy(image, "MZKV\1\0\1\0\1\0\1\0\1\0\1\0", 16), memset(image + 56, 0, 8);
        assert_false(fuzz_decode_one(image, n));
    }
}

static int try_file(const char *path)
{
    static uint8_t data[1u << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t n = fread(data, 1, sizeof(data), file);
    fclose(file);
    printf("%s: %s\n", path, fuzz_decode_one(data, n) ? "accepted" : "refused");
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_images),
        cmocka_unit_test(random_images),
    };
    int rc = 0;
    for (int i = 1; i < argc; i++)
        rc |= try_file(argv[i]);
    return argc > 1 ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
