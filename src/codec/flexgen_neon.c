/*
 * q8_flexgen for NEON of ARMv8-A, one group of 64 at a time.
 */
#include "codec/codec_int.h"
#include "codec/fp16.h"

#include <arm_neon.h>

/* fp16 bits to 16-bit integers ordered like the values: as mz_half_order. */
static inline int16x8_t ordered(const uint8_t *src)
{
    int16x8_t x = vreinterpretq_s16_u8(vld1q_u8(src));
    uint16x8_t mirrored = vshrq_n_u16(vreinterpretq_u16_s16(vshrq_n_s16(x, 15)), 1);
    return veorq_s16(x, vreinterpretq_s16_u16(mirrored));
}

static inline uint16_t find_ends(const uint8_t *src, uint16_t ends[2])
{
    int16x8_t lowest = ordered(src), highest = lowest;
    for (unsigned j = 1; j < 8; j++) {
        int16x8_t x = ordered(src + j * 16);
        lowest = vminq_s16(lowest, x);
        highest = vmaxq_s16(highest, x);
    }
    ends[0] = mz_half_of_order(vminvq_s16(lowest));
    ends[1] = mz_half_of_order(vmaxvq_s16(highest));
    uint16_t low = ends[0] & 0x7fffu, high = ends[1] & 0x7fffu;
    return low > high ? low : high;
}

static inline int16x4_t scaled_four(float16x4_t half, float32x4_t minimum, float inverse)
{
    float32x4_t product = vmulq_n_f32(vsubq_f32(vcvt_f32_f16(half), minimum), inverse);
    return vqmovn_s32(vcvtnq_s32_f32(product));
}

static inline void encode_eight(const uint8_t *src, float32x4_t minimum, float inverse, uint8_t *codes)
{
    float16x8_t x = vreinterpretq_f16_u8(vld1q_u8(src));
    int16x4_t low = scaled_four(vget_low_f16(x), minimum, inverse);
    int16x4_t high = scaled_four(vget_high_f16(x), minimum, inverse);
    vst1_u8(codes, vqmovun_s16(vcombine_s16(low, high)));
}

uint16_t mz_flex_encode_neon(const uint8_t *src, uint64_t groups, uint8_t *ends, uint8_t *codes)
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
        float inverse = range > 0.0f ? 255.0f / range : 0.0f;
        for (unsigned j = 0; j < 8; j++)
            encode_eight(src + g * 128 + j * 16, vdupq_n_f32(low), inverse, codes + g * 64 + j * 8);
    }
    return largest;
}

static inline float16x4_t inner_four(uint16x4_t q, float32x4_t minimum, float step)
{
    return vcvt_f16_f32(vaddq_f32(minimum, vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(q)), step)));
}

static inline void decode_eight(const uint8_t *codes, float32x4_t minimum, float step, uint16_t maximum,
                                uint8_t *dst)
{
    uint16x8_t q = vmovl_u8(vld1_u8(codes));
    float16x8_t inner =
        vcombine_f16(inner_four(vget_low_u16(q), minimum, step), inner_four(vget_high_u16(q), minimum, step));
    uint16x8_t is_last = vceqq_u16(q, vdupq_n_u16(255));
    uint16x8_t y = vbslq_u16(is_last, vdupq_n_u16(maximum), vreinterpretq_u16_f16(inner));
    vst1q_u8(dst, vreinterpretq_u8_u16(y));
}

void mz_flex_decode_neon(const uint8_t *ends, const uint8_t *codes, uint64_t groups, uint8_t *dst)
{
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t end[2];
        memcpy(end, ends + g * sizeof(end), sizeof(end));
        const float low = mz_half_to_float(end[0]);
        const float step = (mz_half_to_float(end[1]) - low) / 255.0f;
        for (unsigned j = 0; j < 8; j++)
            decode_eight(codes + g * 64 + j * 8, vdupq_n_f32(low), step, end[1], dst + g * 128 + j * 16);
    }
}
