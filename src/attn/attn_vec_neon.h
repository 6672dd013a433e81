/* The vector operations of attn_kernel.inc.h for AArch64: see there. */
#include <arm_neon.h>
#include <string.h>

#define VF_LANES 4
#define VF_SUMS  16 /* of the 32 registers */
#ifndef VF_PV_ROWS
#define VF_PV_ROWS 16
#endif
#define VF_FEW_MAX 4

#define VF_QK_TOKENS(vectors) ((vectors) == 1 ? 8 : (vectors) == 2 ? 8 : 4)
#define VF_QK_VECTORS         4

typedef float32x4_t vf;

static inline vf vf_load(const float *p)
{
    return vld1q_f32(p);
}

static inline void vf_store(float *p, vf x)
{
    vst1q_f32(p, x);
}

static inline vf vf_half(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline vf vf_bytes(const int8_t *p)
{
    int32_t word;

    memcpy(&word, p, sizeof(word));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(word))))));
}

static inline vf vf_set_half(uint16_t half)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}

static inline vf vf_set(float x)
{
    return vdupq_n_f32(x);
}

static inline vf vf_add(vf x, vf y)
{
    return vaddq_f32(x, y);
}

static inline vf vf_sub(vf x, vf y)
{
    return vsubq_f32(x, y);
}

static inline vf vf_mul(vf x, vf y)
{
    return vmulq_f32(x, y);
}

static inline vf vf_div(vf x, vf y)
{
    return vdivq_f32(x, y);
}

static inline vf vf_fma(vf x, vf y, vf z)
{
    return vfmaq_f32(z, x, y);
}

static inline vf vf_max(vf x, vf y)
{
    return vmaxq_f32(x, y);
}

static inline vf vf_abs(vf x)
{
    return vabsq_f32(x);
}

static inline vf vf_round(vf x)
{
    return vrndnq_f32(x);
}

static inline vf vf_pow2_mul(vf x, vf n)
{
    int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));

    return vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
}

static inline vf vf_if_less(vf x, vf y, vf then, vf otherwise)
{
    return vbslq_f32(vcltq_f32(x, y), then, otherwise);
}

static inline float vf_sum(vf x)
{
    return vaddvq_f32(x);
}

static inline float vf_largest(vf x)
{
    return vmaxvq_f32(x);
}

static inline void vf_sums(const vf *x, float *sums)
{
    for (int i = 0; i < VF_SUMS; i += 4)
        vf_store(sums + i, vpaddq_f32(vpaddq_f32(x[i], x[i + 1]), vpaddq_f32(x[i + 2], x[i + 3])));
}
