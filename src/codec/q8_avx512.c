/*
 * q8 for AVX-512 (F, BW, VL, DQ). Blocks of 16 groups share one division; what is left over goes to the
 * portable kernel.
 */
#include "codec/codec_int.h"

#include <immintrin.h>

#define BLOCK 16u

static inline uint16_t maximum_of_eight(__m128i eight)
{
    __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi32(-1)));
    return (uint16_t)~_mm_cvtsi128_si32(least);
}

/* Largest magnitude of 32 elements, as fp16 bits: of non-negative ones these are ordered like the values. */
static inline uint16_t group_maximum(const uint8_t *src)
{
    __m512i x = _mm512_and_si512(_mm512_loadu_si512(src), _mm512_set1_epi16(0x7fff));
    __m256i sixteen = _mm256_max_epu16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    return maximum_of_eight(
        _mm_max_epu16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1)));
}

static inline __m512i scaled(const uint8_t *src, __m512 inverse)
{
    __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)src));
    return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
}

/* Two groups together: three packs and one permutation, where narrowing each would cost eight shuffles. */
static inline void encode_two(const uint8_t *src, const float inverses[2], uint8_t *codes)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512 first = _mm512_set1_ps(inverses[0]), second = _mm512_set1_ps(inverses[1]);
    __m512i low = _mm512_packs_epi32(scaled(src, first), scaled(src + 32, first));
    __m512i high = _mm512_packs_epi32(scaled(src + 64, second), scaled(src + 96, second));
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high)));
}

/* 127 / maximum; 0 where the maximum is 0. */
static inline __m512 inverses_of(__m256i maxima)
{
    __m512 maximum = _mm512_cvtph_ps(maxima);
    __mmask16 nonzero = _mm512_cmp_ps_mask(maximum, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    return _mm512_maskz_div_ps(nonzero, _mm512_set1_ps(127.0f), maximum);
}

uint16_t mz_q8_encode_avx512(const uint8_t *src, uint64_t groups, uint8_t *maxima, uint8_t *codes)
{
    __m256i largest = _mm256_setzero_si256();
    uint64_t g = 0;
    for (; g + BLOCK <= groups; g += BLOCK) {
        uint16_t maximum[BLOCK];
        float inverse[BLOCK];
        for (unsigned i = 0; i < BLOCK; i++)
            maximum[i] = group_maximum(src + (g + i) * 64);
        __m256i sixteen = _mm256_loadu_si256((const __m256i *)(const void *)maximum);
        largest = _mm256_max_epu16(largest, sixteen);
        _mm256_storeu_si256((__m256i *)(void *)(maxima + g * 2), sixteen);
        _mm512_storeu_ps(inverse, inverses_of(sixteen));
        for (unsigned i = 0; i < BLOCK; i += 2)
            encode_two(src + (g + i) * 64, inverse + i, codes + (g + i) * 32);
    }
    uint16_t of_blocks = maximum_of_eight(
        _mm_max_epu16(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1)));
    uint16_t of_rest = mz_q8_encode_portable(src + g * 64, groups - g, maxima + g * 2, codes + g * 32);
    return of_blocks > of_rest ? of_blocks : of_rest;
}

static inline void decode_sixteen(const uint8_t *codes, __m512 step, uint8_t *dst)
{
    __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)codes));
    __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(q), step);
    __m256i half = _mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)(void *)dst, half);
}

void mz_q8_decode_avx512(const uint8_t *maxima, const uint8_t *codes, uint64_t groups, uint8_t *dst)
{
    uint64_t g = 0;
    for (; g + BLOCK <= groups; g += BLOCK) {
        float steps[BLOCK];
        __m512 maximum = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(maxima + g * 2)));
        _mm512_storeu_ps(steps, _mm512_div_ps(maximum, _mm512_set1_ps(127.0f)));
        for (unsigned i = 0; i < BLOCK; i++) {
            const __m512 step = _mm512_set1_ps(steps[i]);
            decode_sixteen(codes + (g + i) * 32, step, dst + (g + i) * 64);
            decode_sixteen(codes + (g + i) * 32 + 16, step, dst + (g + i) * 64 + 32);
        }
    }
    mz_q8_decode_portable(maxima + g * 2, codes + g * 32, groups - g, dst + g * 64);
}
