/*
 * The attention kernel, written once for all instruction sets. Included by attn_<isa>.c after its
 * attn_vec_<isa>.h, which defines, for vectors vf of VF_LANES floats:
 *
 * - vf_load, vf_store, vf_half: unaligned; vf_half widens VF_LANES fp16 values
 * - vf_set, vf_add, vf_sub, vf_mul, vf_div, vf_abs, vf_round: as they are called
 * - vf_fma(x, y, z): x * y + z, fused or not
 * - vf_max(x, y): y when either is NaN (or NaN)
 * - vf_pow2_mul(x, n): x * 2^n, n integral, -126..0 or NaN
 * - vf_if_less(x, y, a, b): per lane x < y ? a : b
 * - vf_sum, vf_largest: over the lanes
 * - vf_sums(x, out): out[i] = sum of the lanes of x[i], i < VF_SUMS
 * - VF_SUMS: how many sums are kept in registers, a multiple of VF_LANES
 * - VF_QK_VECTORS, VF_QK_TOKENS(vectors), VF_PV_ROWS, VF_PV_VECTORS: register blocking, see below
 * - VF_FEW_MAX: up to so many rows "few" is faster
 *
 * Two algorithms, chosen by the number of rows in a group (attn_plan.c):
 *
 * - block: the lanes are query rows. 32 K rows are widened, and each element, broadcast, is multiplied with a
 *   vector of that element of all rows (the queries were transposed when packed). Logits come out as
 *   [token][row], so the softmax needs no sums across lanes, and the weights lie ready to be broadcast
 *   against widened V rows. With fewer rows than lanes the lanes are wasted, hence
 * - few: the lanes run along the head; dot products of fp16 K rows with each query row, summed across lanes
 *   several at a time. A chunk of logits is kept, so that the softmax is taken once per chunk and the
 *   accumulators stay in registers while V is read.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn/attn_half.h"
#include "attn/attn_kernel.h"

#define INLINE static inline __attribute__((always_inline))
#define TILE   MZ_ATTN_TILE

/* K rows are widened as [dk_pad / GROUP][TILE][GROUP], so that the distance between tokens is a constant. */
#define GROUP MZ_ATTN_PAD

/* ---- functions */

/*
 * exp(x) for x <= 0: 0 below -87.3, where the result would be subnormal; NaN stays NaN. exp(r) = 1 + r + r^2
 * p(r) on |r| <= ln(2) / 2 with p interpolated at Chebyshev nodes, 1.1e-8 off; with rounding at most 2 ulp
 * (1.2e-7 relative).
 */
INLINE vf exp_of_negative(vf x)
{
    const vf lowest = vf_set(-87.3f);
    vf y = vf_max(lowest, x);
    vf n = vf_round(vf_mul(y, vf_set(1.44269504f)));
    vf r = vf_fma(n, vf_set(-0.693359375f), y); /* ln 2 in two parts: the first times n is exact */
    vf p;

    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    p = vf_fma(vf_set(1.39261836e-3f), r, vf_set(8.36317905e-3f));
    p = vf_fma(p, r, vf_set(4.16665546e-2f));
    p = vf_fma(p, r, vf_set(1.66665770e-1f));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_add(vf_fma(vf_mul(r, r), p, r), vf_set(1.0f));
    return vf_if_less(x, lowest, vf_set(0.0f), vf_pow2_mul(p, n));
}

/* tanh, at most 4e-7 relative: an odd polynomial (1.7e-8 off) below 0.625, else by exp(-2|x|). */
INLINE vf tanh_of(vf x)
{
    vf z = vf_mul(x, x), size = vf_abs(x), p, e, far;

    p = vf_fma(vf_set(-6.09671436e-3f), z, vf_set(2.09971792e-2f));
    p = vf_fma(p, z, vf_set(-5.38509096e-2f));
    p = vf_fma(p, z, vf_set(1.33327697e-1f));
    p = vf_fma(p, z, vf_set(-3.33333289e-1f));
    e = exp_of_negative(vf_mul(size, vf_set(-2.0f)));
    far = vf_div(vf_sub(vf_set(1.0f), e), vf_add(vf_set(1.0f), e));
    far = vf_if_less(x, vf_set(0.0f), vf_sub(vf_set(0.0f), far), far);
    return vf_if_less(size, vf_set(0.625f), vf_fma(vf_mul(x, z), p, x), far);
}

