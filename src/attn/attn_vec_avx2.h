/* The vector operations of attn_kernel.inc.h for AVX2 with FMA and F16C: see there. */
#include <immintrin.h>

#define VF_LANES   8
#define VF_SUMS    8 /* of the 16 registers */
#define VF_PV_ROWS 4
#define VF_FEW_MAX 4

#define VF_QK_TOKENS(vectors) ((vectors) == 1 ? 8 : 4)
#define VF_QK_VECTORS         2

typedef __m256 vf;

static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

static inline vf vf_half(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}

static inline vf vf_bytes(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

static inline vf vf_set_half(uint16_t half)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}

static inline vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf vf_add(vf x, vf y)
{
    return _mm256_add_ps(x, y);
}

static inline vf vf_sub(vf x, vf y)
{
    return _mm256_sub_ps(x, y);
}

static inline vf vf_mul(vf x, vf y)
{
    return _mm256_mul_ps(x, y);
}

static inline vf vf_div(vf x, vf y)
{
    return _mm256_div_ps(x, y);
}

static inline vf vf_fma(vf x, vf y, vf z)
{
    return _mm256_fmadd_ps(x, y, z);
}

static inline vf vf_max(vf x, vf y)
{
    return _mm256_max_ps(x, y);
}

static inline vf vf_abs(vf x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

static inline vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf vf_pow2_mul(vf x, vf n)
{
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));

    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

static inline vf vf_if_less(vf x, vf y, vf then, vf otherwise)
{
    return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
}

static inline float vf_sum(vf x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

static inline float vf_largest(vf x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

static inline vf sums_4(const vf *x)
{
    return _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
}

static inline void vf_sums(const vf *x, float *sums)
{
    vf a = sums_4(x), b = sums_4(x + 4);

    vf_store(sums, _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)));
}
