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

/* Largest magnitude of 32 elements, as fp16 bits: of non-negative ones these are ordered like the values. */
static inline uint16_t group_maximum(const uint8_t *src)
{
    const __m256i mask = _mm256_set1_epi16(0x7fff);
    __m256i pair =
        _mm256_max_epu16(_mm256_and_si256(load(src), mask), _mm256_and_si256(load(src + 32), mask));
    __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(pair), _mm256_extracti128_si256(pair, 1));
    __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi32(-1)));
    return (uint16_t)~_mm_cvtsi128_si32(least);
}

static inline __m256i scaled(const uint8_t *src, __m256 inverse)
{
    __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)src));
    return _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));
}

static inline void encode_group(const uint8_t *src, float inverse_of_group, uint8_t *codes)
{
    /* The packs work within halves of 128 bits and leave the dwords in this order. */
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256 inverse = _mm256_set1_ps(inverse_of_group);
    __m256i low = _mm256_packs_epi32(scaled(src, inverse), scaled(src + 16, inverse));
    __m256i high = _mm256_packs_epi32(scaled(src + 32, inverse), scaled(src + 48, inverse));
    __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
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
        uint16_t maximum[BLOCK];
        float inverse[BLOCK];
        for (unsigned i = 0; i < BLOCK; i++)
            maximum[i] = group_maximum(src + (g + i) * 64);
        __m128i eight = _mm_loadu_si128((const __m128i *)(const void *)maximum);
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
            for (unsigned j = 0; j < 4; j++)
                decode_eight(codes + (g + i) * 32 + j * 8, step, dst + (g + i) * 64 + j * 16);
        }
    }
    mz_q8_decode_portable(maxima + g * 2, codes + g * 32, groups - g, dst + g * 64);
}