/* The logit with its mask; -infinity where masked, whatever the logit is. */
INLINE vf add_bias(vf x, vf bias)
{
    return vf_if_less(bias, vf_set(-FLT_MAX), vf_set(-INFINITY), vf_add(x, bias));
}

/* What to subtract before exp: a row without any position so far must not give infinity - infinity. */
INLINE vf safe_max(vf m)
{
    return vf_if_less(m, vf_set(-FLT_MAX), vf_set(0.0f), m);
}

/* ---- rows of memory */

static const uint16_t *k_row(const struct mz_attn_job *job, uint32_t chunk, uint32_t token)
{
    const struct mz_attn *a = job->a;
    uint64_t n_chunks = job->plan->n_chunks;

    return (const uint16_t *)((const char *)a->k[job->seq * n_chunks + chunk] + token * a->k_row_bytes +
                              job->kv_head * a->k_head_bytes);
}

static const uint16_t *v_row(const struct mz_attn_job *job, uint32_t chunk, uint32_t token)
{
    const struct mz_attn *a = job->a;
    uint64_t n_chunks = job->plan->n_chunks;

    return (const uint16_t *)((const char *)a->v[job->seq * n_chunks + chunk] + token * a->v_row_bytes +
                              job->kv_head * a->v_head_bytes);
}

INLINE const uint16_t *row_next(const uint16_t *row, uint64_t bytes)
{
    return (const uint16_t *)((const char *)row + bytes);
}

/* Rows of the other heads lie between two rows of this one: the hardware's prefetcher sees strides that often
 * cross a page and stops there. */
INLINE void row_prefetch(const uint16_t *row, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 32)
        __builtin_prefetch(row + i, 0, 3);
}

/* Whether n_tokens rows hold an infinity or a NaN. */
static bool any_nonfinite(const uint16_t *row, uint64_t row_bytes, uint32_t n, uint32_t n_tokens)
{
    uint32_t found = 0;

    for (uint32_t t = 0; t < n_tokens; t++, row = row_next(row, row_bytes)) {
        for (uint32_t i = 0; i < n; i++)
            found |= (row[i] & 0x7c00u) == 0x7c00u;
    }
    return found;
}

/* slope * mask for one row of a tile; -infinity from n to TILE. */
static void bias_row(const uint16_t *mask, float slope, uint32_t n, float *bias)
{
    uint32_t t = 0;

    for (; t + VF_LANES <= n; t += VF_LANES)
        vf_store(bias + t, vf_mul(vf_half(mask + t), vf_set(slope)));
    for (; t < n; t++)
        bias[t] = mz_attn_half_to_float(mask[t]) * slope;
    for (; t < TILE; t++)
        bias[t] = -INFINITY;
}

/* What the mask says about a tile, given what it says about the chunk. */
static enum mz_attn_mask tile_mask(const struct mz_attn_job *job, uint32_t chunk, uint32_t t0, uint32_t n,
                                   enum mz_attn_mask all)
{
    return all == MZ_ATTN_MASK_NONE ? all : mz_attn_mask_class(job, chunk * MZ_ATTN_CHUNK + t0, n);
}

static const float *query_row(const struct mz_attn_job *job, uint32_t i)
{
    const struct mz_attn *a = job->a;
    uint32_t row = job->row0 + i, group = job->plan->group;

    return (const float *)((const char *)a->q + row / group * a->q_row_bytes + job->seq * a->q_seq_bytes +
                           (job->kv_head * group + row % group) * a->q_head_bytes);
}

/* Scale goes into the queries; with a soft-cap, they give the argument of tanh. */
static void pack(struct mz_attn_job *job)
{
    const struct mz_attn *a = job->a;
    const struct mz_attn_plan *p = job->plan;
    float scale = a->logit_softcap != 0.0f ? a->scale / a->logit_softcap : a->scale;
    size_t row_step = p->few ? p->dk_pad : 1, step = p->few ? 1 : p->block_rows;

    memset(job->q, 0, (size_t)p->dk_pad * p->block_rows * sizeof(float));
    for (uint32_t i = 0; i < job->n_rows; i++) {
        const float *src = query_row(job, i);

        for (uint32_t d = 0; d < a->dk; d++)
            job->q[i * row_step + d * step] = src[d] * scale;
    }
}

