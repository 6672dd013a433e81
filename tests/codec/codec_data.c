#include "codec_data.h"

#include "codec/fp16.h"

#include <math.h>

static const char *const names[FAMILY_COUNT] = {
    "gaussian", "t2",       "outliers", "offset",      "subnormal",
    "zero",     "constant", "large",    "random-bits", "nonfinite",
};

const char *codec_family_name(enum codec_family family)
{
    return names[family];
}

bool codec_family_is_finite(enum codec_family family)
{
    return family != FAMILY_NONFINITE;
}

uint64_t codec_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545f4914f6cdd1du;
}

static float uniform(uint64_t *state)
{
    return (float)(codec_random(state) >> 40) * 0x1p-24f;
}

/* The sum of 12 uniform values is normal enough, and needs no library whose last bit differs. */
static float gaussian(uint64_t *state)
{
    float sum = -6.0f;
    for (int i = 0; i < 12; i++)
        sum += uniform(state);
    return sum;
}

static float t2(uint64_t *state)
{
    float u = (uniform(state) + 0x1p-25f) * (1.0f - 0x1p-20f);
    float t = (2.0f * u - 1.0f) / sqrtf(2.0f * u * (1.0f - u));
    return fminf(fmaxf(t, -60000.0f), 60000.0f);
}

static uint16_t finite_bits(uint64_t *state)
{
    uint16_t half = (uint16_t)(codec_random(state) >> 48);
    return (half & 0x7c00u) == 0x7c00u ? (uint16_t)(half & 0x83ffu) : half;
}

static uint16_t element(enum codec_family family, uint64_t *state, uint64_t row, uint64_t channel)
{
    switch (family) {
    case FAMILY_T2:
        return mz_float_to_half(t2(state));
    case FAMILY_OUTLIERS:
        return mz_float_to_half(gaussian(state) * (channel % 61 == 7 ? 100.0f : 1.0f));
    case FAMILY_OFFSET:
        return mz_float_to_half((channel % 3 ? 200.0f : -31.0f) + 0.3f * gaussian(state));
    case FAMILY_SUBNORMAL:
        return (uint16_t)(codec_random(state) >> 48 & 0x83ffu);
    case FAMILY_ZERO:
        return (uint16_t)(codec_random(state) >> 48 & 0x8000u);
    case FAMILY_CONSTANT:
        return mz_float_to_half(0.37f * (float)(1 + row % 97) - 5.0f);
    case FAMILY_LARGE:
        return mz_float_to_half((uniform(state) - 0.5f) * 131008.0f);
    case FAMILY_RANDOM_BITS:
        return finite_bits(state);
    default:
        return mz_float_to_half(gaussian(state));
    }
}

void codec_fill(enum codec_family family, uint64_t seed, uint64_t elements, uint32_t row_elements,
                uint16_t *dst)
{
    static const uint16_t nonfinite[] = {0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xffff};
    uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)family;
    state = state ? state : 1;
    for (uint64_t i = 0; i < elements; i++)
        dst[i] = element(family, &state, i / row_elements, i % row_elements);
    if (family == FAMILY_NONFINITE && elements)
        dst[codec_random(&state) % elements] = nonfinite[seed % 6];
}
