/* Packed weights: a weight that is packed in pieces into our own memory gives the same product, bit for bit,
 * as one that ggml-cpu packed itself into a buffer of its own; and only operations with such a kernel get a
 * form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "ggml.h"

#include "engine/cpu/cpu.h"

#define COLS    512
#define ROWS    256
#define EXPERTS 4
#define TOKENS  5

static struct mz_engine *engine;

static void say_nothing(enum ggml_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

static int get_engine(void **state)
{
    (void)state;
    ggml_log_set(say_nothing, NULL); /* a line per packed piece */
    ggml_backend_load_all(); /* the CPU, where backends are loadable modules */
    return mz_cpu_engine(&engine);
}

static float invented(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 23) - 1.0f;
}

static void *invent_weight(enum ggml_type type, int64_t rows)
{
    size_t bytes = ggml_row_size(type, COLS) * (size_t)rows;
    float *plain = malloc((size_t)(COLS * rows) * sizeof(float));
    void *out = malloc(bytes);
    uint32_t random = 7;

    assert_non_null(plain);
    assert_non_null(out);
    for (int64_t i = 0; i < COLS * rows; i++)
        plain[i] = invented(&random);
    assert_int_equal(ggml_quantize_chunk(type, plain, out, 0, rows, COLS, NULL), bytes);
    free(plain);
    return out;
}

/* One product, in host memory, with the weight still to be put in. */
struct product {
    struct ggml_context *ctx;
    struct ggml_tensor *weight, *node;
    struct ggml_cgraph *graph;
};

static struct product product_new(enum ggml_type type, bool experts)
{
    struct ggml_init_params params = {.mem_size = 8u << 20};
    struct product p = {.ctx = ggml_init(params)};
    uint32_t random = 99;

    assert_non_null(p.ctx);
    if (experts) {
        p.weight = ggml_new_tensor_3d(p.ctx, type, COLS, ROWS, EXPERTS);
        struct ggml_tensor *input = ggml_new_tensor_3d(p.ctx, GGML_TYPE_F32, COLS, 1, TOKENS);
        struct ggml_tensor *ids = ggml_new_tensor_2d(p.ctx, GGML_TYPE_I32, 2, TOKENS);
        for (int i = 0; i < 2 * TOKENS; i++)
            ((int32_t *)ids->data)[i] = (i * 3) % EXPERTS;
        p.node = ggml_mul_mat_id(p.ctx, p.weight, input, ids);
    } else {
        p.weight = ggml_new_tensor_2d(p.ctx, type, COLS, ROWS);
        p.node = ggml_mul_mat(p.ctx, p.weight, ggml_new_tensor_2d(p.ctx, GGML_TYPE_F32, COLS, TOKENS));
    }
    for (int64_t i = 0; i < ggml_nelements(p.node->src[1]); i++)
        ((float *)p.node->src[1]->data)[i] = invented(&random);
    p.graph = ggml_new_graph(p.ctx);
    ggml_build_forward_expand(p.graph, p.node);
    return p;
}

static void compute(struct product *p)
{
    struct mz_engine *stream;

    assert_int_equal(mz_cpu_stream_create(engine, &stream), 0);
    stream->ops->set_threads(stream, 2);
    assert_int_equal(stream->ops->compute(stream, p->graph, 0, p->graph->n_nodes), 0);
    mz_cpu_stream_destroy(stream);
}

/* ggml's own way: the weight in a buffer of the type that the form is named after. */
static void compute_stock(struct product *p, const char *type_name, const void *bytes)
{
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_dev_get_extra_bufts_t get = NULL;
    ggml_backend_buffer_t buffer = NULL;

    *(void **)&get = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu),
                                                       "ggml_backend_dev_get_extra_bufts");
    for (ggml_backend_buffer_type_t *t = get(cpu); *t; t++)
        if (strcmp(ggml_backend_buft_name(*t), type_name) == 0)
            buffer = ggml_backend_buft_alloc_buffer(*t, ggml_backend_buft_get_alloc_size(*t, p->weight));
    assert_non_null(buffer);
    p->weight->data = NULL;
    assert_int_equal(ggml_backend_tensor_alloc(buffer, p->weight, ggml_backend_buffer_get_base(buffer)), 0);
    ggml_backend_tensor_set(p->weight, bytes, 0, ggml_nbytes(p->weight));
    compute(p);
    ggml_backend_buffer_free(buffer);
}