/* Weights of exactly 0 leave V out, so that a NaN in a masked V row stays there. Slow; for tiles with such
 * rows. */
static void add_carefully(const uint16_t *v, uint64_t v_bytes, const float *weights, size_t weight_step,
                          uint32_t dv, uint32_t n_tokens, float *acc)
{
    for (uint32_t t = 0; t < n_tokens; t++, v = row_next(v, v_bytes)) {
        float w = weights[t * weight_step];

        for (uint32_t d = 0; d < dv && w != 0.0f; d++)
            acc[d] += w * mz_attn_half_to_float(v[d]);
    }
}

/* ---- block */

/* Rows asked for ahead while widening: it matters for the first tile of a range only, see struct ahead. */
#define WIDEN_AHEAD 4

/*
 * Rows that are asked for while others are multiplied: V of a tile during its logits, K of the next tile
 * while V of this one is added. Asked for in bursts by the widening loop instead, they took the same time in
 * all (8 rows, 8k tokens, one thread, a shared machine: 7.2 ms both ways); spread out, they wait where the
 * multiplications can go on.
 */
struct ahead {
    const uint16_t *row;
    uint64_t bytes;
};

INLINE void ahead_ask(struct ahead a, uint32_t token, uint32_t d)
{
    __builtin_prefetch(row_next(a.row, a.bytes * token) + d, 0, 3);
}

/* Widens n_tokens rows of n values; zeros up to n_pad and TILE. Distance between tokens: `stride` floats,
 * between groups of `stride` values: TILE * stride. */
INLINE void widen(const uint16_t *row, uint64_t row_bytes, uint32_t n, uint32_t n_tokens, float *out,
                  const uint32_t stride)
{
    uint32_t whole = n / stride * stride;

    for (uint32_t t = 0; t < n_tokens; t++, row = row_next(row, row_bytes)) {
        row_prefetch(row_next(row, row_bytes * WIDEN_AHEAD), n);
        for (uint32_t d = 0; d < whole; d += stride) {
#pragma GCC unroll 16
            for (uint32_t i = 0; i < stride; i += VF_LANES)
                vf_store(out + (size_t)d * TILE + t * stride + i, vf_half(row + d + i));
        }
    }
}

/* The values of each row behind the last whole group. */
static void widen_rest(const uint16_t *row, uint64_t row_bytes, uint32_t from, uint32_t n, uint32_t n_tokens,
                       float *out, uint32_t stride)
{
    memset(out, 0, sizeof(float) * TILE * stride);
    for (uint32_t t = 0; t < n_tokens; t++, row = row_next(row, row_bytes)) {
        for (uint32_t d = from; d < n; d++)
            out[t * stride + d - from] = mz_attn_half_to_float(row[d]);
    }
}

static void widen_k(const struct mz_attn_job *job, uint32_t chunk, uint32_t t0, uint32_t n_tokens)
{
    const struct mz_attn *a = job->a;
    const uint16_t *row = k_row(job, chunk, t0);
    uint32_t whole = a->dk / GROUP * GROUP;

    if (n_tokens < TILE)
        memset(job->k, 0, sizeof(float) * TILE * job->plan->dk_pad);
    widen(row, a->k_row_bytes, a->dk, n_tokens, job->k, GROUP);
    if (whole < a->dk)
        widen_rest(row, a->k_row_bytes, whole, a->dk, n_tokens, job->k + (size_t)whole * TILE, GROUP);
}

/* V as [groups of VF_PV_VECTORS][TILE], then what is left as [vectors][TILE]. */
#define PV_GROUP (VF_PV_VECTORS * VF_LANES)

static void widen_v(const struct mz_attn_job *job, uint32_t chunk, uint32_t t0, uint32_t n_tokens)
{
    const struct mz_attn *a = job->a;
    const uint16_t *row = v_row(job, chunk, t0);
    uint32_t groups = a->dv / PV_GROUP * PV_GROUP, whole = a->dv / VF_LANES * VF_LANES;

    widen(row, a->v_row_bytes, a->dv, n_tokens, job->v, PV_GROUP);
    widen(row + groups, a->v_row_bytes, a->dv - groups, n_tokens, job->v + (size_t)groups * TILE, VF_LANES);
    if (whole < a->dv)
        widen_rest(row, a->v_row_bytes, whole, a->dv, n_tokens, job->v + (size_t)whole * TILE, VF_LANES);
}

