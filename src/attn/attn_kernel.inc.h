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
 * Per chunk: logits of all its tokens, softmax once, then V is added with the accumulators in registers. K
 * and V are used as they lie in the cache, each element widened in a register. Two ways to the logits, chosen
 * by the number of rows in a group (attn_plan.c):
 *
 * - block: the lanes are query rows. Each element of K, broadcast, is multiplied with a vector of that
 * element of all rows (the queries were transposed when packed). Logits come out as [token][row], so the
 * softmax needs no sums across lanes. What is broadcast has to lie in memory as fp32: some K rows at a time
 * are widened to a small buffer, while the ones before them are multiplied. With fewer rows than lanes the
 *   lanes are wasted, hence
 * - few: the lanes run along the head; dot products of K rows with each query row, summed across lanes
 * several at a time. Logits are [row][token].
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn/attn_element.h"
#include "attn/attn_kernel.h"

#define INLINE static inline __attribute__((always_inline))
#define TILE   MZ_ATTN_TILE
#define TILES  (MZ_ATTN_CHUNK / TILE)

/* K rows are widened as [dk_pad / GROUP][tokens][GROUP], so that the distance between tokens is a constant.
 */
#define GROUP MZ_ATTN_PAD

#include "attn/attn_math.inc.h"

/* ---- rows of memory */

/* K or V of one KV head in one chunk. */
struct rows {
    const char *at; /* token 0 */
    uint64_t bytes; /* from one token to the next */
};

INLINE const void *row_of(struct rows rows, uint32_t token)
{
    return rows.at + token * rows.bytes;
}

/* A chunk as the phases see it. */
struct walk {
    struct rows k, v;
    struct rows next_k; /* of the chunk that follows in the range, or at NULL */
    bool cold;          /* nothing was done before this chunk that asked for K */
    uint32_t chunk;
    uint32_t n_tokens;
    enum mz_attn_mask tiles[TILES]; /* what the mask says; ALL: left out */
};

/* The first token from t on that is not left out; n_tokens or more when there is none. */
INLINE uint32_t walk_to(const struct walk *w, uint32_t t)
{
    while (t < w->n_tokens && w->tiles[t / TILE] == MZ_ATTN_MASK_ALL)
        t = (t / TILE + 1) * TILE;
    return t;
}

/* Where the tile of t ends. */
INLINE uint32_t tile_end(const struct walk *w, uint32_t t)
{
    uint32_t end = (t / TILE + 1) * TILE;

    return end < w->n_tokens ? end : w->n_tokens;
}

/* VF_LANES elements from d on; q8_0: inside a block. */
INLINE vf elements(const void *row, uint32_t d, const enum mz_attn_type type)
{
    const struct mz_attn_q8 *q8 = (const struct mz_attn_q8 *)row + d / MZ_ATTN_Q8;

    if (type == MZ_ATTN_F16)
        return vf_half((const uint16_t *)row + d);
    return vf_mul(vf_bytes(q8->values + d % MZ_ATTN_Q8), vf_set_half(q8->scale));
}

/* Rows of the other heads lie between two rows of this one: the hardware's prefetcher sees strides that often
 * cross a page and stops there. Into the second-level cache: in the first, rows that are a power of two apart
 * push out each other (1 row, 8k tokens, one thread of a Zen 4: 3.5 ms that way, 2.3 ms this way). */
INLINE void row_prefetch(const void *row, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)row + i, 0, 2);
}

/* Whether one of the elements is an infinity or a NaN. */
static bool row_nonfinite(const void *row, uint32_t n, enum mz_attn_type type)
{
    uint32_t found = 0;

    for (uint32_t i = 0; type == MZ_ATTN_F16 && i < n; i++)
        found |= (((const uint16_t *)row)[i] & 0x7c00u) == 0x7c00u;
    for (uint32_t i = 0; type == MZ_ATTN_Q8_0 && i < n / MZ_ATTN_Q8; i++)
        found |= (((const struct mz_attn_q8 *)row)[i].scale & 0x7c00u) == 0x7c00u;
    return found;
}

