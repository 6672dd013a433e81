/* Logits and softmax of "block": the lanes are query rows. Included by attn_kernel.inc.h (says how). */

/* K rows are widened as [dk_pad / GROUP][tokens][GROUP], so that the distance between tokens is a constant.
 */
#define GROUP MZ_ATTN_PAD

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

/* Logits of n_tokens tokens for n_vectors vectors of rows: n_tokens * n_vectors sums in registers. */
INLINE void qk_step(const struct mz_attn_job *job, const float *k, float *logits, const struct meanwhile *m,
                    const uint32_t n_tokens, const uint32_t n_vectors, const enum mz_attn_type type)
{
    const uint32_t rows = n_vectors * VF_LANES, pace = GROUP / n_tokens;
    const struct mz_attn *a = job->a;
    struct lines v = lines_of(m->v.at, m->v.bytes, n_tokens, a->dv, a->v_type);
    struct lines k_ahead = lines_of(m->k_ahead.at, m->k_ahead.bytes, n_tokens, a->dk, type);
    const float *q = job->q;
    vf sum[STEP_MAX][VF_QK_VECTORS];

#pragma GCC unroll 16
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_vectors; i++)
            sum[t][i] = vf_set(0.0f);
    for (uint32_t g = 0; g < job->plan->dk_pad / GROUP; g++, k += n_tokens * GROUP) {
        bool widens = m->next && g < a->dk / GROUP;

        for (uint32_t t = 0; t < n_tokens; t++) {
            if (widens)
                widen(m, t, g, n_tokens, type);
            if (t % (LINE / GROUP) == 0) {
                ask(&v);
                ask(&k_ahead);
            }
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
