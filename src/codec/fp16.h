/*
 * fp16 <-> fp32 without the instructions for it, and without branches so that compilers vectorise the loops
 * around it. Both expect the default floating-point environment. Values agree with F16C and NEON; the payload
 * of a NaN does not.
 */
#ifndef MZ_CODEC_FP16_H
#define MZ_CODEC_FP16_H

#include <stdint.h>
#include <string.h>

static inline float mz_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t mz_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/*
 * condition ? a : b. Written as masks: of a conditional expression compilers make a branch around the
 * floating-point operations that could trap, and do not vectorise the loop.
 */
static inline uint32_t mz_select(int condition, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

/* Exact. */
static inline float mz_half_to_float(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffu;
    uint32_t sign = ((uint32_t)half & 0x8000u) << 16;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t special = (magnitude << 13) | 0x7f800000u;
    /* A subnormal is a multiple of 2^-24; the conversion and the product are exact. */
    uint32_t small = mz_bits_of_float((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = mz_select(magnitude < 0x0400u, small, normal);
    bits = mz_select(magnitude >= 0x7c00u, special, bits);
    return mz_float_of_bits(bits | sign);
}

/* Rounds to nearest even; beyond the range: infinity. */
static inline uint16_t mz_float_to_half(float value)
{
    uint32_t bits = mz_bits_of_float(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t nan = mz_select(magnitude > 0x7f800000u, 0x7e00u, 0x7c00u);
    uint32_t normal = (magnitude + 0x0fffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    /* The last bit of 0.5f is 2^-24, the unit of fp16's subnormals: the addition rounds to it. */
    int is_small = magnitude < 0x38800000u;
    uint32_t sum = mz_bits_of_float(mz_float_of_bits(mz_select(is_small, magnitude, 0u)) + 0.5f);
    uint32_t half = mz_select(is_small, sum - 0x3f000000u, normal);
    half = mz_select(magnitude >= 0x47800000u, nan, half); /* 2^16 and above */
    return (uint16_t)(half | sign);
}

/* rint for |value| < 2^22: the sum's last bit is 1. */
static inline int32_t mz_rint_small(float value)
{
    return (int32_t)(mz_bits_of_float(value + 0x1.8p23f) - mz_bits_of_float(0x1.8p23f));
}

/*
 * fp16 bits as integers that are ordered like the values: negative ones are mirrored, -0 lies below +0. And
 * back, with -0 as +0.
 */
static inline int32_t mz_half_order(uint16_t half)
{
    return half & 0x8000u ? -1 - (int32_t)(half & 0x7fffu) : (int32_t)half;
}

static inline uint16_t mz_half_of_order(int32_t order)
{
    if (order == -1)
        return 0;
    return (uint16_t)(order < 0 ? 0x8000u | (uint32_t)(-1 - order) : (uint32_t)order);
}

#endif