/* Whether V holds one in a tile that is masked for some of the rows. */
static bool any_nonfinite(const struct mz_attn_job *job, const struct walk *w)
{
    for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t + 1)) {
        if (w->tiles[t / TILE] == MZ_ATTN_MASK_SOME &&
            row_nonfinite(row_of(w->v, t), job->a->dv, job->a->v_type))
            return true;
    }
    return false;
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

/* ---- logits: block */

/* Tokens of K that are asked for ahead of being widened, where nothing came before. */
#define BLOCK_AHEAD 32

/* Most tokens of a step: as many as have their sums in registers at a time. */
#define STEP_MAX 16

/* What is done between the multiplications of a step. */
struct meanwhile {
    bool next;               /* there is another step, with */
    const void *k[STEP_MAX]; /* these rows, behind the last token of the chunk the last one again, */
    float *out;              /* to be widened to here */
    struct rows v, k_ahead;  /* asked for; NULL: not */
};

static void next_step(struct meanwhile *m, const struct walk *w, uint32_t t, uint32_t n)
{
    m->next = t < w->n_tokens;
    for (uint32_t i = 0; m->next && i < n; i++)
        m->k[i] = row_of(w->k, t + i < w->n_tokens ? t + i : w->n_tokens - 1);
}

/* One group of elements of row t. */
INLINE void widen(const struct meanwhile *m, uint32_t t, uint32_t group, const uint32_t n_tokens,
                  const enum mz_attn_type type)
{
    float *out = m->out + (group * n_tokens + t) * GROUP;

#pragma GCC unroll 16
    for (uint32_t i = 0; i < GROUP; i += VF_LANES)
        vf_store(out + i, elements(m->k[t], group * GROUP + i, type));
}

/* The elements behind the last whole group, and zeros. */
static void widen_rest(const struct mz_attn_job *job, const struct meanwhile *m, uint32_t n_tokens)
{
    uint32_t whole = job->a->dk / GROUP * GROUP;
    float *out = m->out + whole * n_tokens;

    if (!m->next || whole == job->a->dk)
        return;
    memset(out, 0, sizeof(float) * n_tokens * GROUP);
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t d = whole; d < job->a->dk; d++)
            out[t * GROUP + d - whole] = mz_attn_element(m->k[t], d, job->a->k_type);
}

/*
 * Lines of memory that later work needs are asked for one by one while something else is multiplied: V of a
 * chunk during its logits, K of the next chunk during its values. In bursts they would be more than a core
 * keeps under way, and be dropped (8 rows, 8k tokens, one thread of a Zen 4: 7.2 ms in bursts, 6.3 ms
 * spread).
 *
 * Work on element d of the one row goes with byte 2 * d of the other: half of the tokens ask for a line when
 * its first half is due, the others when its second is.
 */
INLINE void ask(const char *line, uint64_t bytes, uint32_t t, uint32_t half)
{
    if (line && (t ^ half) % 2 == 0)
        __builtin_prefetch(line + t * bytes, 0, 2);
}

/* Adds one element of n_tokens tokens. */
INLINE void qk_add(const float *q, const float *k, vf sum[STEP_MAX][VF_QK_VECTORS], const uint32_t n_tokens,
                   const uint32_t n_vectors)
{
    vf column[VF_QK_VECTORS];

#pragma GCC unroll 16
    for (uint32_t i = 0; i < n_vectors; i++)
        column[i] = vf_load(q + i * VF_LANES);
#pragma GCC unroll 16
    for (uint32_t t = 0; t < n_tokens; t++) {
        vf element = vf_set(k[t * GROUP]);

#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            sum[t][i] = vf_fma(element, column[i], sum[t][i]);
    }
}

/* Lines of 32 bytes in a row. */
INLINE uint32_t row_halves(uint32_t n, enum mz_attn_type type)
{
    return (mz_attn_row_size(n, type) + 31) / 32;
}

