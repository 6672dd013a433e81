/*
 * Attention on the CPU over an array of pointers to chunks of the KV cache.
 *
 * It computes what ggml calls FLASH_ATTN_EXT for K and V of type fp16 or q8_0: for every query row and head
 *
 * - dst = sum over t of softmax_t(cap(scale * q.k_t) + slope * mask_t) * v_t
 * - cap(x) = c * tanh(x / c), or x when c is 0
 *
 * with an optional sink, a logit per head that takes part in the sum of the softmax and in nothing else
 * (semantics of ggml_compute_forward_flash_attn_ext, ggml/src/ggml-cpu/ops.cpp). K and V are read where they
 * lie, through one pointer per MZ_ATTN_CHUNK tokens, and the softmax is kept online across chunks in fp32;
 * this is the kernel of section 4.2 of the paper, for a CPU. All query rows of the heads that share one KV
 * head form one block, so that a K or V row is read and widened once for all of them.
 *
 * Two phases, with a barrier of the caller between them, each entered by the same `nth` threads:
 *
 * - mz_attn_partial computes, per range of tokens, the maximum, the sum and the accumulator of each row;
 * - mz_attn_merge joins the ranges in ascending order and writes dst.
 *
 * The ranges follow from the shape alone, and each is walked in ascending order by one thread at a time: no
 * bit of dst depends on the number of threads, on who computed what, or on which chunk was there first.
 *
 * Masked positions (mask -infinity) are never mixed in: K and V there may hold anything, NaN included. 32
 * tokens that are masked for all the rows of a block are not even read. A row that is masked everywhere gives
 * zeros, as in ggml. A NaN that is not masked shows in dst.
 *
 * Nothing here allocates, logs or makes a system call; only `ready` may block.
 */
#ifndef MZ_ATTN_H
#define MZ_ATTN_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens per K or V pointer. The chunk of the cache (256 tokens) or a divisor of it. */
#define MZ_ATTN_CHUNK 256

/* Largest head size: 576 is DeepSeek's MLA. */
#define MZ_ATTN_HEAD_MAX 1024

/* Instruction sets. The same shape gives other last bits under another one. */
enum mz_attn_isa {
    MZ_ATTN_ISA_BEST = 0, /* the best that this processor has: a constant for the process */
    MZ_ATTN_ISA_PLAIN,    /* portable C */
    MZ_ATTN_ISA_NEON,
    MZ_ATTN_ISA_NEON_FP16, /* NEON with FMLAL; a few rows over fp16 lose what ggml-cpu loses in a query too */
    MZ_ATTN_ISA_AVX2,      /* AVX2, FMA, F16C */
    MZ_ATTN_ISA_AVX512,    /* AVX-512 F, BW, DQ, VL */
    MZ_ATTN_ISA_COUNT
};

/* How K and V are stored. fp16 is 0, so that who knows nothing else need not name it. */
enum mz_attn_type {
    MZ_ATTN_F16 = 0,
    MZ_ATTN_Q8_0, /* ggml's: blocks of 32 values, an fp16 scale and 32 int8 */
    MZ_ATTN_TYPE_COUNT
};

/*
 * Asks for chunk `chunk` (K and V, all KV heads) of sequence `seq`. Called only when `ready` is set, before
 * the first byte of a chunk is read, by any of the computing threads and by several at once, also for the
 * same chunk; not called for a chunk that is masked for all the rows which would read it.
 *
 * - block == false: must not wait. 0: it is there; 1: not yet; negative errno: it will never be.
 * - block == true: waits until it is there. 0: it is there; anything else: it cannot be had, or the caller
 * gave up (-ECANCELED); 1 counts as -EIO. Called by a thread only when it found nothing else to do.
 *
 * What was ready stays ready until the partial phase has returned on all threads. The callee orders its
 * writes of the chunk before its answer (a lock or an acquire load does).
 */
typedef int (*mz_attn_ready)(void *user, uint32_t seq, uint32_t chunk, bool block);

/*
 * One attention operation. All of it belongs to the caller, is only read, and stays unchanged from the first
 * call of mz_attn_partial to the last return of mz_attn_merge. Strides are in bytes; elements of a row are
 * contiguous.
 */
struct mz_attn {
    enum mz_attn_isa isa; /* MZ_ATTN_ISA_BEST, or another one that mz_attn_isa_usable() accepts */

    /* Which use of the workspace this is: never 0, and other than at every earlier use of the same workspace.
     * A counter does. This is what makes a workspace usable again after an operation that failed or was never
     * merged. */
    uint32_t run;

