/*
 * The seam between the driver (attn.c) and the kernels (attn_<isa>.c, all made of attn_kernel.inc.h).
 * Private.
 */
#ifndef MZ_ATTN_KERNEL_H
#define MZ_ATTN_KERNEL_H

#include <stddef.h>

#include "attn/attn_plan.h"

/* Most rows of a block, over all instruction sets. */
#define MZ_ATTN_BLOCK_MAX 32

/*
 * What a thread works on: one block of one KV head of one sequence. On the thread's stack; the pointers go
 * into the workspace: slot belongs to the thread while it holds the item, scratch always.
 */
struct mz_attn_job {
    const struct mz_attn *a;
    const struct mz_attn_plan *plan;
    uint32_t seq, kv_head;
    uint32_t row0;   /* first row of the block within the group */
    uint32_t n_rows; /* rows that exist, at most plan->block_rows */

    float *m, *s, *acc; /* the slot */

    float *q; /* scaled queries: [dk][block_rows], or [block_rows][dk] with plan->few */
    float *k; /* [MZ_ATTN_TILE][dk_pad], two steps of widened K rows; unused with plan->few */
    /* Then weights: [MZ_ATTN_CHUNK][block_rows], or [block_rows][MZ_ATTN_CHUNK] with plan->few. */
    float *logits;
    float *bias; /* slope * mask, laid out like the logits of a tile; unused with plan->few */

    /* With plan->few, where K and V are multiplied as fp16: queries without the scale, in the place of q;
     * what their sums are multiplied by; the weights, beside those in fp32. */
    uint16_t *q_halves;
    float q_factor[MZ_ATTN_BLOCK_MAX];
    uint16_t *weights;

    float slope[MZ_ATTN_BLOCK_MAX];          /* of each row's head; 1 without ALiBi */
    const uint16_t *mask[MZ_ATTN_BLOCK_MAX]; /* of each row, at token 0; NULL without mask. Rows that share it
                                              * are neighbours and have the same pointer */
};

/* What the mask says about a run of tokens for all the rows of a block. */
enum mz_attn_mask {
    MZ_ATTN_MASK_NONE, /* adds nothing */
    MZ_ATTN_MASK_SOME,
    MZ_ATTN_MASK_ALL, /* every position is -infinity */
};

struct mz_attn_kernel {
    struct mz_attn_geometry geometry;

    /* Scales and lays out the queries of job->seq, kv_head, row0, n_rows into job->q. */
    void (*pack)(struct mz_attn_job *job);

    /* Adds the first n_tokens tokens of chunk to the slot. `mask` is their class, and not ALL. */
    void (*chunk)(struct mz_attn_job *job, uint32_t chunk, uint32_t n_tokens, enum mz_attn_mask mask);
};

/* Each NULL when the compiler does not build for that instruction set. */
extern const struct mz_attn_kernel *const mz_attn_kernel_plain;
extern const struct mz_attn_kernel *const mz_attn_kernel_neon;
extern const struct mz_attn_kernel *const mz_attn_kernel_neon_fp16;
extern const struct mz_attn_kernel *const mz_attn_kernel_avx2;
extern const struct mz_attn_kernel *const mz_attn_kernel_avx512;

/* The kernel of an instruction set that mz_attn_isa_usable() accepts, BEST included; else NULL. */
const struct mz_attn_kernel *mz_attn_kernel_get(enum mz_attn_isa isa);

/* Looks at tokens [t0, t0 + n) of the n_rows masks of a job; no masks: NONE. */
enum mz_attn_mask mz_attn_mask_class(const struct mz_attn_job *job, uint32_t t0, uint32_t n);

#endif