/* Logits of n_tokens tokens for n_vectors vectors of rows: n_tokens * n_vectors sums in registers. */
INLINE void qk_step(const struct mz_attn_job *job, const float *k, float *logits, const struct meanwhile *m,
                    const uint32_t n_tokens, const uint32_t n_vectors, const enum mz_attn_type type)
{
    const uint32_t rows = n_vectors * VF_LANES, pace = GROUP / n_tokens;
    const struct mz_attn *a = job->a;
    uint32_t v_halves = row_halves(a->dv, a->v_type), k_halves = row_halves(a->dk, type);
    const float *q = job->q;
    vf sum[STEP_MAX][VF_QK_VECTORS];

#pragma GCC unroll 16
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            sum[t][i] = vf_set(0.0f);
    for (uint32_t g = 0; g < job->plan->dk_pad / GROUP; g++, k += n_tokens * GROUP) {
        const char *v_line = g < v_halves ? m->v.at + g / 2 * 64 : NULL;
        const char *k_line = g < k_halves && m->k_ahead.at ? m->k_ahead.at + g / 2 * 64 : NULL;
        bool widens = m->next && g < a->dk / GROUP;

        for (uint32_t t = 0; t < n_tokens; t++) {
            if (widens)
                widen(m, t, g, n_tokens, type);
            ask(v_line, m->v.bytes, t, g);
            ask(k_line, m->k_ahead.bytes, t, g);
#pragma GCC unroll 16
            for (uint32_t d = t * pace; d < (t + 1) * pace; d++, q += rows)
                qk_add(q, k + d, sum, n_tokens, n_vectors);
        }
    }
#pragma GCC unroll 16
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            vf_store(logits + t * rows + i * VF_LANES, sum[t][i]);
}

INLINE void qk_chunk(struct mz_attn_job *job, const struct walk *w, const uint32_t n_vectors,
                     const enum mz_attn_type type)
{
    const uint32_t n = VF_QK_TOKENS(n_vectors);
    float *k = job->k, *spare = k + n * job->plan->dk_pad;
    struct meanwhile m = {.out = k, .v.bytes = w->v.bytes, .k_ahead.bytes = w->k.bytes};

    next_step(&m, w, walk_to(w, 0), n);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t g = 0; g < job->a->dk / GROUP; g++)
            widen(&m, t, g, n, type);
    widen_rest(job, &m, n);
    for (uint32_t t = walk_to(w, 0), after; t < w->n_tokens; t = after) {
        after = walk_to(w, t + n);
        next_step(&m, w, after, n);
        m.out = spare;
        m.v.at = row_of(w->v, t);
        m.k_ahead.at = w->cold ? row_of(w->k, t + BLOCK_AHEAD) : NULL;
        widen_rest(job, &m, n);
        qk_step(job, k, job->logits + (size_t)t * n_vectors * VF_LANES, &m, n, n_vectors, type);
        spare = k;
        k = m.out;
    }
}

INLINE void qk_vectors(struct mz_attn_job *job, const struct walk *w, const enum mz_attn_type type)
{
    switch (job->plan->block_rows / VF_LANES) {
    case 1:
        qk_chunk(job, w, 1, type);
        break;
    case 2:
        qk_chunk(job, w, 2, type);
        break;
#if VF_QK_VECTORS >= 4
    case 4:
        qk_chunk(job, w, 4, type);
        break;
#endif
#if VF_QK_VECTORS >= 8
    case 8:
        qk_chunk(job, w, 8, type);
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

/* Soft-cap and mask of a tile; returns the largest logit per lane. */
INLINE vf block_finish(const struct mz_attn_job *job, float *x, const float *bias, uint32_t n_tokens,
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

/* The same for all tiles and lanes; largest[row]. */
static void block_largest(struct mz_attn_job *job, const struct walk *w, float *largest)
{
    uint32_t rows = job->plan->block_rows;

    for (uint32_t r = 0; r < rows; r++)
        largest[r] = -INFINITY;
    for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t + TILE)) {
        bool masked = w->tiles[t / TILE] == MZ_ATTN_MASK_SOME;
        uint32_t n = tile_end(w, t) - t;

        if (masked)
            bias_block(job, w->chunk * MZ_ATTN_CHUNK + t, n);
        for (uint32_t r = 0; r < rows; r += VF_LANES)
            vf_store(largest + r,
                     vf_max(vf_load(largest + r),
                            block_finish(job, job->logits + (size_t)t * rows + r, job->bias + r, n, masked)));
    }
}

/* Logits become weights; the slot's maximum and sum are brought up to date. alpha: what acc has to be
 * multiplied by. */
static void block_softmax(struct mz_attn_job *job, const struct walk *w, float *alpha)
{
    uint32_t rows = job->plan->block_rows;
    float largest[MZ_ATTN_BLOCK_MAX];

    block_largest(job, w, largest);
    for (uint32_t r = 0; r < rows; r += VF_LANES) {
        vf m_old = vf_load(job->m + r), m = vf_max(m_old, vf_load(largest + r)), shift = safe_max(m);
        vf factor = exp_of_negative(vf_sub(m_old, shift)), sum = vf_mul(vf_load(job->s + r), factor);

        for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t)) {
            for (uint32_t end = tile_end(w, t); t < end; t++) {
                float *x = job->logits + (size_t)t * rows + r;
                vf weight = exp_of_negative(vf_sub(vf_load(x), shift));

                vf_store(x, weight);
                sum = vf_add(sum, weight);
            }
        }
        vf_store(job->m + r, m);
        vf_store(job->s + r, sum);
        vf_store(alpha + r, factor);
    }
}

