/*
 * q8_flexgen without intrinsics. The rule that the variants for single instruction sets reproduce byte for
 * byte.
 */
#include "codec/codec_int.h"
#include "codec/fp16.h"

static uint16_t find_ends(const uint16_t *x, uint16_t ends[2])
{
    int32_t lowest = mz_half_order(x[0]), highest = lowest;
    for (unsigned i = 1; i < MZ_FLEX_GROUP; i++) {
        int32_t order = mz_half_order(x[i]);
        lowest = order < lowest ? order : lowest;
        highest = order > highest ? order : highest;
    }
    ends[0] = mz_half_of_order(lowest);
    ends[1] = mz_half_of_order(highest);
    uint16_t low = ends[0] & 0x7fffu, high = ends[1] & 0x7fffu;
    return low > high ? low : high;
}

static void encode_group(const uint16_t *x, const uint16_t ends[2], uint8_t *q)
{
    float minimum = mz_half_to_float(ends[0]);
    float range = mz_half_to_float(ends[1]) - minimum;
    float inverse = range > 0.0f ? 255.0f / range : 0.0f;
    for (unsigned i = 0; i < MZ_FLEX_GROUP; i++)
        q[i] = (uint8_t)mz_rint_small((mz_half_to_float(x[i]) - minimum) * inverse);
}

uint16_t mz_flex_encode_portable(const uint8_t *src, uint64_t groups, uint8_t *ends, uint8_t *codes)
{
    uint16_t largest = 0;
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t x[MZ_FLEX_GROUP], end[2];
        uint8_t q[MZ_FLEX_GROUP];
        memcpy(x, src + g * sizeof(x), sizeof(x));
        uint16_t magnitude = find_ends(x, end);
        largest = magnitude > largest ? magnitude : largest;
        if (magnitude >= MZ_HALF_INF)
            break;
        encode_group(x, end, q);
        memcpy(ends + g * sizeof(end), end, sizeof(end));
        memcpy(codes + g * sizeof(q), q, sizeof(q));
    }
    return largest;
}

void mz_flex_decode_portable(const uint8_t *ends, const uint8_t *codes, uint64_t groups, uint8_t *dst)
{
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t end[2], y[MZ_FLEX_GROUP];
        uint8_t q[MZ_FLEX_GROUP];
        memcpy(end, ends + g * sizeof(end), sizeof(end));
        memcpy(q, codes + g * sizeof(q), sizeof(q));
        float minimum = mz_half_to_float(end[0]);
        float step = (mz_half_to_float(end[1]) - minimum) / 255.0f;
        for (unsigned i = 0; i < MZ_FLEX_GROUP; i++) {
            uint16_t inner = mz_float_to_half(minimum + (float)q[i] * step);
            y[i] = q[i] == 255 ? end[1] : inner;
        }
        memcpy(dst + g * sizeof(y), y, sizeof(y));
    }
}
