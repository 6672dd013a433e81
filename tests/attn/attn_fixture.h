/*
 * Attention operations with made-up contents, and what they give in fp64. No test framework here: the program
 * that runs under an emulator uses this too.
 */
#ifndef MZ_ATTN_FIXTURE_H
#define MZ_ATTN_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "attn/attn.h"

enum mask_kind {
    MASK_NONE,
    MASK_ZERO,    /* there, but adds nothing */
    MASK_CAUSAL,  /* the last rows of the cache are the query's own; padding to the end is masked */
    MASK_WINDOW,  /* causal, and only the last 100 tokens */
    MASK_RANDOM,  /* any finite value, a third of the positions masked */
    MASK_ISLANDS, /* two stretches of tokens, as of one sequence among others in a shared cache */
    MASK_NOTHING, /* row 0 is masked everywhere, the others are not masked */
    MASK_ALL,     /* everything is masked */
    MASK_KINDS
};

struct attn_case {
    uint32_t rows, heads, kv_heads, seqs, kv, dk, dv;
    enum mz_attn_type k_type, v_type;
    enum mask_kind mask;
    uint32_t mask_heads, mask_seqs; /* 0: 1 */
    float softcap, max_bias;
    float q_size, k_size, v_size; /* the numbers of q, and of fp16 K and V, are so many times as large as
                                     usual (0: 1); the scale makes up for it */
    bool sinks;
    bool head_major; /* K and V as [head][token] instead of [token][head] */
    bool unchecked;  /* no fp64 reference is computed */
    bool poison; /* NaN and infinities in K and V wherever every row is masked, and in some that few rows mask
                  */
};

/* An operation and its memory. */
struct attn_fixture {
    struct attn_case c;
    struct mz_attn a;
    float *q, *dst, *sinks;
    uint16_t *k, *v, *mask;
    const void **k_chunks, **v_chunks;
    double *expected; /* like dst */
    double scale;     /* the largest absolute value in expected */
};

/* Exits the program when memory runs out. */
struct attn_fixture *attn_fixture_create(const struct attn_case *c);
void attn_fixture_destroy(struct attn_fixture *f);

/* Runs f->a (isa and ready are the caller's to set) with nth threads and a barrier between the phases. A
 * fresh run number and a workspace of garbage-free zeros each time. Returns mz_attn_status(). */
int attn_fixture_run(struct attn_fixture *f, int nth);

/* Largest distance of dst from expected, relative to f->scale (absolute when that is 0); infinite when NaN.
 */
double attn_fixture_error(const struct attn_fixture *f);

/* What ggml-cpu's error would be, computed by its rounding of fp16 in fp64: with fewer than 64 query rows it
 * rounds queries to the type of K, and the sum of fp16 values after every token. (For K of another type than
 * fp16: without the rounding of queries.) Infinite where its numbers overflow. */
double attn_fixture_ggml_error(const struct attn_fixture *f);

/* The largest error that `isa` may have, relative to f->scale: a constant for fp32 throughout; where fp16 is
 * multiplied as it is, ggml-cpu's own and a little, but no more than a rounded query and a rounded weight
 * cost. */
double attn_fixture_error_max(const struct attn_fixture *f, enum mz_attn_isa isa);

/* For messages. */
const char *attn_case_text(const struct attn_case *c);

/* The table that all instruction sets go through. */
extern const struct attn_case attn_cases[];
extern const unsigned attn_cases_count;

/* Exact fp16 to fp64, and the nearest fp16. Written apart from the code under test. */
double half_to_double(uint16_t half);
uint16_t half_from_double(double value);

#endif