static void pack_in_pieces(const struct mz_form *form, const char *bytes, uint64_t total, char *place)
{
    uint64_t step = 3 * engine->ops->form_cut_bytes(engine, form);

    for (uint64_t at = total / step * step;; at -= step) { /* last piece first */
        uint64_t n = total - at < step ? total - at : step;
        if (n)
            assert_int_equal(engine->ops->pack(engine, form, at, bytes + at, n, place + at), 0);
        if (at == 0)
            break;
    }
}

static void check_type(enum ggml_type type, bool experts)
{
    struct product ours = product_new(type, experts), stock = product_new(type, experts);
    struct mz_form *form = mz_form_create(engine, ours.node);
    uint64_t total = ggml_nbytes(ours.weight);

    if (!form) {
        printf("no packed kernel for %s%s here\n", ggml_type_name(type), experts ? " experts" : "");
    } else {
        char *bytes = invent_weight(type, experts ? ROWS * EXPERTS : ROWS), *place = aligned_alloc(64, total);
        assert_non_null(place);
        assert_true(mz_form_fits(engine, form, ours.node));
        assert_true(mz_form_group_bytes(form) < total);
        pack_in_pieces(form, bytes, total, place);
        mz_form_place(form, place);
        ours.node->src[0] = mz_form_shadow(form);
        compute(&ours);
        compute_stock(&stock, mz_form_name(form), bytes);
        assert_memory_equal(ours.node->data, stock.node->data, ggml_nbytes(ours.node));
        mz_form_destroy(form);
        free(bytes);
        free(place);
    }
    ggml_free(ours.ctx);
    ggml_free(stock.ctx);
}

static void test_products(void **state)
{
    (void)state;
    static const enum ggml_type types[] = {GGML_TYPE_Q4_0, GGML_TYPE_Q4_K, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL,
                                           GGML_TYPE_Q2_K};

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        check_type(types[i], false);
        check_type(types[i], true);
    }
}

/* Operations that read rows one by one, views and other operands stay plain. */
static void test_no_form(void **state)
{
    (void)state;
    struct product p = product_new(GGML_TYPE_Q4_0, false);
    struct ggml_tensor *ids = ggml_new_tensor_1d(p.ctx, GGML_TYPE_I32, 2);
    struct ggml_tensor *half = ggml_view_2d(p.ctx, p.weight, COLS, ROWS / 2, p.weight->nb[1], 0);

    assert_null(mz_form_create(engine, ggml_get_rows(p.ctx, p.weight, ids)));
    assert_null(mz_form_create(engine, ggml_mul_mat(p.ctx, half, p.node->src[1])));
    struct ggml_tensor *f16 = ggml_new_tensor_2d(p.ctx, GGML_TYPE_F16, COLS, ROWS);
    assert_null(
        mz_form_create(engine, ggml_mul_mat(p.ctx, f16, ggml_new_tensor_2d(p.ctx, GGML_TYPE_F16, COLS, 2))));
    mz_form_destroy(NULL);
    ggml_free(p.ctx);
}

/* A graph cut anywhere, and one whose abort callback says so. */
static bool say_stop(void *user)
{
    return *(bool *)user;
}

static void test_stream(void **state)
{
    (void)state;
    struct product p = product_new(GGML_TYPE_F32, false);
    struct mz_engine *stream;
    bool stop = true;

    for (int64_t i = 0; i < ggml_nelements(p.weight); i++)
        ((float *)p.weight->data)[i] = (float)(i % 7);
    struct ggml_tensor *last = ggml_sqr(p.ctx, ggml_add(p.ctx, p.node, p.node));
    ggml_build_forward_expand(p.graph, last);
    assert_int_equal(mz_cpu_stream_create(engine, &stream), 0);
    assert_int_equal(stream->ops->compute(stream, p.graph, 0, 3), 0);
    float whole = ((float *)last->data)[17];
    memset(last->data, 0, ggml_nbytes(last));
    for (int i = 0; i < 3; i++)
        assert_int_equal(stream->ops->compute(stream, p.graph, i, i + 1), 0);
    assert_true(whole == ((float *)last->data)[17]);
    stream->ops->set_abort(stream, say_stop, &stop);
    assert_int_equal(stream->ops->compute(stream, p.graph, 0, 3), -ECANCELED);
    stop = false;
    assert_int_equal(stream->ops->compute(stream, p.graph, 0, 3), 0);
    mz_cpu_stream_destroy(stream);
    mz_cpu_stream_destroy(NULL);
    ggml_free(p.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_no_form),
        cmocka_unit_test(test_stream),
    };
    return cmocka_run_group_tests(tests, get_engine, NULL);
}
