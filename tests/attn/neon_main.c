/*
 * Run under an emulator by neon.sh: the NEON variants against fp64 and against portable C over the table,
 * with one thread and with two. The first argument names the variant that has to be the best one of the
 * emulated processor; with a second one nothing else is tested. No test framework is there for the other
 * machine.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_fixture.h"

/* Multiplications of a case. The emulator is a hundred times slower than the machine; what larger cases add
 * (more ranges) is not NEON's. */
#define WORK_MAX 20e6

static int failures;

static double work(const struct attn_case *c)
{
    return (double)c->seqs * c->rows * c->heads * c->kv * (c->dk + c->dv);
}

static uint64_t dst_count(const struct attn_case *c)
{
    return (uint64_t)c->seqs * c->rows * c->heads * c->dv;
}

/* Of what the two wrote, relative to the largest value. */
static double distance(const struct attn_fixture *f, const float *other)
{
    double worst = 0;

    for (uint64_t i = 0; i < dst_count(&f->c); i++) {
        double d = fabs((double)f->dst[i] - (double)other[i]);

        worst = d <= worst ? worst : isnan(d) ? INFINITY : d;
    }
    return f->scale > 0 ? worst / f->scale : worst;
}

static float *run(struct attn_fixture *f, enum mz_attn_isa isa, int nth)
{
    float *copy = malloc(dst_count(&f->c) * sizeof(float) + 1);

    f->a.isa = isa;
    f->a.run++;
    if (!copy || attn_fixture_run(f, nth) != 0) {
        printf("FAILED to run %s\n", attn_case_text(&f->c));
        exit(1);
    }
    memcpy(copy, f->dst, dst_count(&f->c) * sizeof(float));
    return copy;
}

static double expect_case(struct attn_fixture *f, enum mz_attn_isa isa)
{
    float *plain = run(f, MZ_ATTN_ISA_PLAIN, 1), *one = run(f, isa, 1), *two = run(f, isa, 2);
    double error = attn_fixture_error(f), limit = attn_fixture_error_max(f, isa), apart = distance(f, plain);

    if (!(error <= limit) || !(apart <= limit + attn_fixture_error_max(f, MZ_ATTN_ISA_PLAIN)) ||
        memcmp(one, two, dst_count(&f->c) * sizeof(float)) != 0) {
        printf("FAILED %s, %s: error %g, from portable C %g, limit %g; two threads: %s\n",
               mz_attn_isa_name(isa), attn_case_text(&f->c), error, apart, limit,
               memcmp(one, two, dst_count(&f->c) * sizeof(float)) ? "other bits" : "the same");
        failures++;
    }
    free(plain);
    free(one);
    free(two);
    return error;
}

/* A NaN that is not masked is seen, by its head alone. */
static void expect_nan_seen(enum mz_attn_isa isa)
{
    for (unsigned i = 0; i < 4; i++) {
        struct attn_case c = {.rows = i % 2 ? 20 : 1,
                              .heads = 2,
                              .kv_heads = 2,
                              .seqs = 1,
                              .kv = 300,
                              .dk = 64,
                              .dv = 64,
                              .unchecked = true};
        struct attn_fixture *f = attn_fixture_create(&c);

        (i < 2 ? f->k : f->v)[17] = 0x7e00; /* token 0, head 0 */
        free(run(f, isa, 1));
        if (!isnan(f->dst[17]) || isnan(f->dst[64 + 17])) {
            printf("FAILED %s: NaN %s in %s\n", mz_attn_isa_name(isa), isnan(f->dst[17]) ? "strayed" : "lost",
                   i < 2 ? "K" : "V");
            failures++;
        }
        attn_fixture_destroy(f);
    }
}

static void expect_isa(enum mz_attn_isa isa)
{
    unsigned count = 0;
    double worst = 0;

    for (unsigned i = 0; i < attn_cases_count; i++) {
        struct attn_fixture *f;

        if (work(&attn_cases[i]) > WORK_MAX)
            continue;
        f = attn_fixture_create(&attn_cases[i]);
        worst = fmax(worst, expect_case(f, isa));
        attn_fixture_destroy(f);
        count++;
    }
    expect_nan_seen(isa);
    printf("%s: %u cases (%u larger ones left out), largest error %.2g\n", mz_attn_isa_name(isa), count,
           attn_cases_count - count, worst);
}

int main(int argc, char **argv)
{
    const char *best = mz_attn_isa_name(mz_attn_isa_best());

    if (argc < 2 || strcmp(best, argv[1]) != 0) {
        printf("FAILED: the best variant is %s, not %s\n", best, argc < 2 ? "(none named)" : argv[1]);
        return 1;
    }
    if (argc > 2)
        return 0;
    expect_isa(mz_attn_isa_best());
    printf("%d failures\n", failures);
    return failures != 0;
}
