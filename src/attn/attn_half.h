/* fp16 to fp32 without hardware. Private to src/attn/. */
#ifndef MZ_ATTN_HALF_H
#define MZ_ATTN_HALF_H

#include <stdint.h>
#include <string.h>

static inline float mz_attn_float_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Exact. Normal numbers get their exponent rebased; subnormal ones are an integer times 2^-24. */
static inline float mz_attn_half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;

    if (magnitude >= 0x7c00u)
        return mz_attn_float_from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x400u)
        return mz_attn_float_from_bits(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
    return (sign ? -1.0f : 1.0f) * ((float)magnitude * 0x1p-24f);
}

#endif
