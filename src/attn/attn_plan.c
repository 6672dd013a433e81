/* How an attention operation is cut into items: pure arithmetic on the shape. Owns nothing. */
#include "attn/attn_plan.h"

#include <stddef.h>

#include "attn/attn_kernel.h"
#include "attn/attn_workspace.h"

/* Partial results up to this size are written and read back inside the second-level caches of a few cores;
 * with more, long caches and many rows would move more bytes for them than for K and V. Fewer ranges also
 * means fewer items, but then there are enough blocks. */
#define PARTIAL_BYTES_MAX (4u << 20)

/* A few threads must find enough items to even out their loads: ranges are several chunks long, and KV heads
 * are walked together inside an item (rows of all heads of a token lie side by side, so memory is read in
 * order), only while that many items remain. */
#define ITEMS_WANTED 64

/* Longer ranges mean less to pack and to merge, but also a longer wait behind a chunk that is not there. */
#define RANGE_CHUNKS 4

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* The dot products along the head need whole vectors: sizes such as 72 under 16 lanes take the general way.
 */
static bool is_few(const struct mz_attn *a, const struct mz_attn_geometry *g, uint32_t group_rows)
{
    return group_rows <= g->few_rows[a->k_type] && a->dk % g->few_step == 0 && a->dv % g->few_step == 0;
}

static void cut_rows(const struct mz_attn *a, const struct mz_attn_geometry *g, struct mz_attn_plan *p)
{
    p->group = a->n_heads / a->n_kv_heads;
    p->group_rows = a->n_rows * p->group;
    p->few = is_few(a, g, p->group_rows);
    if (p->few) {
        p->block_rows = p->group_rows;
        while (p->block_rows & (p->block_rows - 1)) /* 1, 2, or fours: what the kernel takes at a time */
            p->block_rows++;
    } else {
        p->block_rows = g->lanes;
        while (p->block_rows < p->group_rows && p->block_rows < g->block_rows) /* a power of two of vectors */
            p->block_rows *= 2;
    }
    p->n_blocks = p->group_rows ? (p->group_rows + p->block_rows - 1) / p->block_rows : 0;
    p->dk_pad = (uint32_t)round_up(a->dk, MZ_ATTN_PAD);
    p->dv_pad = (uint32_t)round_up(a->dv, MZ_ATTN_PAD);
    p->slot_floats = round_up((uint64_t)p->block_rows * (2 + p->dv_pad), MZ_ATTN_PAD);
}

static void cut_tokens(const struct mz_attn *a, struct mz_attn_plan *p)
{
    uint64_t per_range = (uint64_t)p->n_blocks * a->n_kv_heads * a->n_seq;
    uint64_t range_bytes = sizeof(float) * p->slot_floats * per_range;

    p->n_chunks = (uint32_t)(((uint64_t)a->n_kv + MZ_ATTN_CHUNK - 1) / MZ_ATTN_CHUNK);
    p->range_chunks = 1;
    while (p->range_chunks < RANGE_CHUNKS && p->n_chunks / (2 * p->range_chunks) * per_range >= ITEMS_WANTED)
        p->range_chunks *= 2;
    while (p->range_chunks < p->n_chunks &&
           (p->n_chunks + p->range_chunks - 1) / p->range_chunks * range_bytes > PARTIAL_BYTES_MAX)
        p->range_chunks *= 2;
    p->n_ranges = (p->n_chunks + p->range_chunks - 1) / p->range_chunks;
}

static void cut_items(const struct mz_attn *a, struct mz_attn_plan *p)
{
    uint64_t per_head = (uint64_t)p->n_ranges * a->n_seq * p->n_blocks;

    p->item_heads = 1;
    if (p->few) {
        for (uint32_t heads = 2; heads <= a->n_kv_heads; heads++) {
            if (a->n_kv_heads % heads == 0 && per_head * (a->n_kv_heads / heads) >= ITEMS_WANTED)
                p->item_heads = heads;
        }
    }
    p->n_head_sets = a->n_kv_heads / p->item_heads;
    p->n_items = per_head * p->n_head_sets;
}

static uint64_t scratch_floats(const struct mz_attn *a, const struct mz_attn_plan *p)
{
    uint64_t tile = MZ_ATTN_TILE, rows = p->block_rows;

    if (p->few)
        return rows * (round_up(a->dk, MZ_ATTN_PAD) + MZ_ATTN_CHUNK + MZ_ATTN_CHUNK / 2);
    return rows * (round_up(a->dk, MZ_ATTN_PAD) + MZ_ATTN_CHUNK + tile) + tile * p->dk_pad;
}

void mz_attn_plan_make(const struct mz_attn *a, struct mz_attn_plan *plan)
{
    const struct mz_attn_geometry *g = &mz_attn_kernel_get(a->isa)->geometry;
    struct mz_attn_plan p = {0};
    uint64_t n_slots;

    cut_rows(a, g, &p);
    cut_tokens(a, &p);
    cut_items(a, &p);
    n_slots = (uint64_t)p.n_ranges * a->n_seq * a->n_kv_heads * p.n_blocks;
    p.items_offset = round_up(sizeof(struct mz_attn_head), MZ_ATTN_ALIGN);
    p.slots_offset = p.items_offset + round_up(p.n_items * sizeof(struct mz_attn_item), MZ_ATTN_ALIGN);
    p.scratch_offset = p.slots_offset + round_up(n_slots * p.slot_floats * sizeof(float), MZ_ATTN_ALIGN);
    p.scratch_bytes = round_up(scratch_floats(a, &p) * sizeof(float), MZ_ATTN_ALIGN);
    *plan = p;
}
