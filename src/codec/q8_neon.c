/*
 * q8 for NEON of ARMv8-A, one group of 32 at a time.
 */
#include "codec/codec_int.h"
#include "codec/fp16.h"

#include <arm_neon.h>

static inline uint16x8_t load(const uint8_t *src)
{
    return vreinterpretq_u16_u8(vld1q_u8(src));
}

/* Largest magnitude of 32 elements, as fp16 bits: of non-negative ones these are ordered like the values. */
static inline uint16_t group_maximum(const uint8_t *src)
{
    const uint16x8_t mask = vdupq_n_u16(0x7fff);
    uint16x8_t a = vmaxq_u16(vandq_u16(load(src), mask), vandq_u16(load(src + 16), mask));
    uint16x8_t b = vmaxq_u16(vandq_u16(load(src + 32), mask), vandq_u16(load(src + 48), mask));
    return vmaxvq_u16(vmaxq_u16(a, b));
}

static inline int16x8_t scaled(const uint8_t *src, float inverse)
{
    float16x8_t x = vreinterpretq_f16_u8(vld1q_u8(src));
    int32x4_t low = vcvtnq_s32_f32(vmulq_n_f32(vcvt_f32_f16(vget_low_f16(x)), inverse));
    int32x4_t high = vcvtnq_s32_f32(vmulq_n_f32(vcvt_f32_f16(vget_high_f16(x)), inverse));
    return vcombine_s16(vqmovn_s32(low), vqmovn_s32(high));
}

uint16_t mz_q8_encode_neon(const uint8_t *src, uint64_t groups, uint8_t *maxima, uint8_t *codes)
{
    uint16_t largest = 0;
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t maximum = group_maximum(src + g * 64);
        largest = maximum > largest ? maximum : largest;
        if (maximum >= MZ_HALF_INF)
            break;
        memcpy(maxima + g * 2, &maximum, sizeof(maximum));
        float inverse = maximum ? 127.0f / mz_half_to_float(maximum) : 0.0f;
        for (unsigned j = 0; j < 2; j++) {
            int8x8_t low = vqmovn_s16(scaled(src + g * 64 + j * 32, inverse));
            int8x8_t high = vqmovn_s16(scaled(src + g * 64 + j * 32 + 16, inverse));
            vst1q_u8(codes + g * 32 + j * 16, vreinterpretq_u8_s8(vcombine_s8(low, high)));
        }
    }
    return largest;
}

static inline void decode_eight(int16x8_t q, float step, uint8_t *dst)
{
    float32x4_t low = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(q))), step);
    float32x4_t high = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(q))), step);
    vst1q_u8(dst, vreinterpretq_u8_f16(vcombine_f16(vcvt_f16_f32(low), vcvt_f16_f32(high))));
}

void mz_q8_decode_neon(const uint8_t *maxima, const uint8_t *codes, uint64_t groups, uint8_t *dst)
{
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t maximum;
        memcpy(&maximum, maxima + g * 2, sizeof(maximum));
        const float step = mz_half_to_float(maximum) / 127.0f;
        for (unsigned j = 0; j < 2; j++) {
            int8x16_t q = vreinterpretq_s8_u8(vld1q_u8(codes + g * 32 + j * 16));
            decode_eight(vmovl_s8(vget_low_s8(q)), step, dst + g * 64 + j * 32);
            decode_eight(vmovl_s8(vget_high_s8(q)), step, dst + g * 64 + j * 32 + 16);
        }
    }
}
