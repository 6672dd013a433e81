/*
 * q8_flexgen for AVX-512 (F, BW, VL, DQ), one group of 64 at a time.
 */
#include "codec/codec_int.h"
#include "codec/fp16.h"

#include <immintrin.h>

/* fp16 bits to 16-bit integers ordered like the values: as mz_half_order. */
static inline __m512i ordered(const uint8_t *src)
{
    __m512i x = _mm512_loadu_si512(src);
    return _mm512_xor_si512(x, _mm512_srli_epi16(_mm512_srai_epi16(x, 15), 1));
}

static inline int32_t lowest_of(__m512i x)
{
    __m256i sixteen = _mm256_min_epi16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i eight = _mm_min_epi16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1));
    __m128i biased = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16((int16_t)-0x8000)));
    return (int32_t)(_mm_cvtsi128_si32(biased) & 0xffff) - 0x8000;
}

static inline int32_t highest_of(__m512i x)
{
    __m256i sixteen = _mm256_max_epi16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i eight = _mm_max_epi16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1));
    __m128i biased = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(0x7fff)));
    return 0x7fff - (int32_t)(_mm_cvtsi128_si32(biased) & 0xffff);
}

static inline uint16_t find_ends(const uint8_t *src, uint16_t ends[2])
{
    __m512i a = ordered(src), b = ordered(src + 64);
    ends[0] = mz_half_of_order(lowest_of(_mm512_min_epi16(a, b)));
    ends[1] = mz_half_of_order(highest_of(_mm512_max_epi16(a, b)));
    uint16_t low = ends[0] & 0x7fffu, high = ends[1] & 0x7fffu;
    return low > high ? low : high;
}

static inline __m512i scaled(const uint8_t *src, __m512 minimum, __m512 inverse)
{
    __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)src));
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_sub_ps(x, minimum), inverse));
}

static inline void encode_group(const uint8_t *src, __m512 minimum, __m512 inverse, uint8_t *codes)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low = _mm512_packs_epi32(scaled(src, minimum, inverse), scaled(src + 32, minimum, inverse));
    __m512i high = _mm512_packs_epi32(scaled(src + 64, minimum, inverse), scaled(src + 96, minimum, inverse));
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}

uint16_t mz_flex_encode_avx512(const uint8_t *src, uint64_t groups, uint8_t *ends, uint8_t *codes)
{
    uint16_t largest = 0;
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t end[2];
        uint16_t magnitude = find_ends(src + g * 128, end);
        largest = magnitude > largest ? magnitude : largest;
        if (magnitude >= MZ_HALF_INF)
            break;
        memcpy(ends + g * sizeof(end), end, sizeof(end));
        float low = mz_half_to_float(end[0]), range = mz_half_to_float(end[1]) - low;
        const __m512 minimum = _mm512_set1_ps(low);
        const __m512 inverse = _mm512_set1_ps(range > 0.0f ? 255.0f / range : 0.0f);
        encode_group(src + g * 128, minimum, inverse, codes + g * 64);
    }
    return largest;
}

static inline void decode_sixteen(const uint8_t *codes, __m512 minimum, __m512 step, __m256i maximum,
                                  uint8_t *dst)
{
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(q)), step);
    __m256i inner =
        _mm512_cvtps_ph(_mm512_add_ps(minimum, product), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __mmask16 is_last = _mm_cmpeq_epi8_mask(q, _mm_set1_epi32(-1));
    _mm256_storeu_si256((__m256i *)(void *)dst, _mm256_mask_mov_epi16(inner, is_last, maximum));
}

void mz_flex_decode_avx512(const uint8_t *ends, const uint8_t *codes, uint64_t groups, uint8_t *dst)
{
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t end[2];
        memcpy(end, ends + g * sizeof(end), sizeof(end));
        float low = mz_half_to_float(end[0]);
        const __m512 minimum = _mm512_set1_ps(low);
        const __m512 step = _mm512_set1_ps((mz_half_to_float(end[1]) - low) / 255.0f);
        const __m256i maximum = _mm256_set1_epi16((int16_t)end[1]);
        for (unsigned j = 0; j < 4; j++)
            decode_sixteen(codes + g * 64 + j * 16, minimum, step, maximum, dst + g * 128 + j * 32);
    }
}
