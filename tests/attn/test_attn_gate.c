/* Chunks that come while the operation runs: any order gives the same bits, a chunk that cannot be had fails
 * the operation and never gives numbers, and a workspace is good again afterwards. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attn_fixture.h"

#define CHUNKS_MAX 64

/*
 * Lets chunks arrive in a given order. Each question that must not wait lets nothing happen; each that may
 * wait brings the next chunks, as many as are needed; so every order of arrival is played without a clock.
 */
struct gate {
    pthread_mutex_t lock; /* of all below */
    uint32_t n_chunks;    /* over all sequences */
    uint32_t order[CHUNKS_MAX];
    uint32_t arrived; /* chunks of `order` that are there */
    uint32_t per_seq;
    bool asked[CHUNKS_MAX];
    uint32_t asked_blocking;
    uint32_t bad; /* this one gives `error`; CHUNKS_MAX: none */
    int error;
};

static bool is_there(const struct gate *g, uint32_t chunk)
{
    for (uint32_t i = 0; i < g->arrived; i++)
        if (g->order[i] == chunk)
            return true;
    return false;
}

static int gate_ready(void *user, uint32_t seq, uint32_t chunk, bool block)
{
    struct gate *g = user;
    uint32_t index = seq * g->per_seq + chunk;
    int answer;

    pthread_mutex_lock(&g->lock);
    g->asked[index] = true;
    g->asked_blocking += block;
    while (block && !is_there(g, index))
        g->arrived++;
    if (index == g->bad) /* giving up is told to those who wait; a read error to all */
        answer = block || g->error != -ECANCELED ? g->error : 1;
    else
        answer = is_there(g, index) ? 0 : 1;
    pthread_mutex_unlock(&g->lock);
    return answer;
}

static void gate_init(struct gate *g, struct attn_fixture *f, uint32_t there, unsigned seed)
{
    memset(g, 0, sizeof(*g));
    pthread_mutex_init(&g->lock, NULL);
    g->per_seq = (f->c.kv + MZ_ATTN_CHUNK - 1) / MZ_ATTN_CHUNK;
    g->n_chunks = g->per_seq * f->c.seqs;
    g->bad = CHUNKS_MAX;
    g->arrived = there < g->n_chunks ? there : g->n_chunks;
    assert_true(g->n_chunks <= CHUNKS_MAX);
    for (uint32_t i = 0; i < g->n_chunks; i++)
        g->order[i] = seed == 1 ? g->n_chunks - 1 - i : i;
    for (uint32_t i = g->n_chunks; seed > 1 && i > 1; i--) {
        uint32_t j = (seed = seed * 1664525u + 1013904223u) / 65536u % i, t = g->order[j];

        g->order[j] = g->order[i - 1];
        g->order[i - 1] = t;
    }
    f->a.ready = gate_ready;
    f->a.user = g;
}

static const struct attn_case cases[] = {
    {.rows = 1, .heads = 4, .kv_heads = 2, .seqs = 1, .kv = 5000, .dk = 64, .dv = 64, .mask = MASK_CAUSAL},
    {.rows = 1, .heads = 4, .kv_heads = 4, .seqs = 2, .kv = 1000, .dk = 64, .dv = 64, .mask = MASK_RANDOM},
    {.rows = 8, .heads = 4, .kv_heads = 2, .seqs = 1, .kv = 3000, .dk = 64, .dv = 64, .mask = MASK_CAUSAL},
    /* ranges of several chunks, in which an item is parked half done */
    {.rows = 200,
     .heads = 4,
     .kv_heads = 2,
     .seqs = 1,
     .kv = 6000,
     .dk = 64,
     .dv = 64,
     .mask = MASK_CAUSAL,
     .unchecked = true},
    {.rows = 3, .heads = 8, .kv_heads = 4, .seqs = 2, .kv = 2000, .dk = 64, .dv = 64, .mask = MASK_ISLANDS},
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static void any_order(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_CASES; i++) {
        struct attn_fixture *f = attn_fixture_create(&cases[i]);
        uint64_t bytes = sizeof(float) * f->c.seqs * f->c.rows * f->c.heads * f->c.dv;
        float *expected = malloc(bytes);

        assert_non_null(expected);
        assert_int_equal(attn_fixture_run(f, 1), 0);
        memcpy(expected, f->dst, bytes);
        for (unsigned seed = 0; seed < 4; seed++)
            for (int nth = 1; nth <= 3; nth++) {
                struct gate g;

                gate_init(&g, f, seed == 3 ? 0 : seed * 3, seed);
                f->a.run++;
                assert_int_equal(attn_fixture_run(f, nth), 0);
                if (memcmp(f->dst, expected, bytes) != 0)
                    fail_msg("order %u, %d threads: %s", seed, nth, attn_case_text(&f->c));
                pthread_mutex_destroy(&g.lock);
            }
        free(expected);
        attn_fixture_destroy(f);
    }
}

