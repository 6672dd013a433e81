/*
 * q8 for AVX2 with F16C. Blocks of 8 groups share one division; what is left over goes to the portable
 * kernel.
 */
#include "codec/codec_int.h"

#include <immintrin.h>

#define BLOCK 8u

static inline __m256i load(const uint8_t *src)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)src);
}

/* Restores the order of dwords after packs or shuffles that work within each 128 bits. */
static inline __m256i transposed(__m256i x)
{
    return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline __m256i magnitudes(const uint8_t *src)
{
    const __m256i mask = _mm256_set1_epi16(0x7fff);
    return _mm256_max_epu16(_mm256_and_si256(load(src), mask), _mm256_and_si256(load(src + 32), mask));
}

/* Four groups to one vector: in each 64 bits the four largest of one group, of the groups 0, 2, 1, 3. */
static inline __m256i four_maxima(const uint8_t *src)
{
    __m256i a = magnitudes(src), b = magnitudes(src + 64), c = magnitudes(src + 128),
            d = magnitudes(src + 192);
    __m256i ab =
        _mm256_max_epu16(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
    __m256i cd =
        _mm256_max_epu16(_mm256_permute2x128_si256(c, d, 0x20), _mm256_permute2x128_si256(c, d, 0x31));
    return _mm256_max_epu16(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

/*
 * The largest magnitudes of 8 groups, as fp16 bits: of non-negative values these are ordered like the values.
 * The groups are folded onto each other, two to one at each step, which takes two shuffles a group.
 */
static inline __m128i block_maxima(const uint8_t *src)
{
    __m256 a = _mm256_castsi256_ps(four_maxima(src)), b = _mm256_castsi256_ps(four_maxima(src + 256));
    __m256i pairs = _mm256_max_epu16(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
                                     _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)));
    __m256i single =
        _mm256_and_si256(_mm256_max_epu16(pairs, _mm256_srli_epi32(pairs, 16)), _mm256_set1_epi32(0xffff));
    __m256i ordered = transposed(single);
    return _mm_packus_epi32(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
}

static inline __m256i scaled(const uint8_t *src, __m256 inverse)
{
    __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)src));
    return _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));
}

static inline void encode_group(const uint8_t *src, float inverse_of_group, uint8_t *codes)
{
    const __m256 inverse = _mm256_set1_ps(inverse_of_group);
    __m256i low = _mm256_packs_epi32(scaled(src, inverse), scaled(src + 16, inverse));
    __m256i high = _mm256_packs_epi32(scaled(src + 32, inverse), scaled(src + 48, inverse));
    __m256i packed = transposed(_mm256_packs_epi16(low, high));
    _mm256_storeu_si256((__m256i *)(void *)codes, packed);
}

/* 127 / maximum; 0 where the maximum is 0. */
static inline void store_inverses(__m128i maxima, float inverses[BLOCK])
{
    __m256 maximum = _mm256_cvtph_ps(maxima);
    __m256 nonzero = _mm256_cmp_ps(maximum, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    __m256 inverse = _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(127.0f), maximum), nonzero);
    _mm256_storeu_ps(inverses, inverse);
}

uint16_t mz_q8_encode_avx2(const uint8_t *src, uint64_t groups, uint8_t *maxima, uint8_t *codes)
{
    __m128i largest = _mm_setzero_si128();
    uint64_t g = 0;
    for (; g + BLOCK <= groups; g += BLOCK) {
        float inverse[BLOCK];
        __m128i eight = block_maxima(src + g * 64);
        largest = _mm_max_epu16(largest, eight);
        _mm_storeu_si128((__m128i *)(void *)(maxima + g * 2), eight);
        store_inverses(eight, inverse);
        for (unsigned i = 0; i < BLOCK; i++)
            encode_group(src + (g + i) * 64, inverse[i], codes + (g + i) * 32);
    }
    __m128i least = _mm_minpos_epu16(_mm_xor_si128(largest, _mm_set1_epi32(-1)));
    uint16_t of_blocks = (uint16_t)~_mm_cvtsi128_si32(least);
    uint16_t of_rest = mz_q8_encode_portable(src + g * 64, groups - g, maxima + g * 2, codes + g * 32);
    return of_blocks > of_rest ? of_blocks : of_rest;
}

static inline void decode_eight(const uint8_t *codes, __m256 step, uint8_t *dst)
{
    __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)codes));
    __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(q), step);
    __m128i half = _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i *)(void *)dst, half);
}

void mz_q8_decode_avx2(const uint8_t *maxima, const uint8_t *codes, uint64_t groups, uint8_t *dst)
{
    uint64_t g = 0;
    for (; g + BLOCK <= groups; g += BLOCK) {
        float steps[BLOCK];
        __m256 maximum = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(maxima + g * 2)));
        _mm256_storeu_ps(steps, _mm256_div_ps(maximum, _mm256_set1_ps(127.0f)));
        for (unsigned i = 0; i < BLOCK; i++) {
            const __m256 step = _mm256_set1_ps(steps[i]);
            const uint8_t *q = codes + (g + i) * 32;
            uint8_t *y = dst + (g + i) * 64;
            decode_eight(q, step, y);
            decode_eight(q + 8, step, y + 16);
            decode_eight(q + 16, step, y + 32);
            decode_eight(q + 24, step, y + 48);
        }
    }
    mz_q8_decode_portable(maxima + g * 2, codes + g * 32, groups - g, dst + g * 64);
}
