/*
 * q8 for AVX-512 (F, BW, VL, DQ). Blocks of 16 groups share one division; what is left over goes to the
 * portable kernel.
 */
#include "codec/codec_int.h"

#include <immintrin.h>

#define BLOCK 16u

/* Restores the order of dwords after packs or shuffles that work within each 128 bits. */
static inline __m512i transposed(__m512i x)
{
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                    x);
}

static inline __m512i magnitudes(const uint8_t *src)
{
    return _mm512_and_si512(_mm512_loadu_si512(src), _mm512_set1_epi16(0x7fff));
}

/* Four groups to one vector: in each 128 bits the eight largest of one group. */
static inline __m512i four_maxima(const uint8_t *src)
{
    __m512i a = magnitudes(src), b = magnitudes(src + 64), c = magnitudes(src + 128),
            d = magnitudes(src + 192);
    __m512i ab = _mm512_max_epu16(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
    __m512i cd = _mm512_max_epu16(_mm512_shuffle_i64x2(c, d, 0x44), _mm512_shuffle_i64x2(c, d, 0xee));
    return _mm512_max_epu16(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd));
}

/*
 * The largest magnitudes of 16 groups, as fp16 bits: of non-negative values these are ordered like the
 * values. The groups are folded onto each other, two to one at each step, which takes two shuffles a group.
 */
static inline __m256i block_maxima(const uint8_t *src)
{
    __m512i a = four_maxima(src), b = four_maxima(src + 256), c = four_maxima(src + 512),
            d = four_maxima(src + 768);
    __m512i ab = _mm512_max_epu16(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    __m512i cd = _mm512_max_epu16(_mm512_unpacklo_epi64(c, d), _mm512_unpackhi_epi64(c, d));
    __m512 first = _mm512_castsi512_ps(ab), second = _mm512_castsi512_ps(cd);
    __m512i pairs = _mm512_max_epu16(_mm512_castps_si512(_mm512_shuffle_ps(first, second, 0x88)),
                                     _mm512_castps_si512(_mm512_shuffle_ps(first, second, 0xdd)));
    __m512i single = _mm512_max_epu16(pairs, _mm512_srli_epi32(pairs, 16));
    return _mm512_cvtepi32_epi16(transposed(single));
}

static inline __m512i scaled(const uint8_t *src, __m512 inverse)
{
    __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)src));
    return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
}

/* Two groups together: three packs and one permutation, where narrowing each would cost eight shuffles. */
static inline void encode_two(const uint8_t *src, const float inverses[2], uint8_t *codes)
{
    const __m512 first = _mm512_set1_ps(inverses[0]), second = _mm512_set1_ps(inverses[1]);
    __m512i low = _mm512_packs_epi32(scaled(src, first), scaled(src + 32, first));
    __m512i high = _mm512_packs_epi32(scaled(src + 64, second), scaled(src + 96, second));
    _mm512_storeu_si512(codes, transposed(_mm512_packs_epi16(low, high)));
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
        float inverse[BLOCK];
        __m256i sixteen = block_maxima(src + g * 64);
        largest = _mm256_max_epu16(largest, sixteen);
        _mm256_storeu_si256((__m256i *)(void *)(maxima + g * 2), sixteen);
        _mm512_storeu_ps(inverse, inverses_of(sixteen));
        for (unsigned i = 0; i < BLOCK; i += 2)
            encode_two(src + (g + i) * 64, inverse + i, codes + (g + i) * 32);
    }
    __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi32(-1)));
    uint16_t of_blocks = (uint16_t)~_mm_cvtsi128_si32(least);
    uint16_t of_rest = mz_q8_encode_portable(src + g * 64, groups - g, maxima + g * 2, codes + g * 32);
    return of_blocks > of_rest ? of_blocks : of_rest;
}

/*
 * Plain stores: a restored chunk goes to pages that the kernel has just cleared, so their lines are in cache.
 * Measured on a Xeon with AVX-512, one core, GB/s of fp16: fresh huge pages 4.7, with non-temporal stores 3.7
 * (a plain copy: 5.1); non-temporal ones win only in memory that is in use and not in cache, 18.5 to 7.9.
 */
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
