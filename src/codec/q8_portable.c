/*
 * q8 without intrinsics. The rule that the variants for single instruction sets reproduce byte for byte.
 */
#include "codec/codec_int.h"
#include "codec/fp16.h"

static uint16_t group_maximum(const uint16_t *x)
{
    uint16_t maximum = 0;
    for (unsigned i = 0; i < MZ_Q8_GROUP; i++) {
        uint16_t magnitude = x[i] & 0x7fffu;
        maximum = magnitude > maximum ? magnitude : maximum;
    }
    return maximum;
}

uint16_t mz_q8_encode_portable(const uint8_t *src, uint64_t groups, uint8_t *maxima, uint8_t *codes)
{
    uint16_t largest = 0;
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t x[MZ_Q8_GROUP];
        int8_t q[MZ_Q8_GROUP];
        memcpy(x, src + g * sizeof(x), sizeof(x));
        uint16_t maximum = group_maximum(x);
        largest = maximum > largest ? maximum : largest;
        if (maximum >= MZ_HALF_INF)
            break;
        float inverse = maximum ? 127.0f / mz_half_to_float(maximum) : 0.0f;
        for (unsigned i = 0; i < MZ_Q8_GROUP; i++)
            q[i] = (int8_t)mz_rint_small(mz_half_to_float(x[i]) * inverse);
        memcpy(maxima + g * sizeof(maximum), &maximum, sizeof(maximum));
        memcpy(codes + g * sizeof(q), q, sizeof(q));
    }
    return largest;
}

void mz_q8_decode_portable(const uint8_t *maxima, const uint8_t *codes, uint64_t groups, uint8_t *dst)
{
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t maximum, y[MZ_Q8_GROUP];
        int8_t q[MZ_Q8_GROUP];
        memcpy(&maximum, maxima + g * sizeof(maximum), sizeof(maximum));
        memcpy(q, codes + g * sizeof(q), sizeof(q));
        float step = mz_half_to_float(maximum) / 127.0f;
        for (unsigned i = 0; i < MZ_Q8_GROUP; i++)
            y[i] = mz_float_to_half((float)q[i] * step);
        memcpy(dst + g * sizeof(y), y, sizeof(y));
    }
}