/* ---- logits: few */

/* Tokens of K and V that are asked for ahead of their use. */
#define FEW_AHEAD 32

/* Logits of VF_SUMS / rows tokens for `rows` query rows. Behind the last token the last one is taken again.
 */
INLINE void dot_step(const float *q, struct rows k, uint32_t dk, uint32_t dk_pad, uint32_t n_tokens,
                     float *logits, const uint32_t rows, const enum mz_attn_type type)
{
    const uint32_t tokens = VF_SUMS / rows;
    const void *row[VF_SUMS];
    vf sum[VF_SUMS];
    float sums[VF_SUMS];

#pragma GCC unroll 16
    for (uint32_t t = 0; t < tokens; t++) {
        row[t] = row_of(k, t < n_tokens ? t : n_tokens - 1);
        row_prefetch((const char *)row[t] + k.bytes * FEW_AHEAD, mz_attn_row_size(dk, type));
    }
#pragma GCC unroll 16
    for (uint32_t i = 0; i < VF_SUMS; i++)
        sum[i] = vf_set(0.0f);
    for (uint32_t d = 0; d < dk; d += VF_LANES) {
        vf column[VF_SUMS];

#pragma GCC unroll 16
        for (uint32_t r = 0; r < rows; r++)
            column[r] = vf_load(q + r * dk_pad + d);
#pragma GCC unroll 16
        for (uint32_t t = 0; t < tokens; t++) {
            vf x = elements(row[t], d, type);

#pragma GCC unroll 16
            for (uint32_t r = 0; r < rows; r++)
                sum[r * tokens + t] = vf_fma(x, column[r], sum[r * tokens + t]);
        }
    }
    vf_sums(sum, sums);
#pragma GCC unroll 16
    for (uint32_t r = 0; r < rows; r++)
        memcpy(logits + r * MZ_ATTN_CHUNK, sums + r * tokens, tokens * sizeof(float));
}

INLINE void dot_chunk(struct mz_attn_job *job, const struct walk *w, uint32_t row, const uint32_t rows,
                      const enum mz_attn_type type)
{
    const struct mz_attn *a = job->a;
    const float *q = job->q + (size_t)row * job->plan->dk_pad;
    float *logits = job->logits + (size_t)row * MZ_ATTN_CHUNK;

    for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t + VF_SUMS / rows))
        dot_step(q, (struct rows){row_of(w->k, t), w->k.bytes}, a->dk, job->plan->dk_pad, w->n_tokens - t,
                 logits + t, rows, type);
}

INLINE void dot_rows(struct mz_attn_job *job, const struct walk *w, const enum mz_attn_type type)
{
    uint32_t rows = job->plan->block_rows;

    if (rows == 1)
        dot_chunk(job, w, 0, 1, type);
    else if (rows == 2)
        dot_chunk(job, w, 0, 2, type);
    else
        for (uint32_t r = 0; r < rows; r += 4)
            dot_chunk(job, w, r, 4, type);
}

