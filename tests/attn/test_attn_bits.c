/* No bit of the result depends on the number of threads, on which chunk is there first, or on what lies in
 * masked positions; instruction sets agree within a bound. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attn_fixture.h"

static uint64_t dst_bytes(const struct attn_fixture *f)
{
    return sizeof(float) * f->c.seqs * f->c.rows * f->c.heads * f->c.dv;
}

static float *dst_copy(const struct attn_fixture *f)
{
    float *copy = malloc(dst_bytes(f) + 1);

    assert_non_null(copy);
    memcpy(copy, f->dst, dst_bytes(f));
    return copy;
}

static void threads(void **state)
{
    static const int counts[] = {2, 3, 7};

    (void)state;
    for (unsigned i = 0; i < attn_cases_count; i++) {
        struct attn_case c = attn_cases[i];
        struct attn_fixture *f;
        float *one;

        c.unchecked = true;
        f = attn_fixture_create(&c);
        assert_int_equal(attn_fixture_run(f, 1), 0);
        one = dst_copy(f);
        for (unsigned n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
            f->a.run++;
            assert_int_equal(attn_fixture_run(f, counts[n]), 0);
            if (memcmp(f->dst, one, dst_bytes(f)) != 0)
                fail_msg("%d threads: %s", counts[n], attn_case_text(&f->c));
        }
        free(one);
        attn_fixture_destroy(f);
    }
}

/* Two instruction sets add in other orders: apart by what each is away from fp64 at most. */
static void instruction_sets(void **state)
{
    (void)state;
    for (unsigned i = 0; i < attn_cases_count; i++) {
        struct attn_fixture *f = attn_fixture_create(&attn_cases[i]);
        double apart_max;
        float *plain;

        f->a.isa = MZ_ATTN_ISA_PLAIN;
        assert_int_equal(attn_fixture_run(f, 1), 0);
        plain = dst_copy(f);
        for (int isa = MZ_ATTN_ISA_PLAIN + 1; isa < MZ_ATTN_ISA_COUNT; isa++) {
            f->a.isa = (enum mz_attn_isa)isa;
            f->a.run++;
            if (!mz_attn_isa_usable(f->a.isa))
                continue;
            assert_int_equal(attn_fixture_run(f, 2), 0);
            apart_max = attn_fixture_error_max(f, f->a.isa) + attn_fixture_error_max(f, MZ_ATTN_ISA_PLAIN);
            for (uint64_t d = 0; d < dst_bytes(f) / sizeof(float); d++)
                if (!(fabs((double)f->dst[d] - (double)plain[d]) <= apart_max * f->scale))
                    fail_msg("%s: %s", mz_attn_isa_name(f->a.isa), attn_case_text(&f->c));
        }
        free(plain);
        attn_fixture_destroy(f);
    }
}

/* The same numbers with zeros and with NaN in positions that nobody looks at: equal bits. */
static void masked_garbage(void **state)
{
    (void)state;
    for (unsigned i = 0; i < attn_cases_count; i++) {
        struct attn_case clean = attn_cases[i], dirty = attn_cases[i];
        struct attn_fixture *f, *g;

        if (!clean.poison)
            continue;
        clean.unchecked = dirty.unchecked = true;
        clean.poison = false;
        f = attn_fixture_create(&dirty);
        g = attn_fixture_create(&clean);
        f->a.isa = g->a.isa = MZ_ATTN_ISA_PLAIN; /* adds in one order, carefully or not */
        assert_int_equal(attn_fixture_run(f, 2), 0);
        assert_int_equal(attn_fixture_run(g, 2), 0);
        if (memcmp(f->dst, g->dst, dst_bytes(f)) != 0)
            fail_msg("%s", attn_case_text(&f->c));
        attn_fixture_destroy(f);
        attn_fixture_destroy(g);
    }
}

/* A NaN that is not masked is seen: wrong numbers must not look plausible. */
static void seen_garbage(void **state)
{
    static const struct attn_case cases[] = {
        {.rows = 1, .heads = 4, .kv_heads = 2, .seqs = 1, .kv = 600, .dk = 64, .dv = 64, .mask = MASK_CAUSAL},
        {.rows = 20, .heads = 4, .kv_heads = 2, .seqs = 1, .kv = 600, .dk = 64, .dv = 64},
    };

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct attn_fixture *f = attn_fixture_create(&cases[i % 2]);

        (i < 2 ? f->k : f->v)[17] = 0x7e00; /* token 0, head 0 */
        for (int isa = MZ_ATTN_ISA_PLAIN; isa < MZ_ATTN_ISA_COUNT; isa++) {
            f->a.isa = (enum mz_attn_isa)isa;
            f->a.run++;
            if (!mz_attn_isa_usable(f->a.isa))
                continue;
            assert_int_equal(attn_fixture_run(f, 2), 0);
            assert_true(isnan(f->dst[17]));
            assert_true(!isnan(f->dst[2 * 64 + 17])); /* the other KV head's */
        }
        attn_fixture_destroy(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads),
        cmocka_unit_test(instruction_sets),
        cmocka_unit_test(masked_garbage),
        cmocka_unit_test(seen_garbage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