/* Logits of n_tokens tokens for n_vectors vectors of rows: n_tokens * n_vectors sums in registers. */
INLINE void qk_step(const float *q, const float *k, uint32_t dk_pad, float *logits, struct ahead values,
                    const uint32_t n_tokens, const uint32_t n_vectors)
{
    const uint32_t rows = n_vectors * VF_LANES;
    vf sum[16][VF_QK_VECTORS];

#pragma GCC unroll 16
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 16
        for (uint32_t v = 0; v < n_vectors; v++)
            sum[t][v] = vf_set(0.0f);
    for (uint32_t g = 0; g < dk_pad / GROUP; g++, k += TILE * GROUP) {
        for (uint32_t t = g % 2; t < n_tokens; t += 2) /* a line of half the rows: two groups are a line */
            ahead_ask(values, t, g / 2 * 2 * GROUP);
        for (uint32_t d = 0; d < GROUP; d++, q += rows) {
            vf column[VF_QK_VECTORS];

#pragma GCC unroll 16
            for (uint32_t v = 0; v < n_vectors; v++)
                column[v] = vf_load(q + v * VF_LANES);
#pragma GCC unroll 16
            for (uint32_t t = 0; t < n_tokens; t++) {
                vf element = vf_set(k[t * GROUP + d]);

#pragma GCC unroll 16
                for (uint32_t v = 0; v < n_vectors; v++)
                    sum[t][v] = vf_fma(element, column[v], sum[t][v]);
            }
        }
    }
#pragma GCC unroll 16
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 16
        for (uint32_t v = 0; v < n_vectors; v++)
            vf_store(logits + t * rows + v * VF_LANES, sum[t][v]);
}

INLINE void qk_tile(const struct mz_attn_job *job, uint32_t n_tokens, struct ahead v,
                    const uint32_t n_vectors)
{
    const uint32_t step = VF_QK_TOKENS(n_vectors);

    for (uint32_t t = 0; t < n_tokens; t += step, v.row = row_next(v.row, v.bytes * step))
        qk_step(job->q, job->k + t * GROUP, job->plan->dk_pad, job->logits + t * n_vectors * VF_LANES, v,
                step, n_vectors);
}

static void qk(const struct mz_attn_job *job, uint32_t n_tokens, struct ahead v)
{
    switch (job->plan->block_rows / VF_LANES) {
    case 1:
        qk_tile(job, n_tokens, v, 1);
        break;
    case 2:
        qk_tile(job, n_tokens, v, 2);
        break;
#if VF_QK_VECTORS >= 4
    case 4:
        qk_tile(job, n_tokens, v, 4);
        break;
#endif
#if VF_QK_VECTORS >= 8
    case 8:
        qk_tile(job, n_tokens, v, 8);
        break;
#endif
    }
}

/* The mask of a tile as [token][row]. Rows that exist only as padding get 0. */
static void bias_block(const struct mz_attn_job *job, uint32_t token, uint32_t n_tokens)
{
    uint32_t rows = job->plan->block_rows;
    float bias[TILE];

    memset(job->bias, 0, sizeof(float) * TILE * rows);
    for (uint32_t i = 0; i < job->n_rows; i++) {
        if (i == 0 || job->mask[i] != job->mask[i - 1] || job->a->max_bias > 0.0f)
            bias_row(job->mask[i] + token, job->slope[i], n_tokens, bias);
        for (uint32_t t = 0; t < n_tokens; t++)
            job->bias[t * rows + i] = bias[t];
    }
}

/* Soft-cap and mask; returns the largest logit per lane. */
INLINE vf logits_finish(const struct mz_attn_job *job, float *x, const float *bias, uint32_t n_tokens,
                        bool masked)
{
    float cap = job->a->logit_softcap;
    uint32_t rows = job->plan->block_rows;
    vf largest = vf_set(-INFINITY);

    for (uint32_t t = 0; t < n_tokens; t++, x += rows, bias += rows) {
        vf y = vf_load(x);

        if (cap != 0.0f)
            y = vf_mul(tanh_of(y), vf_set(cap));
        if (masked)
            y = add_bias(y, vf_load(bias));
        if (cap != 0.0f || masked)
            vf_store(x, y);
        largest = vf_max(largest, y);
    }
    return largest;
}

