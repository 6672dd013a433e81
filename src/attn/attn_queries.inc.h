/* Queries as the logits want them. Included by attn_kernel.inc.h. */

static const float *query_row(const struct mz_attn_job *job, uint32_t i)
{
    const struct mz_attn *a = job->a;
    uint32_t row = job->row0 + i, group = job->plan->group;

    return (const float *)((const char *)a->q + row / group * a->q_row_bytes + job->seq * a->q_seq_bytes +
                           (job->kv_head * group + row % group) * a->q_head_bytes);
}

/* With a soft-cap, logits are the argument of tanh first. */
static float query_scale(const struct mz_attn *a)
{
    return a->logit_softcap != 0.0f ? a->scale / a->logit_softcap : a->scale;
}

/* Rounds a query to fp16. A power of two goes out of it before, so that its largest element is 2^14 to 2^15:
 * nothing overflows, and no more is lost than the last bits. Returns that power, 0 for NaN and infinities. */
static int halve_row(const float *src, uint32_t n, uint16_t *out)
{
    float largest = 0.0f;
    int exponent;

    for (uint32_t d = 0; d < n; d++)
        largest = fmaxf(largest, fabsf(src[d]));
    (void)frexpf(largest, &exponent);
    exponent = !isfinite(largest) ? 0 : exponent < -100 ? -115 : exponent - 15;
    for (uint32_t d = 0; d < n; d += VF_LANES)
        vf_store_half(out + d, vf_mul(vf_load(src + d), vf_set(ldexpf(1.0f, -exponent))));
    return exponent;
}

/* As pack(). The scale comes after the sum, in fp32: so the only rounding of a query is that of ggml-cpu. */
static void pack_halves(struct mz_attn_job *job)
{
    const struct mz_attn *a = job->a;
    uint32_t dk_pad = job->plan->dk_pad;

    memset(job->q_halves, 0, (size_t)dk_pad * job->plan->block_rows * sizeof(uint16_t));
    for (uint32_t i = 0; i < job->n_rows; i++)
        job->q_factor[i] =
            ldexpf(query_scale(a), halve_row(query_row(job, i), a->dk, job->q_halves + (size_t)i * dk_pad));
    for (uint32_t i = job->n_rows; i < job->plan->block_rows; i++)
        job->q_factor[i] = 0.0f;
}

/* Scale goes into the queries. */
static void pack(struct mz_attn_job *job)
{
    const struct mz_attn *a = job->a;
    const struct mz_attn_plan *p = job->plan;
    float scale = query_scale(a);
    size_t row_step = p->few ? p->dk_pad : 1, step = p->few ? 1 : p->block_rows;

    if (p->few && by_halves(a->k_type)) {
        pack_halves(job);
        return;
    }
    memset(job->q, 0, (size_t)p->dk_pad * p->block_rows * sizeof(float));
    for (uint32_t i = 0; i < job->n_rows; i++) {
        const float *src = query_row(job, i);

        for (uint32_t d = 0; d < a->dk; d++)
            job->q[i * row_step + d * step] = src[d] * scale;
    }
}
