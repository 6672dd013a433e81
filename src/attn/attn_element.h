/* Elements of K and V without hardware: fp16 and q8_0 to fp32. Private to src/attn/. */
#ifndef MZ_ATTN_ELEMENT_H
#define MZ_ATTN_ELEMENT_H

#include <stdint.h>
#include <string.h>

#include "attn/attn.h"

/* A row of q8_0 is blocks of 32 values, each scale * integer; 34 bytes without padding. */
#define MZ_ATTN_Q8 32

struct mz_attn_q8 {
    uint16_t scale; /* fp16 */
    int8_t values[MZ_ATTN_Q8];
};

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

/* Element d of a row: exact, also for q8_0 (11 + 7 bits of product). */
static inline float mz_attn_element(const void *row, uint32_t d, enum mz_attn_type type)
{
    const struct mz_attn_q8 *q8 = (const struct mz_attn_q8 *)row + d / MZ_ATTN_Q8;

    if (type == MZ_ATTN_F16)
        return mz_attn_half_to_float(((const uint16_t *)row)[d]);
    return mz_attn_half_to_float(q8->scale) * (float)q8->values[d % MZ_ATTN_Q8];
}

/* Bytes of n elements; n of q8_0 is a multiple of MZ_ATTN_Q8. */
static inline uint32_t mz_attn_row_size(uint32_t n, enum mz_attn_type type)
{
    return type == MZ_ATTN_F16 ? 2 * n : n / MZ_ATTN_Q8 * (uint32_t)sizeof(struct mz_attn_q8);
}

#endif
