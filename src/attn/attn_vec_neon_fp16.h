/*
 * The vector operations of attn_kernel.inc.h for AArch64 with FMLAL, which multiplies four fp16 values,
 * exactly, and adds to fp32: see there. K and V need not be widened; queries and weights are rounded to fp16,
 * once.
 *
 * Error of the result, relative to its largest value (normally distributed q * 2, k, v; 300 to 3000 tokens):
 * 3e-4 to 9e-4, nearly all of it from the query, which ggml-cpu rounds as well; ggml-cpu adds V in fp16 and
 * is 2e-3 to 2e-2 off. Where it adds in fp32 (from 64 query rows), rounding would be more than its error:
 * "block" stays in fp32.
 *
 * Instructions for 8 products (gcc 12, -O3, this one with -fno-schedule-insns), in the loops of "few", beside
 * those of NEON in fp32, which from 5 rows on are the ones of "block" (widening K not counted); and for all
 * that a chunk of 256 tokens takes, counted under an emulator, head of 128. How fast they are is not known:
 * no such processor was at hand.
 *
 *     rows   logits        values        chunk
 *        1   3.38 / 7.12   3.50 / 9.25   6.66 / 9.97
 *        2   3.00 / 5.25   2.82 / 5.88   4.89 / 6.72
 *        4   3.31 / 5.12   2.63 / 4.75   4.46 / 5.77
 *        8   3.31 / 4.00   2.88 / 4.50   4.55 / 5.23
 *       32   3.31 / 3.69   2.88 / 5.25   4.51 / 5.19
 *
 * Not taken:
 *
 * - A query in two halves, 22 bits: twice the FMLAL. With nothing but loads, conversions and multiplications,
 *   8 products take 5.1 / 4.8 / 4.8 instructions with 1 / 2 / 4 rows; fp32 at its best 5.1 / 3.8 / 3.3; FMLAL
 *   once 3.1 / 2.6 / 2.5.
 * - FMLA of 8 lanes, which adds in fp16, in runs of 8 folded into fp32: 2.4 / 2.0 / 2.0. But a simulation
 *   of it was 9e-4 to 1.7e-3 off for q.k, where products beyond 65504 are infinite (keys with outliers get
 *   there); and for V worse than ggml-cpu in a third of the cases with 8 tokens, in none from 64 on only.
 *   Processors that have it without FMLAL (Cortex-A76, Neoverse N1) stay with fp32.
 */
#define VF_PV_ROWS 8 /* a register of V gives two of sums */
#include "attn/attn_vec_neon.h"

#define VF_HALVES         1
#define VF_FEW_MAX_HALVES 32 /* the largest block; fewer instructions up to there */

static inline vf vf_halves(const uint16_t *p)
{
    return vreinterpretq_f32_u16(vld1q_u16(p));
}

static inline void vf_store_half(uint16_t *p, vf x)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}

static inline vf vf_halves_dot(vf x, vf y, vf z)
{
    float16x8_t a = vreinterpretq_f16_f32(x), b = vreinterpretq_f16_f32(y);

    return vfmlalq_high_f16(vfmlalq_low_f16(z, a, b), a, b);
}

/* The lane is a part of the instruction. Compilers want to see a constant even where they do not unroll. */
#define LANES(fmlal)                                                                                         \
    switch (lane) {                                                                                          \
    case 0:                                                                                                  \
        return fmlal(z, a, b, 0);                                                                            \
    case 1:                                                                                                  \
        return fmlal(z, a, b, 1);                                                                            \
    case 2:                                                                                                  \
        return fmlal(z, a, b, 2);                                                                            \
    case 3:                                                                                                  \
        return fmlal(z, a, b, 3);                                                                            \
    case 4:                                                                                                  \
        return fmlal(z, a, b, 4);                                                                            \
    case 5:                                                                                                  \
        return fmlal(z, a, b, 5);                                                                            \
    case 6:                                                                                                  \
        return fmlal(z, a, b, 6);                                                                            \
    default:                                                                                                 \
        return fmlal(z, a, b, 7);                                                                            \
    }

static inline __attribute__((always_inline)) vf vf_halves_low(vf x, vf y, uint32_t lane, vf z)
{
    float16x8_t a = vreinterpretq_f16_f32(x), b = vreinterpretq_f16_f32(y);

    LANES(vfmlalq_laneq_low_f16)
}

static inline __attribute__((always_inline)) vf vf_halves_high(vf x, vf y, uint32_t lane, vf z)
{
    float16x8_t a = vreinterpretq_f16_f32(x), b = vreinterpretq_f16_f32(y);

    LANES(vfmlalq_laneq_high_f16)
}
