/*
 * q8_flexgen for AVX2 with F16C, one group of 64 at a time.
 */
#include "codec/codec_int.h"
#include "codec/fp16.h"

#include <immintrin.h>

/* fp16 bits to 16-bit integers ordered like the values: as mz_half_order. */
static inline __m256i ordered(const uint8_t *src)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)src);
    return _mm256_xor_si256(x, _mm256_srli_epi16(_mm256_srai_epi16(x, 15), 1));
}

static inline int32_t lowest_of(__m256i x)
{
    __m128i eight = _mm_min_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    __m128i biased = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16((int16_t)-0x8000)));
    return (int32_t)(_mm_cvtsi128_si32(biased) & 0xffff) - 0x8000;
}

static inline int32_t highest_of(__m256i x)
{
    __m128i eight = _mm_max_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    __m128i biased = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(0x7fff)));
    return 0x7fff - (int32_t)(_mm_cvtsi128_si32(biased) & 0xffff);
}

static inline uint16_t find_ends(const uint8_t *src, uint16_t ends[2])
{
    __m256i a = ordered(src), b = ordered(src + 32), c = ordered(src + 64), d = ordered(src + 96);
    ends[0] = mz_half_of_order(lowest_of(_mm256_min_epi16(_mm256_min_epi16(a, b), _mm256_min_epi16(c, d))));
    ends[1] = mz_half_of_order(highest_of(_mm256_max_epi16(_mm256_max_epi16(a, b), _mm256_max_epi16(c, d))));
    uint16_t low = ends[0] & 0x7fffu, high = ends[1] & 0x7fffu;
    return low > high ? low : high;
}

static inline __m256i scaled(const uint8_t *src, __m256 minimum, __m256 inverse)
{
    __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)src));
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_sub_ps(x, minimum), inverse));
}

static inline void encode_half_group(const uint8_t *src, __m256 minimum, __m256 inverse, uint8_t *codes)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_packs_epi32(scaled(src, minimum, inverse), scaled(src + 16, minimum, inverse));
    __m256i high = _mm256_packs_epi32(scaled(src + 32, minimum, inverse), scaled(src + 48, minimum, inverse));
    __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
    _mm256_storeu_si256((__m256i *)(void *)codes, packed);
}

uint16_t mz_flex_encode_avx2(const uint8_t *src, uint64_t groups, uint8_t *ends, uint8_t *codes)
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
        const __m256 minimum = _mm256_set1_ps(low);
        const __m256 inverse = _mm256_set1_ps(range > 0.0f ? 255.0f / range : 0.0f);
        encode_half_group(src + g * 128, minimum, inverse, codes + g * 64);
        encode_half_group(src + g * 128 + 64, minimum, inverse, codes + g * 64 + 32);
    }
    return largest;
}

static inline __m128i inner_eight(__m128i codes, __m256 minimum, __m256 step)
{
    __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes)), step);
    return _mm256_cvtps_ph(_mm256_add_ps(minimum, product), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline void decode_sixteen(const uint8_t *codes, __m256 minimum, __m256 step, __m256i maximum,
                                  uint8_t *dst)
{
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m256i inner =
        _mm256_set_m128i(inner_eight(_mm_srli_si128(q, 8), minimum, step), inner_eight(q, minimum, step));
    __m256i is_last = _mm256_cvtepi8_epi16(_mm_cmpeq_epi8(q, _mm_set1_epi32(-1)));
    _mm256_storeu_si256((__m256i *)(void *)dst, _mm256_blendv_epi8(inner, maximum, is_last));
}

void mz_flex_decode_avx2(const uint8_t *ends, const uint8_t *codes, uint64_t groups, uint8_t *dst)
{
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t end[2];
        memcpy(end, ends + g * sizeof(end), sizeof(end));
        float low = mz_half_to_float(end[0]);
        const __m256 minimum = _mm256_set1_ps(low);
        const __m256 step = _mm256_set1_ps((mz_half_to_float(end[1]) - low) / 255.0f);
        const __m256i maximum = _mm256_set1_epi16((int16_t)end[1]);
        for (unsigned j = 0; j < 4; j++)
            decode_sixteen(codes + g * 64 + j * 16, minimum, step, maximum, dst + g * 128 + j * 32);
    }
}