    uint32_t n_rows;     /* query rows (tokens), 0 allowed */
    uint32_t n_heads;    /* query heads, a multiple of n_kv_heads */
    uint32_t n_kv_heads; /* heads of K and of V */
    uint32_t n_seq;      /* sequences (ne[3] of q) */
    uint32_t n_kv;       /* cached tokens that are looked at, 0 allowed */
    uint32_t dk;         /* elements of a q row and a K row, 1..MZ_ATTN_HEAD_MAX; of q8_0: whole blocks */
    uint32_t dv;         /* elements of a V row and a dst row, likewise */
    enum mz_attn_type k_type, v_type;

    const float *q; /* 4-byte aligned; [n_seq][n_heads][n_rows][dk] at these strides */
    uint64_t q_row_bytes;
    uint64_t q_head_bytes;
    uint64_t q_seq_bytes;

    /* [n_seq][ceil(n_kv / MZ_ATTN_CHUNK)] addresses of head 0 of the first token of each chunk, 2-byte
     * aligned. Only the tokens below n_kv are read. Sequences that share their cache repeat the pointers. */
    const void *const *k;
    const void *const *v;
    uint64_t k_row_bytes; /* from a token to the next, inside a chunk */
    uint64_t k_head_bytes;
    uint64_t v_row_bytes;
    uint64_t v_head_bytes;

    const uint16_t *mask; /* fp16, or NULL; row i, head h, sequence s at i, h % mask_heads, s % mask_seqs */
    uint64_t mask_row_bytes;
    uint64_t mask_head_bytes;
    uint64_t mask_seq_bytes;
    uint32_t mask_heads; /* at least 1 when there is a mask */
    uint32_t mask_seqs;

    const float *sinks;  /* [n_heads], or NULL */
    float scale;         /* of the logits */
    float max_bias;      /* ALiBi: above 0, the mask of head h is multiplied by ggml's slope of h */
    float logit_softcap; /* 0: none */

    float *dst; /* contiguous [n_seq][n_rows][n_heads][dv], ggml's layout */

    mz_attn_ready ready; /* NULL: everything is there */
    void *user;          /* for ready */
};

/* 0, or -EINVAL when a field contradicts the comments above, or -ENOTSUP when the processor lacks a->isa.
 * Pure. */
int mz_attn_check(const struct mz_attn *a);

/*
 * Bytes of workspace that `a` needs with at most `nth` threads (at least 1): a pure function of isa and
 * shape; neither pointers nor strides matter. At most 4 MiB of partial results, or those of a single range
 * when these are more (n_seq * n_heads * n_rows rows of dv + 2 floats, padded), plus 1 MiB a thread at most.
 * `a` must pass mz_attn_check().
 */
uint64_t mz_attn_workspace(const struct mz_attn *a, int nth);

/*
 * The two phases. `ws` is 64-byte aligned, mz_attn_workspace(a, nth) bytes, zeroed before its first use ever
 * and left alone by others from then on; it may serve any number of operations one after another, of any
 * shape that fits. 0 <= ith < nth, each ith on one thread; the caller puts a barrier (that orders memory)
 * between the two phases and before the next use. `a` must pass mz_attn_check().
 *
 * When `ready` fails, the operation fails: the first answer is kept for mz_attn_status(), all threads leave
 * the partial phase after the chunk they are at, and the merge phase fills dst with NaN. The same happens
 * (-ESTALE) when the partial phase was not run, or was already merged, for this a->run.
 */
void mz_attn_partial(const struct mz_attn *a, void *ws, int ith, int nth);
void mz_attn_merge(const struct mz_attn *a, void *ws, int ith, int nth);

/* After the merge phase (or a partial phase that nobody merges): 0, or the negative errno why dst holds no
 * result. */
int mz_attn_status(const struct mz_attn *a, const void *ws);

/* The instruction sets: what BEST stands for here; whether one can run here; its name ("avx512"), never NULL.
 */
enum mz_attn_isa mz_attn_isa_best(void);
bool mz_attn_isa_usable(enum mz_attn_isa isa);
const char *mz_attn_isa_name(enum mz_attn_isa isa);

/*
 * Whether this kernel is at least as fast as ggml-cpu's for this shape: a table frozen in the source, made
 * from measurements with bench_attn. `isa` is what would run, BEST allowed. Pure: it never looks at
 * residency, load or time.
 */
bool mz_attn_wins(const struct mz_attn *a, enum mz_attn_isa isa);

#endif
