/* The same inputs through ggml-cpu and through this kernel, both against fp64: this one's error is no larger,
 * up to a floor of 1e-6 of the largest value (half a dozen roundings in fp32). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ggml-cpu.h>
#include <ggml.h>

#include "attn_fixture.h"

#define FLOOR 1e-6

static struct ggml_tensor *wrap(struct ggml_context *ctx, enum ggml_type type, void *data, uint64_t ne0,
                                uint64_t ne1, uint64_t ne2, uint64_t ne3)
{
    struct ggml_tensor *t =
        ggml_new_tensor_4d(ctx, type, (int64_t)ne0, (int64_t)ne1, (int64_t)ne2, (int64_t)ne3);

    t->data = data;
    return t;
}

static void strides(struct ggml_tensor *t, uint64_t nb1, uint64_t nb2, uint64_t nb3)
{
    t->nb[1] = nb1;
    t->nb[2] = nb2;
    t->nb[3] = nb3;
}

/* From one sequence to the next: the chunks of a sequence follow one another in the fixture's memory. */
static uint64_t seq_bytes(const struct attn_fixture *f, const void **chunks)
{
    uint64_t n_chunks = (f->c.kv + MZ_ATTN_CHUNK - 1) / MZ_ATTN_CHUNK;

    return f->c.seqs > 1 ? (uint64_t)((const char *)chunks[n_chunks] - (const char *)chunks[0]) : 0;
}

static enum ggml_type type_of(enum mz_attn_type type)
{
    return type == MZ_ATTN_Q8_0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
}

static struct ggml_tensor *describe(struct ggml_context *ctx, struct attn_fixture *f)
{
    const struct mz_attn *a = &f->a;
    struct ggml_tensor *q = wrap(ctx, GGML_TYPE_F32, f->q, a->dk, a->n_rows, a->n_heads, a->n_seq),
                       *mask = NULL, *dst;
    struct ggml_tensor *k = wrap(ctx, type_of(a->k_type), f->k, a->dk, a->n_kv, a->n_kv_heads, a->n_seq);
    struct ggml_tensor *v = wrap(ctx, type_of(a->v_type), f->v, a->dv, a->n_kv, a->n_kv_heads, a->n_seq);

    strides(q, a->q_row_bytes, a->q_head_bytes, a->q_seq_bytes);
    strides(k, a->k_row_bytes, a->k_head_bytes, seq_bytes(f, f->k_chunks));
    strides(v, a->v_row_bytes, a->v_head_bytes, seq_bytes(f, f->v_chunks));
    if (a->mask)
        mask = wrap(ctx, GGML_TYPE_F16, f->mask, a->n_kv, a->n_rows, a->mask_heads, a->mask_seqs);
    dst = ggml_flash_attn_ext(ctx, q, k, v, mask, a->scale, a->max_bias, a->logit_softcap);
    if (a->sinks)
        ggml_flash_attn_ext_add_sinks(dst, wrap(ctx, GGML_TYPE_F32, f->sinks, a->n_heads, 1, 1, 1));
    dst->data = f->dst;
    return dst;
}

static void run_ggml(struct attn_fixture *f)
{
    struct ggml_init_params params = {.mem_size = 4u << 20, .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_cplan plan;

    ggml_build_forward_expand(graph, describe(ctx, f));
    plan = ggml_graph_plan(graph, 1, NULL);
    plan.work_data = malloc(plan.work_size + 1);
    assert_non_null(plan.work_data);
    assert_int_equal(ggml_graph_compute(graph, &plan), GGML_STATUS_SUCCESS);
    free(plan.work_data);
    ggml_free(ctx);
}

/* What ggml refuses, or does not promise: no tokens, no rows, NaN in masked positions of its tiles. */
static bool comparable(const struct attn_case *c)
{
    return c->kv && c->rows && !c->poison && !(c->max_bias > 0 && c->mask == MASK_NONE);
}

/* What the bounds of variants with fp16 arithmetic come from: the rounding is ggml's, or less. */
static void check_model(const struct attn_fixture *f, double theirs)
{
    const struct attn_case *c = &f->c;

    if (c->rows < 64 && c->k_type == MZ_ATTN_F16 && !(attn_fixture_ggml_error(f) <= 1.1 * theirs + FLOOR))
        fail_msg("%s: error %g, by the model %g", attn_case_text(c), theirs, attn_fixture_ggml_error(f));
}

static void no_larger(void **state)
{
    double worst = 0, worst_ggml = 0;

    (void)state;
    ggml_cpu_init();
    for (unsigned i = 0; i < attn_cases_count; i++) {
        struct attn_fixture *f;
        double ours, theirs;

        if (!comparable(&attn_cases[i]))
            continue;
        f = attn_fixture_create(&attn_cases[i]);
        assert_int_equal(attn_fixture_run(f, 2), 0);
        ours = attn_fixture_error(f);
        run_ggml(f);
        theirs = attn_fixture_error(f);
        print_message("%-90s ours %.1e ggml %.1e\n", attn_case_text(&f->c), ours, theirs);
        if (!(ours <= theirs + FLOOR))
            fail_msg("error %g, ggml's %g", ours, theirs);
        check_model(f, theirs);
        worst = ours > worst ? ours : worst;
        worst_ggml = theirs > worst_ggml && isfinite(theirs) ? theirs : worst_ggml;
        attn_fixture_destroy(f);
    }
    print_message("largest error: %.2g, ggml-cpu %.2g where its numbers are finite\n", worst, worst_ggml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_larger),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
