/* The vector operations of attn_kernel.inc.h in portable C: vectors of one float. */
#include <math.h>

#include "attn/attn_element.h"

#define VF_LANES   1
#define VF_SUMS    4
#define VF_PV_ROWS 4
#define VF_FEW_MAX 4

#define VF_QK_TOKENS(vectors) ((vectors) == 1 ? 4 : 1)
#define VF_QK_VECTORS         8

typedef float vf;

static inline vf vf_load(const float *p)
{
    return *p;
}

static inline void vf_store(float *p, vf x)
{
    *p = x;
}

static inline vf vf_half(const uint16_t *p)
{
    return mz_attn_half_to_float(*p);
}

static inline vf vf_bytes(const int8_t *p)
{
    return (float)*p;
}

static inline vf vf_set_half(uint16_t half)
{
    return mz_attn_half_to_float(half);
}

static inline vf vf_set(float x)
{
    return x;
}

static inline vf vf_add(vf x, vf y)
{
    return x + y;
}

static inline vf vf_sub(vf x, vf y)
{
    return x - y;
}

static inline vf vf_mul(vf x, vf y)
{
    return x * y;
}

static inline vf vf_div(vf x, vf y)
{
    return x / y;
}

static inline vf vf_fma(vf x, vf y, vf z)
{
    return x * y + z; /* two roundings; fmaf() without hardware would be a slow call */
}

static inline vf vf_max(vf x, vf y)
{
    return x > y ? x : y;
}

static inline vf vf_abs(vf x)
{
    return fabsf(x);
}

static inline vf vf_round(vf x)
{
    return rintf(x);
}

static inline vf vf_pow2_mul(vf x, vf n)
{
    if (isnan(n)) /* has no integer */
        return n;
    return x * mz_attn_float_from_bits((uint32_t)((int32_t)n + 127) << 23);
}

static inline vf vf_if_less(vf x, vf y, vf then, vf otherwise)
{
    return x < y ? then : otherwise;
}

static inline float vf_sum(vf x)
{
    return x;
}

static inline float vf_largest(vf x)
{
    return x;
}

static inline void vf_sums(const vf *x, float *sums)
{
    for (int i = 0; i < VF_SUMS; i++)
        sums[i] = x[i];
}
