/* Run under an emulator by neon.sh: NEON against fp64 over the table, with one thread and with two. No test
 * framework is there for the other machine. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_fixture.h"

#define ERROR_MAX 1e-5

/* Multiplications of a case. The emulator is a hundred times slower than the machine; what larger cases add
 * (more ranges) is not NEON's. */
#define WORK_MAX 20e6

static int failures;

static double work(const struct attn_case *c)
{
    return (double)c->seqs * c->rows * c->heads * c->kv * (c->dk + c->dv);
}

static void expect_case(const struct attn_case *c)
{
    struct attn_fixture *f = attn_fixture_create(c);
    uint64_t bytes = sizeof(float) * c->seqs * c->rows * c->heads * c->dv;
    uint32_t sum[2] = {0, 0};
    double error = INFINITY;

    f->a.isa = MZ_ATTN_ISA_NEON;
    for (int nth = 1; nth <= 2; nth++) {
        int status = attn_fixture_run(f, nth);

        for (uint64_t i = 0; i < bytes; i++)
            sum[nth - 1] = sum[nth - 1] * 31 + ((unsigned char *)f->dst)[i];
        error = status == 0 ? attn_fixture_error(f) : INFINITY;
        f->a.run++;
    }
    if (!(error <= ERROR_MAX) || sum[0] != sum[1]) {
        printf("FAILED %s: error %g, sums %x %x\n", attn_case_text(c), error, sum[0], sum[1]);
        failures++;
    }
    attn_fixture_destroy(f);
}

int main(void)
{
    unsigned run = 0;

    if (!mz_attn_isa_usable(MZ_ATTN_ISA_NEON)) {
        printf("FAILED: no NEON in a build for AArch64\n");
        return 1;
    }
    for (unsigned i = 0; i < attn_cases_count; i++) {
        if (work(&attn_cases[i]) > WORK_MAX)
            continue;
        expect_case(&attn_cases[i]);
        run++;
    }
    printf("%u cases (%u larger ones left out), %d failures, best is %s\n", run, attn_cases_count - run,
           failures, mz_attn_isa_name(mz_attn_isa_best()));
    return failures != 0;
}
