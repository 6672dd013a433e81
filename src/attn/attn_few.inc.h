/* Logits and softmax of "few": the lanes run along the head. Included by attn_kernel.inc.h (says how). */

/* Tokens of K and V that are asked for ahead of their use. */
#define FEW_AHEAD 32

/* ---- dot products of K and queries, in parts of dot_part(type) elements */

INLINE uint32_t dot_part(const enum mz_attn_type type)
{
    return by_halves(type) ? 2 * VF_LANES : VF_LANES;
}

/* Packed queries. */
INLINE struct rows query_rows(const struct mz_attn_job *job, uint32_t row, const enum mz_attn_type type)
{
    size_t at = (size_t)row * job->plan->dk_pad;

    if (by_halves(type))
        return (struct rows){(const char *)(job->q_halves + at), job->plan->dk_pad * sizeof(*job->q_halves)};
    return (struct rows){(const char *)(job->q + at), job->plan->dk_pad * sizeof(*job->q)};
}

INLINE vf q_part(const void *q, uint32_t d, const enum mz_attn_type type)
{
    return by_halves(type) ? vf_halves((const uint16_t *)q + d) : vf_load((const float *)q + d);
}

INLINE vf k_part(const void *k, uint32_t d, const enum mz_attn_type type)
{
    return by_halves(type) ? vf_halves((const uint16_t *)k + d) : elements(k, d, type);
}

INLINE vf add_part(vf x, vf y, vf sum, const enum mz_attn_type type)
{
    return by_halves(type) ? vf_halves_dot(x, y, sum) : vf_fma(x, y, sum);
}

/* Logits of VF_SUMS / rows tokens for `rows` query rows. Behind the last token the last one is taken again.
 */
INLINE void dot_step(struct rows q, struct rows k, uint32_t dk, uint32_t n_tokens, float *logits,
                     const uint32_t rows, const enum mz_attn_type type)
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
    for (uint32_t d = 0; d < dk; d += dot_part(type)) {
        vf column[VF_SUMS];

#pragma GCC unroll 16
        for (uint32_t r = 0; r < rows; r++)
            column[r] = q_part(row_of(q, r), d, type);
#pragma GCC unroll 16
        for (uint32_t t = 0; t < tokens; t++) {
            vf x = k_part(row[t], d, type);

#pragma GCC unroll 16
            for (uint32_t r = 0; r < rows; r++)
                sum[r * tokens + t] = add_part(x, column[r], sum[r * tokens + t], type);
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
    struct rows q = query_rows(job, row, type);
    float *logits = job->logits + (size_t)row * MZ_ATTN_CHUNK;

    for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t + VF_SUMS / rows))
        dot_step(q, (struct rows){row_of(w->k, t), w->k.bytes}, job->a->dk, w->n_tokens - t, logits + t, rows,
                 type);
}

/* Rows that are computed: whole fours of a block of four or more. */
static uint32_t few_rows(const struct mz_attn_job *job)
{
    uint32_t fours = (job->n_rows + 3) / 4 * 4;

    return fours < job->plan->block_rows ? fours : job->plan->block_rows;
}

INLINE void dot_rows(struct mz_attn_job *job, const struct walk *w, const enum mz_attn_type type)
{
    uint32_t rows = few_rows(job);

    if (rows == 1)
        dot_chunk(job, w, 0, 1, type);
    else if (rows == 2)
        dot_chunk(job, w, 0, 2, type);
    else
        for (uint32_t r = 0; r < rows; r += 4)
            dot_chunk(job, w, r, 4, type);
}

/* Scale, soft-cap and mask of one row of a tile; -infinity behind the last token. */
static void few_finish(const struct mz_attn_job *job, const struct walk *w, uint32_t row, uint32_t t0)
{
    float cap = job->a->logit_softcap, *x = job->logits + (size_t)row * MZ_ATTN_CHUNK + t0;
    bool masked = w->tiles[t0 / TILE] == MZ_ATTN_MASK_SOME && row < job->n_rows;
    uint32_t n = tile_end(w, t0) - t0;
    float bias[TILE];

    for (uint32_t t = 0; t < TILE && by_halves(job->a->k_type); t += VF_LANES)
        vf_store(x + t, vf_mul(vf_load(x + t), vf_set(job->q_factor[row])));
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
            if (by_halves(job->a->v_type))
                vf_store_half(job->weights + (size_t)row * MZ_ATTN_CHUNK + t, weight);
            sum = vf_add(sum, weight);
        }
    }
    vf_store(factor, exp_of_negative(vf_sub(vf_set(job->m[row]), shift)));
    job->m[row] = m;
    job->s[row] = job->s[row] * factor[0] + vf_sum(sum);
    return factor[0];
}