/* While something is there, no thread blocks: with the first chunk missing the others are all asked for
 * before. */
static void others_first(void **state)
{
    struct attn_fixture *f = attn_fixture_create(&cases[0]);
    struct gate g;

    (void)state;
    gate_init(&g, f, 0, 0);
    g.order[g.n_chunks - 1] = 0; /* chunk 0 comes last, all others are there */
    for (uint32_t i = 0; i + 1 < g.n_chunks; i++)
        g.order[i] = i + 1;
    g.arrived = g.n_chunks - 1;
    assert_int_equal(attn_fixture_run(f, 1), 0);
    for (uint32_t i = 0; i < g.n_chunks; i++)
        assert_true(g.asked[i]);
    assert_int_equal(g.asked_blocking, 1);
    assert_true(attn_fixture_error(f) <= attn_fixture_error_max(f, MZ_ATTN_ISA_BEST));
    pthread_mutex_destroy(&g.lock);
    attn_fixture_destroy(f);
}

/* Chunks that nobody looks at are neither asked for nor read: their pointers may even be NULL. */
static void masked_chunks(void **state)
{
    static const struct attn_case islands[] = {
        {.rows = 1,
         .heads = 4,
         .kv_heads = 2,
         .seqs = 1,
         .kv = 8000,
         .dk = 64,
         .dv = 64,
         .mask = MASK_ISLANDS},
        {.rows = 20,
         .heads = 4,
         .kv_heads = 2,
         .seqs = 1,
         .kv = 8000,
         .dk = 64,
         .dv = 64,
         .mask = MASK_ISLANDS},
        {.rows = 20, .heads = 4, .kv_heads = 2, .seqs = 1, .kv = 8000, .dk = 64, .dv = 64, .mask = MASK_ALL},
    };

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct attn_fixture *f = attn_fixture_create(&islands[i]);
        struct gate g;

        gate_init(&g, f, CHUNKS_MAX, 0);
        f->k_chunks[1] = f->v_chunks[1] = NULL;
        f->k_chunks[g.n_chunks - 1] = f->v_chunks[g.n_chunks - 1] = NULL;
        assert_int_equal(attn_fixture_run(f, 2), 0);
        assert_true(attn_fixture_error(f) <= attn_fixture_error_max(f, MZ_ATTN_ISA_BEST));
        assert_false(g.asked[1]);
        assert_false(g.asked[g.n_chunks - 1]);
        assert_int_equal(g.asked[8000 / 5 / MZ_ATTN_CHUNK], i < 2);
        pthread_mutex_destroy(&g.lock);
        attn_fixture_destroy(f);
    }
}

static void check_poisoned(const struct attn_fixture *f)
{
    for (uint64_t i = 0; i < (uint64_t)f->c.seqs * f->c.rows * f->c.heads * f->c.dv; i++)
        assert_true(isnan(f->dst[i]));
}

static void failure(void **state)
{
    static const int errors[] = {-EIO, -ECANCELED, -EILSEQ};

    (void)state;
    for (unsigned i = 0; i < N_CASES; i++)
        for (unsigned e = 0; e < 3; e++) {
            struct attn_fixture *f = attn_fixture_create(&cases[i]);
            struct gate g;

            gate_init(&g, f, e == 1 ? 0 : 2, 0);
            g.bad = 8000 / 5 / MZ_ATTN_CHUNK % g.per_seq; /* not masked in any of the cases */
            if (cases[i].mask == MASK_ISLANDS)
                g.bad = f->c.kv / 5 / MZ_ATTN_CHUNK;
            g.error = errors[e];
            assert_int_equal(attn_fixture_run(f, 1 + (int)e), errors[e]);
            check_poisoned(f);
            pthread_mutex_destroy(&g.lock);
            attn_fixture_destroy(f);
        }
}

/* "Not yet" to a question that waits is a broken callee, not a reason to read what is not there. */
static int never_ready(void *user, uint32_t seq, uint32_t chunk, bool block)
{
    (void)user, (void)seq, (void)chunk, (void)block;
    return 1;
}

static void broken_callee(void **state)
{
    struct attn_fixture *f = attn_fixture_create(&cases[0]);

    (void)state;
    f->a.ready = never_ready;
    assert_int_equal(attn_fixture_run(f, 2), -EIO);
    check_poisoned(f);
    attn_fixture_destroy(f);
}

/* One workspace: an operation that failed, one that was never merged, one that reuses a number, and good
 * ones. */
