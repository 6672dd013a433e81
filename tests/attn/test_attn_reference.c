/* Every instruction set of this machine against fp64, over the table of shapes, masks and layouts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "attn_fixture.h"

static void check_all(enum mz_attn_isa isa)
{
    double worst = 0;

    for (unsigned i = 0; i < attn_cases_count; i++) {
        struct attn_fixture *f = attn_fixture_create(&attn_cases[i]);
        double error;

        f->a.isa = isa;
        assert_int_equal(attn_fixture_run(f, 2), 0);
        error = attn_fixture_error(f);
        if (!(error <= attn_fixture_error_max(f, isa)))
            fail_msg("%s, %s: error %g", mz_attn_isa_name(isa), attn_case_text(&f->c), error);
        worst = error > worst ? error : worst;
        attn_fixture_destroy(f);
    }
    print_message("%s: %u cases, largest error %.2g\n", mz_attn_isa_name(isa), attn_cases_count, worst);
}

static void check_or_skip(enum mz_attn_isa isa)
{
    if (mz_attn_isa_usable(isa)) {
        check_all(isa);
    } else {
        print_message("skipped: this processor or build has no %s\n", mz_attn_isa_name(isa));
        skip();
    }
}

static void plain(void **state)
{
    (void)state;
    check_or_skip(MZ_ATTN_ISA_PLAIN);
}

static void neon(void **state)
{
    (void)state;
    check_or_skip(MZ_ATTN_ISA_NEON);
}

static void neon_fp16(void **state)
{
    (void)state;
    check_or_skip(MZ_ATTN_ISA_NEON_FP16);
}

static void avx2(void **state)
{
    (void)state;
    check_or_skip(MZ_ATTN_ISA_AVX2);
}

static void avx512(void **state)
{
    (void)state;
    check_or_skip(MZ_ATTN_ISA_AVX512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain), cmocka_unit_test(neon),   cmocka_unit_test(neon_fp16),
        cmocka_unit_test(avx2),  cmocka_unit_test(avx512),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