/* Soft-cap and mask of one row of a tile; -infinity behind the last token. */
static void few_finish(const struct mz_attn_job *job, const struct walk *w, uint32_t row, uint32_t t0)
{
    float cap = job->a->logit_softcap, *x = job->logits + (size_t)row * MZ_ATTN_CHUNK + t0;
    bool masked = w->tiles[t0 / TILE] == MZ_ATTN_MASK_SOME && row < job->n_rows;
    uint32_t n = tile_end(w, t0) - t0;
    float bias[TILE];

    if (masked)
        bias_row(job->mask[row] + (size_t)w->chunk * MZ_ATTN_CHUNK + t0, job->slope[row], n, bias);
    for (uint32_t t = 0; t < TILE && cap != 0.0f; t += VF_LANES)
        vf_store(x + t, vf_mul(tanh_of(vf_load(x + t)), vf_set(cap)));
    for (uint32_t t = 0; t < TILE && masked; t += VF_LANES)
        vf_store(x + t, add_bias(vf_load(x + t), vf_load(bias + t)));
    for (uint32_t t = n; t < TILE; t++)
        x[t] = -INFINITY;
}

/* As block_softmax, for one row. */
static float few_softmax(struct mz_attn_job *job, const struct walk *w, uint32_t row)
{
    float *x = job->logits + (size_t)row * MZ_ATTN_CHUNK;
    vf largest = vf_set(-INFINITY), sum = vf_set(0.0f), shift;
    float m, factor[VF_LANES];

    for (uint32_t t0 = walk_to(w, 0); t0 < w->n_tokens; t0 = walk_to(w, t0 + TILE)) {
        few_finish(job, w, row, t0);
        for (uint32_t t = t0; t < t0 + TILE; t += VF_LANES)
            largest = vf_max(largest, vf_load(x + t));
    }
    m = vf_largest(largest);
    m = job->m[row] > m ? job->m[row] : m;
    shift = safe_max(vf_set(m));
    for (uint32_t t0 = walk_to(w, 0); t0 < w->n_tokens; t0 = walk_to(w, t0 + TILE)) {
        for (uint32_t t = t0; t < t0 + TILE; t += VF_LANES) {
            vf weight = exp_of_negative(vf_sub(vf_load(x + t), shift));

            vf_store(x + t, weight);
            sum = vf_add(sum, weight);
        }
    }
    vf_store(factor, exp_of_negative(vf_sub(vf_set(job->m[row]), shift)));
    job->m[row] = m;
    job->s[row] = job->s[row] * factor[0] + vf_sum(sum);
    return factor[0];
}

/* ---- values */

/* Where the weight of a row and a token lies, counted from job->logits. */
struct weights {
    size_t token_step, row_step;
};

INLINE struct weights weights_of(const struct mz_attn_job *job, const bool few)
{
    return few ? (struct weights){1, MZ_ATTN_CHUNK} : (struct weights){job->plan->block_rows, 1};
}

/* acc = acc * alpha + weights * V for `rows` rows and n_vectors vectors from element d on. */
INLINE void pv_step(const struct mz_attn_job *job, const struct walk *w, uint32_t row, uint32_t d,
                    const float *alpha, const bool few, const uint32_t rows, const uint32_t n_vectors,
                    const enum mz_attn_type type)
{
    const struct weights at = weights_of(job, few);
    const float *weights = job->logits + (size_t)row * at.row_step;
    size_t dv_pad = job->plan->dv_pad;
    uint32_t v_bytes = few && d == 0 ? mz_attn_row_size(job->a->dv, type) : 0;
    const char *line = !few && row == 0 && d % 16 == 0 && w->next_k.at ? w->next_k.at + d / 32 * 64 : NULL;
    float *acc = job->acc + (size_t)row * dv_pad + d;
    vf sum[VF_SUMS][8];

#pragma GCC unroll 16
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            sum[r][i] = vf_mul(vf_load(acc + r * dv_pad + i * VF_LANES), vf_set(alpha[row + r]));
    for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t)) {
        for (uint32_t end = tile_end(w, t); t < end; t++) {
            const float *weight = weights + (size_t)t * at.token_step;
            const void *v = row_of(w->v, t);

            row_prefetch((const char *)v + w->v.bytes * FEW_AHEAD, v_bytes);
            ask(line, w->next_k.bytes, t, d / 16);
#pragma GCC unroll 16
            for (uint32_t i = 0; i < n_vectors; i++) {
                vf x = elements(v, d + i * VF_LANES, type);

#pragma GCC unroll 16
                for (uint32_t r = 0; r < rows; r++)
                    sum[r][i] = vf_fma(x, vf_set(weight[(size_t)r * at.row_step]), sum[r][i]);
            }
        }
    }