static void workspace_again(void **state)
{
    struct attn_fixture *f = attn_fixture_create(&cases[2]), *g = attn_fixture_create(&cases[0]);
    uint64_t bytes = mz_attn_workspace(&f->a, 1);
    void *ws = NULL;

    (void)state;
    bytes = bytes > mz_attn_workspace(&g->a, 1) ? bytes : mz_attn_workspace(&g->a, 1);
    assert_int_equal(posix_memalign(&ws, 128, bytes), 0);
    memset(ws, 0, bytes);
    f->a.run = 1;
    mz_attn_partial(&f->a, ws, 0, 1); /* never merged */
    f->a.run = 2;
    f->a.ready = never_ready;
    mz_attn_partial(&f->a, ws, 0, 1); /* failed, never merged */
    assert_int_equal(mz_attn_status(&f->a, ws), -EIO);
    g->a.run = 3;
    mz_attn_partial(&g->a, ws, 0, 1);
    mz_attn_merge(&g->a, ws, 0, 1);
    assert_int_equal(mz_attn_status(&g->a, ws), 0);
    assert_true(attn_fixture_error(g) <= attn_fixture_error_max(g, MZ_ATTN_ISA_BEST));
    f->a.run = 4;
    f->a.ready = NULL;
    mz_attn_partial(&f->a, ws, 0, 1);
    mz_attn_merge(&f->a, ws, 0, 1);
    assert_int_equal(mz_attn_status(&f->a, ws), 0);
    assert_true(attn_fixture_error(f) <= attn_fixture_error_max(f, MZ_ATTN_ISA_BEST));
    mz_attn_partial(&f->a, ws, 0, 1); /* the same number again */
    mz_attn_merge(&f->a, ws, 0, 1);
    assert_int_equal(mz_attn_status(&f->a, ws), -ESTALE);
    check_poisoned(f);
    g->a.run = 5;
    mz_attn_merge(&g->a, ws, 0, 1); /* no partial phase */
    assert_int_equal(mz_attn_status(&g->a, ws), -ESTALE);
    check_poisoned(g);
    free(ws);
    attn_fixture_destroy(f);
    attn_fixture_destroy(g);
}

static void bad_arguments(void **state)
{
    struct attn_fixture *f = attn_fixture_create(&cases[0]);
    struct mz_attn a = f->a;

    (void)state;
    assert_int_equal(mz_attn_check(&a), 0);
    assert_int_equal(mz_attn_check(NULL), -EINVAL);
#define REFUSED(field, value)                                                                                \
    do {                                                                                                     \
        a = f->a;                                                                                            \
        a.field = value;                                                                                     \
        assert_int_equal(mz_attn_check(&a), -EINVAL);                                                        \
    } while (0)
    REFUSED(run, 0);
    REFUSED(n_heads, 3);
    REFUSED(n_kv_heads, 0);
    REFUSED(n_seq, 0);
    REFUSED(dk, 0);
    REFUSED(k_type, MZ_ATTN_TYPE_COUNT);
    REFUSED(dv, MZ_ATTN_HEAD_MAX + 1);
    REFUSED(q, NULL);
    REFUSED(k, NULL);
    REFUSED(dst, NULL);
    REFUSED(mask_heads, 0);
    REFUSED(k_row_bytes, 129);
    REFUSED(q_row_bytes, 6);
    REFUSED(isa, MZ_ATTN_ISA_COUNT);
#undef REFUSED
    a = f->a;
    a.v_type = MZ_ATTN_Q8_0;
    assert_int_equal(mz_attn_check(&a), 0);
    a.dv = 48; /* one and a half blocks */
    assert_int_equal(mz_attn_check(&a), -EINVAL);
    attn_fixture_destroy(f);
}

/* The choice of kernel follows from the shape: it must not change with residency, or bits would. */
static void choice(void **state)
{
    struct mz_attn shape = {
        .n_rows = 1, .n_heads = 16, .n_kv_heads = 8, .n_seq = 1, .n_kv = 8192, .dk = 128, .dv = 128};
    struct mz_attn gated = shape;

    (void)state;
    gated.ready = never_ready;
    for (int isa = 0; isa < MZ_ATTN_ISA_COUNT; isa++)
        assert_int_equal(mz_attn_wins(&shape, (enum mz_attn_isa)isa),
                         mz_attn_wins(&gated, (enum mz_attn_isa)isa));
    assert_int_equal(mz_attn_wins(&shape, MZ_ATTN_ISA_BEST), mz_attn_wins(&shape, mz_attn_isa_best()));
    assert_true(mz_attn_wins(&shape, MZ_ATTN_ISA_AVX2));
    assert_false(mz_attn_wins(&shape, MZ_ATTN_ISA_PLAIN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order),     cmocka_unit_test(others_first),  cmocka_unit_test(masked_chunks),
        cmocka_unit_test(failure),       cmocka_unit_test(broken_callee), cmocka_unit_test(workspace_again),
        cmocka_unit_test(bad_arguments), cmocka_unit_test(choice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
