/* Adds V, weighted, to the accumulators. Included by attn_kernel.inc.h. */

/* Where the weight of a row and a token lies, counted from job->logits. */
struct weights {
    size_t token_step, row_step;
};

INLINE struct weights weights_of(const struct mz_attn_job *job, const bool few)
{
    return few ? (struct weights){1, MZ_ATTN_CHUNK} : (struct weights){job->plan->block_rows, 1};
}

/* What stands for V behind the last token, where weights are 0. */
static const uint16_t no_values[MZ_ATTN_HEAD_MAX];

/* sum += weights * V for the 2 * VF_LANES tokens from t on; all of them are there if `whole`. */
INLINE void add_tokens(const struct mz_attn_job *job, const struct walk *w, uint32_t row, uint32_t t,
                       uint32_t d, vf sum[VF_SUMS][8], const uint32_t rows, const uint32_t n_vectors,
                       const bool whole)
{
    vf weights[VF_PV_ROWS];

    for (uint32_t i = 0; d == 0 && whole && i < 2 * VF_LANES; i++)
        row_prefetch((const char *)row_of(w->v, t + FEW_AHEAD + i),
                     mz_attn_row_size(job->a->dv, MZ_ATTN_F16));
#pragma GCC unroll 16
    for (uint32_t r = 0; r < rows; r++)
        weights[r] = vf_halves(job->weights + (size_t)(row + r) * MZ_ATTN_CHUNK + t);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 2 * VF_LANES; i++) {
        const uint16_t *v = whole || t + i < w->n_tokens ? row_of(w->v, t + i) : no_values;

#pragma GCC unroll 16
        for (uint32_t j = 0; j < n_vectors; j += 2) {
            vf x = vf_halves(v + d + j * VF_LANES);

#pragma GCC unroll 16
            for (uint32_t r = 0; r < rows; r++) {
                sum[r][j] = vf_halves_low(x, weights[r], i, sum[r][j]);
                sum[r][j + 1] = vf_halves_high(x, weights[r], i, sum[r][j + 1]);
            }
        }
    }
}

/* sum += weights * V, from element d on, of fp16 that is not widened. */
INLINE void add_halves(const struct mz_attn_job *job, const struct walk *w, uint32_t row, uint32_t d,
                       vf sum[VF_SUMS][8], const uint32_t rows, const uint32_t n_vectors)
{
    for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t + 2 * VF_LANES)) {
        if (t + 2 * VF_LANES <= w->n_tokens)
            add_tokens(job, w, row, t, d, sum, rows, n_vectors, true);
        else
            add_tokens(job, w, row, t, d, sum, rows, n_vectors, false);
    }
}

/* The same, token by token, of anything. */
INLINE void add_floats(const struct mz_attn_job *job, const struct walk *w, uint32_t row, uint32_t d,
                       vf sum[VF_SUMS][8], const bool few, const uint32_t rows, const uint32_t n_vectors,
                       const enum mz_attn_type type)
{
    const struct weights at = weights_of(job, few);
    const float *weights = job->logits + (size_t)row * at.row_step;
    uint32_t v_bytes = few && d == 0 ? mz_attn_row_size(job->a->dv, type) : 0;
    const uint32_t n = n_vectors * VF_LANES; /* elements; the rows of K that go with them: */
    uint32_t dv = job->a->dv, k0 = MZ_ATTN_CHUNK * d / dv, k1 = MZ_ATTN_CHUNK * (d + n) / dv;
    bool asks = !few && row == 0 && w->next_k.at;
    struct lines k = lines_of(asks ? w->next_k.at + k0 * w->next_k.bytes : NULL, w->next_k.bytes, k1 - k0,
                              job->a->dk, job->a->k_type);

    for (uint32_t t = walk_to(w, 0); t < w->n_tokens; t = walk_to(w, t)) {
        for (uint32_t end = tile_end(w, t); t < end; t++) {
            const float *weight = weights + (size_t)t * at.token_step;
            const void *v = row_of(w->v, t);

            row_prefetch((const char *)v + w->v.bytes * FEW_AHEAD, v_bytes);
#pragma GCC unroll 16
            for (uint32_t i = 0; i < (n + LINE - 1) / LINE; i++)
                if (n >= LINE || t % (LINE / n) == 0)
                    ask(&k);
#pragma GCC unroll 16
            for (uint32_t i = 0; i < n_vectors; i++) {
                vf x = elements(v, d + i * VF_LANES, type);

#pragma GCC unroll 16
                for (uint32_t r = 0; r < rows; r++)
                    sum[r][i] = vf_fma(x, vf_set(weight[(size_t)r * at.row_step]), sum[r][i]);
            }
        }
    }
}

/* acc = acc * alpha + weights * V for `rows` rows and n_vectors vectors from element d on. */
INLINE void pv_step(const struct mz_attn_job *job, const struct walk *w, uint32_t row, uint32_t d,
                    const float *alpha, const bool few, const uint32_t rows, const uint32_t n_vectors,
                    const enum mz_attn_type type)
{
    size_t dv_pad = job->plan->dv_pad;
    float *acc = job->acc + (size_t)row * dv_pad + d;
    vf sum[VF_SUMS][8];

#pragma GCC unroll 16
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            sum[r][i] = vf_mul(vf_load(acc + r * dv_pad + i * VF_LANES), vf_set(alpha[row + r]));
    if (few && by_halves(type))
        add_halves(job, w, row, d, sum, rows, n_vectors);
    else
        add_floats(job, w, row, d, sum, few, rows, n_vectors, type);
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
    const uint32_t most = VF_SUMS / rows < 8 ? VF_SUMS / rows : 8, least = few && by_halves(type) ? 2 : 1;
    uint32_t dv = job->a->dv, d = 0;

    for (; d + most * VF_LANES <= dv; d += most * VF_LANES)
        pv_step(job, w, row, d, alpha, few, rows, most, type);
    if (most > 4 && d + 4 * VF_LANES <= dv) {
        pv_step(job, w, row, d, alpha, few, rows, 4, type);
        d += 4 * VF_LANES;
    }
    for (; most > least && d + least * VF_LANES <= dv; d += least * VF_LANES)
        pv_step(job, w, row, d, alpha, few, rows, least, type);
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
