/* K and V as they lie in memory, and the mask of a tile. Included by attn_kernel.inc.h. */

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

/* Whether "few" multiplies elements of this type without widening them. */
INLINE bool by_halves(enum mz_attn_type type)
{
    return VF_HALVES && type == MZ_ATTN_F16;
}

/* Rows of the other heads lie between two rows of this one: the hardware's prefetcher sees strides that often
 * cross a page and stops there. Into the second-level cache: in the first, rows that are a power of two apart
 * push out each other (1 row, 8k tokens, one thread of a Zen 4: 3.5 ms that way, 2.3 ms this way). */
INLINE void row_prefetch(const void *row, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)row + i, 0, 2);
}

/*
 * Lines of memory that later work needs are asked for one by one while something else is multiplied: V of a
 * chunk during its logits, K of the next chunk during its values. In bursts they would be more than a core
 * keeps under way, and be dropped (8 rows, 8k tokens, one thread of a Zen 4: 7.2 ms in bursts, 6.3 ms
 * spread). Row after row, and the lines of a row in the order in which they lie, so that the prefetcher of
 * the second-level cache runs ahead of it: a request then keeps its place in the first level for a shorter
 * time (the same, one thread of a Sapphire Rapids, huge pages: 7.9 ms with the first lines of all rows
 * first, 6.5 ms so).
 */
struct lines {
    const char *row;
    uint64_t bytes;           /* from one row to the next */
    uint32_t row_bytes, from; /* within a row */
    uint32_t left;
};

/* Of n_rows rows of n elements each; none when there are no rows. */
INLINE struct lines lines_of(const char *row, uint64_t bytes, uint32_t n_rows, uint32_t n,
                             enum mz_attn_type type)
{
    uint32_t row_bytes = mz_attn_row_size(n, type);

    return (struct lines){row, bytes, row_bytes, 0, row ? n_rows * ((row_bytes + 63) / 64) : 0};
}

INLINE void ask(struct lines *lines)
{
    if (lines->left == 0)
        return;
    __builtin_prefetch(lines->row + lines->from, 0, 2);
    lines->left--;
    lines->from += 64;
    if (lines->from >= lines->row_bytes) {
        lines->from = 0;
        lines->row += lines->bytes;
    }
}

/* Elements of fp16 in a line: work on so many of one row goes with a line of the other. */
#define LINE 32

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
