/*
 * How one attention operation is cut, and how its workspace is laid out. Private to src/attn/.
 *
 * The query rows of a KV head's group, n_rows * group of them, are numbered token by token, then head by head
 * (row = token * group + head in group), and cut into blocks. The tokens are cut into ranges of whole chunks.
 * An item, the unit of work of the partial phase, is (range, sequence, set of KV heads, block); its result,
 * per KV head, is a slot: floats m[block_rows], s[block_rows], acc[block_rows][dv_pad], with m = the largest
 * logit, s = sum of exp(logit - m), acc = sum of exp(logit - m) * v.
 *
 * Everything is a pure function of isa and shape.
 */
#ifndef MZ_ATTN_PLAN_H
#define MZ_ATTN_PLAN_H

#include "attn/attn.h"

/* Tokens that are left out together when all are masked. */
#define MZ_ATTN_TILE 32

/* acc rows are padded to this many floats: the widest vector. */
#define MZ_ATTN_PAD 16

/* Rows and pads as one instruction set wants them. */
struct mz_attn_geometry {
    uint32_t lanes;      /* floats in a vector */
    uint32_t block_rows; /* most rows of a block, a multiple of lanes */
    /* By the type of K: up to so many rows of a group the other algorithm is faster, dot products along the
     * head, if dk and dv are multiples of few_step. */
    uint32_t few_rows[MZ_ATTN_TYPE_COUNT];
    uint32_t few_step;
};

struct mz_attn_plan {
    uint32_t group;      /* query heads per KV head */
    uint32_t group_rows; /* n_rows * group */
    bool few;            /* dot products along the head; else the lanes are rows */
    uint32_t block_rows; /* rows of a block, padding included */
    uint32_t n_blocks;
    uint32_t n_chunks;     /* per sequence */
    uint32_t range_chunks; /* chunks in a range; the last range may have fewer */
    uint32_t n_ranges;
    uint32_t item_heads; /* KV heads of an item, a divisor of n_kv_heads */
    uint32_t n_head_sets;
    uint64_t n_items;
    uint32_t dk_pad, dv_pad; /* floats per widened row */
    uint64_t slot_floats;

    uint64_t items_offset;   /* bytes in the workspace: struct mz_attn_item[n_items] */
    uint64_t slots_offset;   /* [n_ranges][n_seq][n_kv_heads][n_blocks] slots */
    uint64_t scratch_offset; /* [nth] scratch areas, each the same */
    uint64_t scratch_bytes;
};

/* `a` has passed the checks of mz_attn_check() on its shape. Never fails. */
void mz_attn_plan_make(const struct mz_attn *a, struct mz_attn_plan *plan);

/* Index of a slot in units of slot_floats. */
static inline uint64_t mz_attn_slot(const struct mz_attn *a, const struct mz_attn_plan *p, uint64_t range,
                                    uint64_t seq, uint64_t kv_head, uint64_t block)
{
    return ((range * a->n_seq + seq) * a->n_kv_heads + kv_head) * p->n_blocks + block;
}

#endif
