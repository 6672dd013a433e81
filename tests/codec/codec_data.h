/*
 * Data families for the codec tests: what K and V look like, and what they should never look like. The same
 * bytes on every machine: integer arithmetic and IEEE operations only.
 */
#ifndef MZ_TESTS_CODEC_DATA_H
#define MZ_TESTS_CODEC_DATA_H

#include <stdbool.h>
#include <stdint.h>

enum codec_family {
    FAMILY_GAUSSIAN,
    FAMILY_T2,       /* heavy tails: Student's t with two degrees of freedom */
    FAMILY_OUTLIERS, /* a few channels a hundred times larger than the others, as K has them */
    FAMILY_OFFSET,   /* a mean far larger than the spread */
    FAMILY_SUBNORMAL,
    FAMILY_ZERO,        /* +0 and -0 */
    FAMILY_CONSTANT,    /* one value a row */
    FAMILY_LARGE,       /* up to the largest finite fp16 */
    FAMILY_RANDOM_BITS, /* finite */
    FAMILY_NONFINITE,   /* Gaussian with one NaN or infinity somewhere */
    FAMILY_COUNT
};

const char *codec_family_name(enum codec_family family);

/* Whether the family has no NaN or infinity. */
bool codec_family_is_finite(enum codec_family family);

/* Fills `elements` fp16 values in rows of row_elements. Equal arguments give equal bytes. */
void codec_fill(enum codec_family family, uint64_t seed, uint64_t elements, uint32_t row_elements,
                uint16_t *dst);

/* A generator of 64 random bits; state must not be 0. */
uint64_t codec_random(uint64_t *state);

#endif
