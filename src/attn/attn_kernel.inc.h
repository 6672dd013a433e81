/*
 * The attention kernel, written once for all instruction sets. Included by attn_<isa>.c after its
 * attn_vec_<isa>.h, which defines, for vectors vf of VF_LANES floats:
 *
 * - vf_load, vf_store, vf_half, vf_bytes: unaligned; vf_half widens VF_LANES fp16 values, vf_bytes int8
 * - vf_set, vf_add, vf_sub, vf_mul, vf_div, vf_abs, vf_round: as they are called; vf_set_half widens
 * - vf_fma(x, y, z): x * y + z, fused or not
 * - vf_max(x, y): y when either is NaN (or NaN)
 * - vf_pow2_mul(x, n): x * 2^n, n integral, -126..0 or NaN
 * - vf_if_less(x, y, a, b): per lane x < y ? a : b
 * - vf_sum, vf_largest: over the lanes
 * - vf_sums(x, out): out[i] = sum of the lanes of x[i], i < VF_SUMS
 * - VF_SUMS: how many sums are kept in registers, a power of two and a multiple of VF_LANES
 * - VF_QK_VECTORS, VF_QK_TOKENS(vectors): register blocking, see below
 * - VF_FEW_MAX: up to so many rows "few" is faster
 *
 * Where fp16 is multiplied without being widened, VF_HALVES is 1, a vf may hold 2 * VF_LANES fp16 values, and
 *
 * - vf_halves loads them; vf_store_half rounds a vf of floats to VF_LANES of them
 * - vf_halves_dot(x, y, z): z plus the products of x and y, two to a lane
 * - vf_halves_low(x, y, i, z), vf_halves_high: z plus the lower or upper half of x times element i of y
 * - VF_FEW_MAX_HALVES: VF_FEW_MAX for K of fp16. "few" multiplies fp16 K and V that way, "block" does not
 *
 * Per chunk: logits of all its tokens, softmax once, then V is added with the accumulators in registers
 * (attn_values.inc.h). K and V are used as they lie in the cache, each element widened in a register. Two
 * ways to the logits, chosen by the number of rows in a group (attn_plan.c):
 *
 * - block (attn_block.inc.h): the lanes are query rows. Each element of K, broadcast, is multiplied with a
 *   vector of that element of all rows (the queries were transposed when packed). Logits come out as
 *   [token][row], so the softmax needs no sums across lanes. What is broadcast has to lie in memory as fp32:
 *   some K rows at a time are widened to a small buffer, while the ones before them are multiplied. With
 *   fewer rows than lanes the lanes are wasted, hence
 * - few (attn_few.inc.h): the lanes run along the head; dot products of K rows with each query row, summed
 *   across lanes several at a time. Logits are [row][token].
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn/attn_element.h"
#include "attn/attn_kernel.h"

#define INLINE static inline __attribute__((always_inline))
#define TILE   MZ_ATTN_TILE
#define TILES  (MZ_ATTN_CHUNK / TILE)

#ifndef VF_HALVES /* compiled, but not used */
#define VF_HALVES                  0
#define VF_FEW_MAX_HALVES          VF_FEW_MAX
#define vf_halves(p)               vf_half(p)
#define vf_halves_dot(x, y, z)     vf_fma(x, y, z)
#define vf_halves_low(x, y, i, z)  ((void)(i), vf_fma(x, y, z))
#define vf_halves_high(x, y, i, z) ((void)(i), vf_fma(x, y, z))
#define vf_store_half(p, x)        ((void)(p), (void)(x))
#endif

#include "attn/attn_math.inc.h"
#include "attn/attn_rows.inc.h"
#include "attn/attn_queries.inc.h"
#include "attn/attn_block.inc.h"
#include "attn/attn_few.inc.h"
#include "attn/attn_values.inc.h"

/* ---- a chunk */

static void walk_set(struct walk *w, const struct mz_attn_job *job, uint32_t chunk, uint32_t n_tokens,
                     enum mz_attn_mask all)
{
    const struct mz_attn *a = job->a;
    size_t at = (size_t)job->seq * job->plan->n_chunks + chunk;

    w->chunk = chunk;
    w->n_tokens = n_tokens;
    w->k = (struct rows){(const char *)a->k[at] + job->kv_head * a->k_head_bytes, a->k_row_bytes};
    w->v = (struct rows){(const char *)a->v[at] + job->kv_head * a->v_head_bytes, a->v_row_bytes};
    w->cold = chunk % job->plan->range_chunks == 0;
    w->next_k = (struct rows){NULL, a->k_row_bytes};
    if ((chunk + 1) % job->plan->range_chunks && chunk + 1 < job->plan->n_chunks && a->k[at + 1])
        w->next_k.at = (const char *)a->k[at + 1] + job->kv_head * a->k_head_bytes;
    for (uint32_t t = 0; t < n_tokens; t += TILE)
        w->tiles[t / TILE] = all == MZ_ATTN_MASK_NONE
                                 ? all
                                 : mz_attn_mask_class(job, chunk * MZ_ATTN_CHUNK + t,
                                                      n_tokens - t < TILE ? n_tokens - t : TILE);
}

static void logits(struct mz_attn_job *job, const struct walk *w)
{
    bool half = job->a->k_type == MZ_ATTN_F16;

    if (job->plan->few && half)
        dot_rows(job, w, MZ_ATTN_F16);
    else if (job->plan->few)
        dot_rows(job, w, MZ_ATTN_Q8_0);
    else if (half)
        qk_vectors(job, w, MZ_ATTN_F16);
    else
        qk_vectors(job, w, MZ_ATTN_Q8_0);
}

static void softmax(struct mz_attn_job *job, const struct walk *w, float *alpha)
{
    if (!job->plan->few)
        block_softmax(job, w, alpha);
    for (uint32_t r = 0; job->plan->few && r < few_rows(job); r++)
        alpha[r] = few_softmax(job, w, r);
}

static void values(struct mz_attn_job *job, const struct walk *w, const float *alpha)
{
    bool half = job->a->v_type == MZ_ATTN_F16;

    if (any_nonfinite(job, w)) {
        pv_carefully(job, w, alpha);
        return;
    }
    if (job->plan->few && half)
        pv(job, w, alpha, true, MZ_ATTN_F16);
    else if (job->plan->few)
        pv(job, w, alpha, true, MZ_ATTN_Q8_0);
    else if (half)
        pv(job, w, alpha, false, MZ_ATTN_F16);
    else
        pv(job, w, alpha, false, MZ_ATTN_Q8_0);
    if (job->a->dv % VF_LANES)
        pv_rest(job, w, alpha, job->plan->few);
}

static void run_chunk(struct mz_attn_job *job, uint32_t chunk, uint32_t n_tokens, enum mz_attn_mask mask)
{
    float alpha[MZ_ATTN_BLOCK_MAX];
    struct walk w;

    walk_set(&w, job, chunk, n_tokens, mask);
    logits(job, &w);
    softmax(job, &w, alpha);
    values(job, &w, alpha);
}

static const struct mz_attn_kernel kernel = {
    .geometry = {.lanes = VF_LANES,
                 .block_rows = VF_QK_VECTORS * VF_LANES,
                 .few_step = (VF_HALVES + 1) * VF_LANES,
                 .few_rows = {[MZ_ATTN_F16] = VF_FEW_MAX_HALVES, [MZ_ATTN_Q8_0] = VF_FEW_MAX}},
    .pack = pack,
    .chunk = run_chunk,
};
