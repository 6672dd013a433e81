/* What a stretch of the mask asks for. Compiled for the baseline of the machine: it only compares 16-bit
 * integers. */
#include "attn/attn_kernel.h"

#define FP16_MINUS_INFINITY 0xfc00u
#define FP16_SIGN           0x8000u

/* Collects in *adds the bits of any value that is not +-0, and in *lets the bits of any that is not
 * -infinity. */
static void row_look(const uint16_t *mask, uint32_t n, uint32_t *adds, uint32_t *lets)
{
    uint32_t nonzero = 0, noninf = 0;

    for (uint32_t i = 0; i < n; i++) {
        nonzero |= mask[i];
        noninf |= mask[i] ^ FP16_MINUS_INFINITY;
    }
    *adds |= nonzero & ~FP16_SIGN;
    *lets |= noninf;
}

enum mz_attn_mask mz_attn_mask_class(const struct mz_attn_job *job, uint32_t t0, uint32_t n)
{
    const uint16_t *seen = NULL;
    uint32_t adds = 0, lets = 0;

    if (!job->a->mask)
        return MZ_ATTN_MASK_NONE;
    for (uint32_t i = 0; i < job->n_rows && !(adds && lets); i++) {
        if (job->mask[i] != seen)
            row_look(job->mask[i] + t0, n, &adds, &lets);
        seen = job->mask[i];
    }
    if (!lets)
        return MZ_ATTN_MASK_ALL;
    return adds ? MZ_ATTN_MASK_SOME : MZ_ATTN_MASK_NONE;
}