/* Logits become weights; the slot's maximum and sum are brought up to date. alpha: what acc has to be
 * multiplied by. */
static void softmax_block(struct mz_attn_job *job, uint32_t n_tokens, bool masked, float *alpha)
{
    uint32_t rows = job->plan->block_rows;

    for (uint32_t r = 0; r < rows; r += VF_LANES) {
        float *x = job->logits + r;
        vf largest = logits_finish(job, x, job->bias + r, n_tokens, masked);
        vf m_old = vf_load(job->m + r), m = vf_max(m_old, largest), shift = safe_max(m);
        vf factor = exp_of_negative(vf_sub(m_old, shift)), sum = vf_mul(vf_load(job->s + r), factor);

        for (uint32_t t = 0; t < n_tokens; t++) {
            vf w = exp_of_negative(vf_sub(vf_load(x + t * rows), shift));

            vf_store(x + t * rows, w);
            sum = vf_add(sum, w);
        }
        vf_store(job->m + r, m);
        vf_store(job->s + r, sum);
        vf_store(alpha + r, factor);
    }
}

/* acc = acc * alpha + weights * V for VF_PV_ROWS rows and n_vectors vectors of V. */
INLINE void pv_step(const float *weights, uint32_t rows, const float *alpha, const float *v,
                    uint32_t n_tokens, float *acc, uint32_t dv_pad, struct ahead k, const bool ask,
                    const uint32_t n_vectors)
{
    vf sum[VF_PV_ROWS][VF_PV_VECTORS];

#pragma GCC unroll 16
    for (uint32_t r = 0; r < VF_PV_ROWS; r++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            sum[r][i] = vf_mul(vf_load(acc + r * dv_pad + i * VF_LANES), vf_set(alpha[r]));
    for (uint32_t t = 0; t < n_tokens; t++, weights += rows, v += n_vectors * VF_LANES) {
        vf value[VF_PV_VECTORS];

        for (uint32_t d = 0; ask && d < n_vectors * VF_LANES; d += 32)
            ahead_ask(k, t, d);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            value[i] = vf_load(v + i * VF_LANES);
#pragma GCC unroll 16
        for (uint32_t r = 0; r < VF_PV_ROWS; r++) {
            vf w = vf_set(weights[r]);

#pragma GCC unroll 16
            for (uint32_t i = 0; i < n_vectors; i++)
                sum[r][i] = vf_fma(w, value[i], sum[r][i]);
        }
    }
#pragma GCC unroll 16
    for (uint32_t r = 0; r < VF_PV_ROWS; r++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            vf_store(acc + r * dv_pad + i * VF_LANES, sum[r][i]);
}

INLINE void pv_rows(struct mz_attn_job *job, uint32_t r, uint32_t n_tokens, const float *alpha,
                    struct ahead k, const bool ask)
{
    uint32_t rows = job->plan->block_rows, dv_pad = job->plan->dv_pad, dv = job->a->dv, d = 0;
    const float *weights = job->logits + r;
    float *acc = job->acc + (size_t)r * dv_pad;

    for (; d + PV_GROUP <= dv; d += PV_GROUP, k.row += PV_GROUP)
        pv_step(weights, rows, alpha + r, job->v + (size_t)d * TILE, n_tokens, acc + d, dv_pad, k, ask,
                VF_PV_VECTORS);
    for (; d < dv; d += VF_LANES, k.row += VF_LANES)
        pv_step(weights, rows, alpha + r, job->v + (size_t)d * TILE, n_tokens, acc + d, dv_pad, k, ask, 1);
}

/* Rows up to the next multiple of VF_PV_ROWS: those behind the last are padding, which a block has. */
static void pv_block(struct mz_attn_job *job, uint32_t n_tokens, const float *alpha, struct ahead k)
{
    pv_rows(job, 0, n_tokens, alpha, k, true);
    for (uint32_t r = VF_PV_ROWS; r < job->n_rows; r += VF_PV_ROWS)
        pv_rows(job, r, n_tokens, alpha, k, false);
}

static void pv_block_carefully(struct mz_attn_job *job, const uint16_t *v, uint32_t n_tokens,
                               const float *alpha)
{
    for (uint32_t r = 0; r < job->n_rows; r++) {
        float *acc = job->acc + (size_t)r * job->plan->dv_pad;

        for (uint32_t d = 0; d < job->a->dv; d++)
            acc[d] *= alpha[r];
        add_carefully(v, job->a->v_row_bytes, job->logits + r, job->plan->block_rows, job->a->dv, n_tokens,
                      acc);
    }
}

static void block_tile(struct mz_attn_job *job, uint32_t chunk, uint32_t t0, uint32_t n_tokens, bool masked)
{
    const struct mz_attn *a = job->a;
    const uint16_t *v = v_row(job, chunk, t0);
    float alpha[MZ_ATTN_BLOCK_MAX];

    widen_k(job, chunk, t0, n_tokens);
    qk(job, n_tokens, (struct ahead){v, a->v_row_bytes});
    if (masked)
        bias_block(job, chunk * MZ_ATTN_CHUNK + t0, n_tokens);
    softmax_block(job, n_tokens, masked, alpha);
    if (masked && any_nonfinite(v, a->v_row_bytes, a->dv, n_tokens)) {
        pv_block_carefully(job, v, n_tokens, alpha);
    } else {
        widen_v(job, chunk, t0, n_tokens);
        pv_block(job, n_tokens, alpha, (struct ahead){k_row(job, chunk, t0 + TILE), a->k_row_bytes});
    }
}

static void block_chunk(struct mz_attn_job *job, uint32_t chunk, uint32_t n_tokens, enum mz_attn_mask all)
{
    for (uint32_t t0 = 0; t0 < n_tokens; t0 += TILE) {
        uint32_t n = n_tokens - t0 < TILE ? n_tokens - t0 : TILE;
        enum mz_attn_mask mask = tile_mask(job, chunk, t0, n, all);

        if (mask != MZ_ATTN_MASK_ALL)
            block_tile(job, chunk, t0, n, mask == MZ_ATTN_MASK_SOME);
    }
}

/* ---- few */

#define FEW_TILES (MZ_ATTN_CHUNK / TILE)

/* Tokens of K and V that are asked for ahead of their use. */
#define FEW_AHEAD 16

/* Logits of VF_SUMS / rows tokens for `rows` query rows. Behind the last token the last one is taken again.
 */
INLINE void dot_step(const float *q, const uint16_t *k, uint64_t k_bytes, uint32_t dk, uint32_t dk_pad,
                     uint32_t n_tokens, float *logits, const uint32_t rows)
{
    const uint32_t tokens = VF_SUMS / rows;
    vf sum[VF_SUMS];
    float sums[VF_SUMS];

#pragma GCC unroll 16
    for (uint32_t t = 0; t < tokens; t++) {
#pragma GCC unroll 16
        for (uint32_t r = 0; r < rows; r++)
            sum[r * tokens + t] = vf_set(0.0f);
        row_prefetch(row_next(k, k_bytes * FEW_AHEAD), dk);
        for (uint32_t d = 0; d < dk; d += VF_LANES) {
            vf x = vf_half(k + d);

#pragma GCC unroll 16
            for (uint32_t r = 0; r < rows; r++)
                sum[r * tokens + t] = vf_fma(x, vf_load(q + r * dk_pad + d), sum[r * tokens + t]);
        }
        if (t + 1 < n_tokens)
            k = row_next(k, k_bytes);
    }
    vf_sums(sum, sums);
#pragma GCC unroll 16
    for (uint32_t r = 0; r < rows; r++)
        memcpy(logits + r * MZ_ATTN_CHUNK, sums + r * tokens, tokens * sizeof(float));
}

INLINE void dot_tile(const struct mz_attn_job *job, const uint16_t *k, uint32_t row, uint32_t t0,
                     uint32_t n_tokens, const uint32_t rows)
{
    const struct mz_attn *a = job->a;
    const float *q = job->q + (size_t)row * job->plan->dk_pad;
    float *logits = job->logits + (size_t)row * MZ_ATTN_CHUNK + t0;

    for (uint32_t t = 0; t < n_tokens;
         t += VF_SUMS / rows, k = row_next(k, a->k_row_bytes * (VF_SUMS / rows)))
        dot_step(q, k, a->k_row_bytes, a->dk, job->plan->dk_pad, n_tokens - t, logits + t, rows);
}

/* Soft-cap and mask of one row of a tile; -infinity behind the last token. */
static void few_finish(const struct mz_attn_job *job, uint32_t row, uint32_t chunk, uint32_t t0, uint32_t n,
                       bool masked)
{
    float cap = job->a->logit_softcap, *x = job->logits + (size_t)row * MZ_ATTN_CHUNK + t0;
    float bias[TILE];

    if (masked && row < job->n_rows)
        bias_row(job->mask[row] + (size_t)chunk * MZ_ATTN_CHUNK + t0, job->slope[row], n, bias);
    for (uint32_t t = 0; t < TILE && cap != 0.0f; t += VF_LANES)
        vf_store(x + t, vf_mul(tanh_of(vf_load(x + t)), vf_set(cap)));
    for (uint32_t t = 0; t < TILE && masked && row < job->n_rows; t += VF_LANES)
        vf_store(x + t, add_bias(vf_load(x + t), vf_load(bias + t)));
    for (uint32_t t = n; t < TILE; t++)
        x[t] = -INFINITY;
}

static void few_logits(struct mz_attn_job *job, uint32_t chunk, uint32_t t0, uint32_t n, bool masked)
{
    const uint16_t *k = k_row(job, chunk, t0);
    uint32_t rows = job->plan->block_rows;

    if (rows == 1)
        dot_tile(job, k, 0, t0, n, 1);
    else if (rows == 2)
        dot_tile(job, k, 0, t0, n, 2);
    else
        for (uint32_t r = 0; r < rows; r += 4)
            dot_tile(job, k, r, t0, n, 4);
    for (uint32_t r = 0; r < rows; r++)
        few_finish(job, r, chunk, t0, n, masked);
}

/* As softmax_block, for one row over the tiles of a chunk that are not left out. */
static float few_softmax(struct mz_attn_job *job, uint32_t row, const enum mz_attn_mask *tiles,
                         uint32_t n_tiles)
{
    float *x = job->logits + (size_t)row * MZ_ATTN_CHUNK;
    vf largest = vf_set(-INFINITY), sum = vf_set(0.0f), shift;
    float m, factor[VF_LANES];

    for (uint32_t t = 0; t < n_tiles * TILE; t += VF_LANES) {
        if (tiles[t / TILE] != MZ_ATTN_MASK_ALL)
            largest = vf_max(largest, vf_load(x + t));
    }
    m = vf_largest(largest);
    m = job->m[row] > m ? job->m[row] : m;
    shift = safe_max(vf_set(m));
    for (uint32_t t = 0; t < n_tiles * TILE; t += VF_LANES) {
        if (tiles[t / TILE] != MZ_ATTN_MASK_ALL) {
            vf w = exp_of_negative(vf_sub(vf_load(x + t), shift));

            vf_store(x + t, w);
            sum = vf_add(sum, w);
        }
    }
    vf_store(factor, exp_of_negative(vf_sub(vf_set(job->m[row]), shift)));
    job->m[row] = m;
    job->s[row] = job->s[row] * factor[0] + vf_sum(sum);
    return factor[0];
}

/* The part of V that a step adds: n_vectors vectors from element d on. */
struct few_v {
    const uint16_t *row;
    uint64_t row_bytes;
    const enum mz_attn_mask *tiles;
    uint32_t n_tokens;
    uint32_t ahead; /* elements of a row to prefetch: all of it for the first step, none for the others */
};

INLINE void few_pv_step(const struct few_v *v, uint32_t d, const float *weights, const float *alpha,
                        float *acc, uint32_t dv_pad, const uint32_t rows, const uint32_t n_vectors)
{
    const uint16_t *row = v->row;
    vf sum[4][8];

#pragma GCC unroll 16
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            sum[r][i] = vf_mul(vf_load(acc + r * dv_pad + d + i * VF_LANES), vf_set(alpha[r]));
    for (uint32_t t = 0; t < v->n_tokens; t++, row = row_next(row, v->row_bytes)) {
        if (v->tiles[t / TILE] == MZ_ATTN_MASK_ALL)
            continue;
        row_prefetch(row_next(row, v->row_bytes * FEW_AHEAD), v->ahead);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++) {
            vf x = vf_half(row + d + i * VF_LANES);

#pragma GCC unroll 16
            for (uint32_t r = 0; r < rows; r++)
                sum[r][i] = vf_fma(x, vf_set(weights[r * MZ_ATTN_CHUNK + t]), sum[r][i]);
        }
    }
#pragma GCC unroll 16
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            vf_store(acc + r * dv_pad + d + i * VF_LANES, sum[r][i]);
}

INLINE void few_pv(struct mz_attn_job *job, struct few_v v, uint32_t row, const float *alpha,
                   const uint32_t rows)
{
    const uint32_t most = VF_SUMS / rows < 8 ? VF_SUMS / rows : 8;
    const float *weights = job->logits + (size_t)row * MZ_ATTN_CHUNK;
    uint32_t dv_pad = job->plan->dv_pad, dv = job->a->dv, d = 0;
    float *acc = job->acc + (size_t)row * dv_pad;

    for (; d + most * VF_LANES <= dv; d += most * VF_LANES, v.ahead = 0)
        few_pv_step(&v, d, weights, alpha + row, acc, dv_pad, rows, most);
    if (most > 4 && d + 4 * VF_LANES <= dv) {
        few_pv_step(&v, d, weights, alpha + row, acc, dv_pad, rows, 4);
        v.ahead = 0;
        d += 4 * VF_LANES;
    }
    for (; d < dv; d += VF_LANES, v.ahead = 0)
        few_pv_step(&v, d, weights, alpha + row, acc, dv_pad, rows, 1);
}

static void few_values(struct mz_attn_job *job, const struct few_v *v, const float *alpha)
{
    uint32_t rows = job->plan->block_rows;

    if (rows == 1)
        few_pv(job, *v, 0, alpha, 1);
    else if (rows == 2)
        few_pv(job, *v, 0, alpha, 2);
    else
        for (uint32_t r = 0; r < rows; r += 4)
            few_pv(job, *v, r, alpha, 4);
}

static void few_values_carefully(struct mz_attn_job *job, const struct few_v *v, const float *alpha)
{
    for (uint32_t r = 0; r < job->n_rows; r++) {
        float *acc = job->acc + (size_t)r * job->plan->dv_pad;

        for (uint32_t d = 0; d < job->a->dv; d++)
            acc[d] *= alpha[r];
        for (uint32_t t = 0; t < v->n_tokens; t += TILE) {
            if (v->tiles[t / TILE] != MZ_ATTN_MASK_ALL)
                add_carefully(row_next(v->row, v->row_bytes * t), v->row_bytes,
                              job->logits + (size_t)r * MZ_ATTN_CHUNK + t, 1, job->a->dv,
                              v->n_tokens - t < TILE ? v->n_tokens - t : TILE, acc);
        }
    }
}

static void few_chunk(struct mz_attn_job *job, uint32_t chunk, uint32_t n_tokens, enum mz_attn_mask all)
{
    enum mz_attn_mask tiles[FEW_TILES];
    struct few_v v = {v_row(job, chunk, 0), job->a->v_row_bytes, tiles, n_tokens, job->a->dv};
    uint32_t n_tiles = (n_tokens + TILE - 1) / TILE;
    float alpha[MZ_ATTN_BLOCK_MAX];
    bool careful = false;

    for (uint32_t i = 0; i < n_tiles; i++) {
        uint32_t t0 = i * TILE, n = n_tokens - t0 < TILE ? n_tokens - t0 : TILE;

        tiles[i] = tile_mask(job, chunk, t0, n, all);
        if (tiles[i] != MZ_ATTN_MASK_ALL)
            few_logits(job, chunk, t0, n, tiles[i] == MZ_ATTN_MASK_SOME);
        if (tiles[i] == MZ_ATTN_MASK_SOME && !careful)
            careful = any_nonfinite(row_next(v.row, v.row_bytes * t0), v.row_bytes, job->a->dv, n);
    }
    for (uint32_t r = 0; r < job->plan->block_rows; r++)
        alpha[r] = few_softmax(job, r, tiles, n_tiles);
    if (careful)
        few_values_carefully(job, &v, alpha);
    else
        few_values(job, &v, alpha);
}

static void run_chunk(struct mz_attn_job *job, uint32_t chunk, uint32_t n_tokens, enum mz_attn_mask mask)
{
    if (job->plan->few)
        few_chunk(job, chunk, n_tokens, mask);
    else
        block_chunk(job, chunk, n_tokens, mask);
}

static const struct mz_attn_kernel kernel = {
    .geometry = {.lanes = VF_LANES, .block_rows = VF_QK_VECTORS * VF_LANES, .few_rows = VF_FEW_MAX},
    .pack = pack,
    .chunk = run_chunk,
};