#pragma GCC unroll 16
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            vf_store(acc + r * dv_pad + i * VF_LANES, sum[r][i]);
}

/* The elements behind the last whole vector. */
static void pv_rest(struct mz_attn_job *job, const struct walk *w, const float *alpha, bool few)
{
    const struct weights at = weights_of(job, few);

    for (uint32_t r = 0; r < job->n_rows; r++) {
        for (uint32_t d = job->a->dv / VF_LANES * VF_LANES; d < job->a->dv; d++) {
            float sum = job->acc[(size_t)r * job->plan->dv_pad + d] * alpha[r];

            for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t + 1))
                sum += job->logits[t * at.token_step + r * at.row_step] *
                       mz_attn_element(row_of(w->v, t), d, job->a->v_type);
            job->acc[(size_t)r * job->plan->dv_pad + d] = sum;
        }
    }
}

INLINE void pv_rows(const struct mz_attn_job *job, const struct walk *w, uint32_t row, const float *alpha,
                    const bool few, const uint32_t rows, const enum mz_attn_type type)
{
    const uint32_t most = VF_SUMS / rows < 8 ? VF_SUMS / rows : 8;
    uint32_t dv = job->a->dv, d = 0;

    for (; d + most * VF_LANES <= dv; d += most * VF_LANES)
        pv_step(job, w, row, d, alpha, few, rows, most, type);
    if (most > 4 && d + 4 * VF_LANES <= dv) {
        pv_step(job, w, row, d, alpha, few, rows, 4, type);
        d += 4 * VF_LANES;
    }
    for (; most > 1 && d + VF_LANES <= dv; d += VF_LANES)
        pv_step(job, w, row, d, alpha, few, rows, 1, type);
}

/* So many rows are taken at a time when n are left: a power of two. One or two rows of padding, which a block
 * has, are cheaper than another pass over V. */
INLINE uint32_t pv_take(uint32_t n)
{
    uint32_t take = 1;

    while (take < n && take < VF_PV_ROWS)
        take *= 2;
    return take > n + 2 ? take / 2 : take;
}

INLINE void pv(const struct mz_attn_job *job, const struct walk *w, const float *alpha, const bool few,
               const enum mz_attn_type type)
{
    for (uint32_t r = 0, take; r < job->n_rows; r += take) {
        take = pv_take(job->n_rows - r);
        switch (take) {
#if VF_PV_ROWS >= 16
        case 16:
            pv_rows(job, w, r, alpha, few, 16, type);
            break;
#endif
#if VF_PV_ROWS >= 8
        case 8:
            pv_rows(job, w, r, alpha, few, 8, type);
            break;
#endif
        case 4:
            pv_rows(job, w, r, alpha, few, 4, type);
            break;
        case 2:
            pv_rows(job, w, r, alpha, few, 2, type);
            break;
        default:
            pv_rows(job, w, r, alpha, few, 1, type);
            break;
        }
    }
}

/* Weights of exactly 0 leave V out, so that a NaN in a masked V row stays there. Slow; for chunks with such
 * rows. */
static void pv_carefully(struct mz_attn_job *job, const struct walk *w, const float *alpha)
{
    const struct weights at = weights_of(job, job->plan->few);

    for (uint32_t r = 0; r < job->n_rows; r++) {
        float *acc = job->acc + (size_t)r * job->plan->dv_pad;

        for (uint32_t d = 0; d < job->a->dv; d++)
            acc[d] *= alpha[r];
        for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t + 1)) {
            float weight = job->logits[t * at.token_step + r * at.row_step];

            for (uint32_t d = 0; d < job->a->dv && weight != 0.0f; d++)
                acc[d] += weight * mz_attn_element(row_of(w->v, t), d, job->a->v_type);
        }
    }
}

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
    for (uint32_t r = 0; job->plan->few && r < job->plan->block_rows; r++)
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
    .geometry = {.lanes = VF_LANES, .block_rows = VF_QK_VECTORS * VF_LANES, .few_rows = VF_FEW_MAX},
    .pack = pack,
    .chunk = run_chunk,
};
