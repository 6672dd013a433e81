/* The vector operations of attn_kernel.inc.h for AVX-512: see there. */
#include <immintrin.h>

#define VF_LANES   16
#define VF_SUMS    16 /* of the 32 registers: 16 sums, and 8 or less for what is multiplied */
#define VF_PV_ROWS 16
#define VF_FEW_MAX 8

#define VF_QK_TOKENS(vectors) ((vectors) == 1 ? 16 : 8)
#define VF_QK_VECTORS         2

typedef __m512 vf;

static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

static inline vf vf_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

static inline vf vf_bytes(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

static inline vf vf_set_half(uint16_t half)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)half));
}

static inline vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf vf_add(vf x, vf y)
{
    return _mm512_add_ps(x, y);
}

static inline vf vf_sub(vf x, vf y)
{
    return _mm512_sub_ps(x, y);
}

static inline vf vf_mul(vf x, vf y)
{
    return _mm512_mul_ps(x, y);
}

static inline vf vf_div(vf x, vf y)
{
    return _mm512_div_ps(x, y);
}

static inline vf vf_fma(vf x, vf y, vf z)
{
    return _mm512_fmadd_ps(x, y, z);
}

static inline vf vf_max(vf x, vf y)
{
    return _mm512_max_ps(x, y);
}

static inline vf vf_abs(vf x)
{
    return _mm512_abs_ps(x);
}

static inline vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf vf_pow2_mul(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

static inline vf vf_if_less(vf x, vf y, vf then, vf otherwise)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), otherwise, then);
}

static inline float vf_sum(vf x)
{
    return _mm512_reduce_add_ps(x);
}

static inline float vf_largest(vf x)
{
    return _mm512_reduce_max_ps(x);
}

/* Pairs of 32-bit lanes, then of 64, then of 128-bit quarters: each step halves the number of vectors. */
static inline vf sums_2(vf x, vf y)
{
    return _mm512_add_ps(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y));
}

static inline vf sums_4(const vf *x)
{
    __m512d lo = _mm512_castps_pd(sums_2(x[0], x[1])), hi = _mm512_castps_pd(sums_2(x[2], x[3]));

    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi)));
}

static inline vf sums_quarters(vf x, vf y, const int even_odd)
{
    return even_odd ? _mm512_shuffle_f32x4(x, y, 0xdd) : _mm512_shuffle_f32x4(x, y, 0x88);
}

static inline void vf_sums(const vf *x, float *sums)
{
    vf a = sums_4(x), b = sums_4(x + 4), c = sums_4(x + 8), d = sums_4(x + 12);
    vf ab = _mm512_add_ps(sums_quarters(a, b, 0), sums_quarters(a, b, 1));
    vf cd = _mm512_add_ps(sums_quarters(c, d, 0), sums_quarters(c, d, 1));

    vf_store(sums, _mm512_add_ps(sums_quarters(ab, cd, 0), sums_quarters(ab, cd, 1)));
}
