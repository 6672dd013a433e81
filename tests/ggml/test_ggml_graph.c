/* Graphs on evicted tensors: products with weights in the packed layout, with an operation that cannot use
 * it, with weights that are computed run by run of rows, rows written by index, state changed in place, and the abort
 * callback. */
#include <errno.h>

#include "plugin.h"

#define COLS 512
#define ROWS 512

static ggml_backend_t backend;

static int start(void **state)
{
    if (load_plugin(state))
        return -1;
    backend = ggml_backend_dev_init(device, NULL);
    return backend ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    ggml_backend_free(backend);
    return 0;
}

static void *quantised(enum ggml_type type, int64_t rows)
{
    float plain[COLS];
    char *out = malloc((size_t)rows * ggml_row_size(type, COLS));

    assert_non_null(out);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < COLS; i++)
            plain[i] = (float)(byte_at((size_t)(row * COLS + i)) % 64) / 32.0f - 1.0f;
        ggml_quantize_chunk(type, plain, out + (size_t)row * ggml_row_size(type, COLS), 0, 1, COLS, NULL);
    }
    return out;
}

/* A model of one weight: its buffer, and the question that a loader asks before it makes it. */
struct model {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *weight;
};

static void ask(struct ggml_tensor *weight)
{
    struct ggml_context *ctx = new_ctx();
    struct ggml_tensor *node = ggml_mul_mat(ctx, weight, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, COLS, 64));

    weight->buffer = ggml_backend_buft_alloc_buffer(buft, 0);
    assert_true(ggml_backend_dev_supports_op(device, node));
    ggml_backend_buffer_free(weight->buffer);
    weight->buffer = NULL;
    ggml_free(ctx);
}

static struct model model_new(const char *name, enum ggml_type type, int64_t n)
{
    struct model m = {.ctx = new_ctx()};
    void *bytes = quantised(type, n);

    m.weight = ggml_set_name(ggml_new_tensor_2d(m.ctx, type, COLS, n), name);
    ask(m.weight);
    m.buffer = ggml_backend_alloc_ctx_tensors_from_buft(m.ctx, buft);
    ggml_backend_buffer_set_usage(m.buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_tensor_set(m.weight, bytes, 0, ggml_nbytes(m.weight));
    free(bytes);
    return m;
}

static void model_free(struct model *m)
{
    ggml_backend_buffer_free(m->buffer);
    ggml_free(m->ctx);
}

/* Computes a graph of one output in a compute buffer, with `input` set, and returns the output's values. */
static float *run(struct ggml_context *ctx, struct ggml_tensor *input, struct ggml_tensor *out,
                  enum ggml_status want)
{
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_gallocr_t alloc = ggml_gallocr_new(buft);
    float *values = calloc(1, ggml_nbytes(out));

    ggml_set_output(out);
    ggml_build_forward_expand(graph, out);
    assert_true(ggml_gallocr_alloc_graph(alloc, graph));
    if (input) {
        float *in = malloc(ggml_nbytes(input));
        for (int64_t i = 0; i < ggml_nelements(input); i++)
            in[i] = (float)(byte_at((size_t)i + 5) % 100) / 50.0f - 1.0f;
        ggml_backend_tensor_set(input, in, 0, ggml_nbytes(input));
        free(in);
    }
    assert_int_equal(ggml_backend_graph_compute(backend, graph), want);
    if (want == GGML_STATUS_SUCCESS)
        ggml_backend_tensor_get(out, values, 0, ggml_nbytes(out));
    ggml_gallocr_free(alloc);
    return values;
}

static float *product_of(struct model *m, int64_t columns)
{
    struct ggml_context *ctx = new_ctx();
    struct ggml_tensor *in = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, COLS, columns);

    ggml_set_input(in);
    float *values = run(ctx, in, ggml_mul_mat(ctx, m->weight, in), GGML_STATUS_SUCCESS);
    ggml_free(ctx);
    return values;
}

static float *product(struct model *m)
{
    return product_of(m, 3);
}

static float *rows(struct model *m)
{
    struct ggml_context *ctx = new_ctx();
    struct ggml_tensor *part = ggml_view_2d(ctx, m->weight, COLS, 8, m->weight->nb[1], 16 * m->weight->nb[1]);
    float *values = run(ctx, NULL, ggml_cast(ctx, part, GGML_TYPE_F32), GGML_STATUS_SUCCESS);

    ggml_free(ctx);
    return values;
}

static void check_weight(const char *name, enum ggml_type type)
{
    struct model m = model_new(name, type, ROWS);
    float *before = product(&m);

    evict_all();
    float *after = product(&m);
    assert_memory_equal(before, after, ROWS * 3 * sizeof(float));
    free(after);

    /* An operation without a packed kernel: plain from then on, and still right. */
    evict_all();
    float *got = rows(&m);
    unsigned char *bytes = malloc(ggml_nbytes(m.weight));
    float *want = malloc(8 * COLS * sizeof(float));
    ggml_backend_tensor_get(m.weight, bytes, 0, ggml_nbytes(m.weight));
    ggml_get_type_traits(type)->to_float(bytes + 16 * m.weight->nb[1], want, 8 * COLS);
    assert_memory_equal(got, want, 8 * COLS * sizeof(float));
    free(got);
    free(want);
    free(bytes);
    evict_all();
    after = product(&m);
    for (int i = 0; i < ROWS * 3; i++) /* another kernel, other last bits */
        assert_true(after[i] - before[i] < 0.5f && before[i] - after[i] < 0.5f);
    free(before);
    free(after);
    model_free(&m);
}

static void test_packed(void **state)
{
    (void)state;
    check_weight("blk.0.q4.weight", GGML_TYPE_Q4_0);
}

static void test_plain(void **state)
{
    (void)state;
    check_weight("blk.0.f16.weight", GGML_TYPE_F16);
}

/* ---- a weight that is computed run by run */

/* 64 and 60 MiB, more than the floor of a limit; the last run is no multiple of what others are. */
#define F16_ROWS  65552
#define Q4_0_ROWS 218448

static void check_same(struct model *m, int64_t columns, const float *want)
{
    float *got = product_of(m, columns);

    assert_memory_equal(got, want, (size_t)(columns * m->weight->ne[1]) * sizeof(float));
    free(got);
}

/* Evicted whole, in part, and with a limit that the weight alone is above. */
static void check_runs(const char *name, enum ggml_type type, int64_t n)
{
    struct model m = model_new(name, type, n);
    struct mz_report report;
    struct mz_state state;
    uint64_t floor = 0;

    for (int64_t columns = 1; columns <= 8; columns += 7) {
        float *want = product_of(&m, columns);
        evict_all();
        check_same(&m, columns, want);
        assert_int_equal(evict_to(5000, &report), 0);
        check_same(&m, columns, want);
        assert_int_equal(limit(1, &floor), -ERANGE);
        assert_true(floor < ggml_nbytes(m.weight));
        assert_int_equal(limit(floor, NULL), 0);
        for (int i = 0; i < 3; i++)
            check_same(&m, columns, want);
        assert_int_equal(get_status(&state), 0);
        assert_true(state.limit_bytes < ggml_nbytes(m.weight) && state.ledger_bytes <= state.limit_bytes);
        assert_int_equal(limit(0, NULL), 0);
        free(want);
    }
    model_free(&m);
}

/* Between two such products are nodes that need nothing: what follows them is not waited for whole, which a limit at the
 * floor has no room for. */
static float *two_products(struct model *m)
{
    struct ggml_context *ctx = new_ctx();
    struct ggml_tensor *in = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, COLS, 1);

    ggml_set_input(in);
    struct ggml_tensor *some = ggml_view_1d(ctx, ggml_mul_mat(ctx, m->weight, in), COLS, 0);
    struct ggml_tensor *out = ggml_mul_mat(ctx, m->weight, ggml_scale(ctx, some, 0.125f));
    float *values = run(ctx, in, out, GGML_STATUS_SUCCESS);
    ggml_free(ctx);
    return values;
}

static void test_runs_one_after_the_other(void **state)
{
    (void)state;
    struct model m = model_new("output.two.weight", GGML_TYPE_F16, F16_ROWS);
    float *want = two_products(&m);
    uint64_t floor = 0;

    evict_all();
    assert_int_equal(limit(1, &floor), -ERANGE);
    assert_int_equal(limit(floor, NULL), 0);
    float *got = two_products(&m);
    assert_memory_equal(got, want, F16_ROWS * sizeof(float));
    assert_int_equal(limit(0, NULL), 0);
    free(got);
    free(want);
    model_free(&m);
}

static void test_runs_plain(void **state)
{
    (void)state;
    check_runs("output.weight", GGML_TYPE_F16, F16_ROWS);
}

static void test_runs_packed(void **state)
{
    (void)state;
    check_runs("output.q4.weight", GGML_TYPE_Q4_0, Q4_0_ROWS);
}

/* ---- a cache */

#define TOKENS 1024
#define WIDTH  256

static struct ggml_tensor *cache_new(struct ggml_context *ctx, ggml_backend_buffer_t *ret)
{
    struct ggml_tensor *cache =
        ggml_set_name(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDTH, TOKENS), "cache_k_l0");

    *ret = ggml_backend_alloc_ctx_tensors_from_buft(ctx, buft);
    ggml_backend_buffer_clear(*ret, 0);
    return cache;
}

static uint64_t written(void)
{
    struct mz_state state;

    assert_int_equal(get_status(&state), 0);
    return state.kv.total_bytes;
}

/* Writes row `row` with ones times value, by an index in host memory. */
static void set_row(struct ggml_tensor *cache, int64_t row, float value)
{
    struct ggml_context *host = new_ctx();
    struct ggml_tensor *index = ggml_new_tensor_1d(host, GGML_TYPE_I64, 1);
    struct ggml_tensor *data = ggml_new_tensor_2d(host, GGML_TYPE_F32, WIDTH, 1);
    ggml_backend_buffer_t buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(host, ggml_backend_cpu_buffer_type());
    struct ggml_cgraph *graph = ggml_new_graph(host);

    *(int64_t *)index->data = row;
    for (int i = 0; i < WIDTH; i++)
        ((float *)data->data)[i] = value;
    ggml_build_forward_expand(graph, ggml_set_rows(host, cache, data, index));
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    ggml_backend_buffer_free(buffer);
    ggml_free(host);
}

static float value_at(struct ggml_tensor *cache, int64_t row)
{
    float value;

    ggml_backend_tensor_get(cache, &value, (size_t)row * cache->nb[1] + 8, sizeof(value));
    return value;
}

static void test_rows_by_index(void **state)
{
    (void)state;
    struct ggml_context *ctx = new_ctx();
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *cache = cache_new(ctx, &buffer);

    set_row(cache, 3, 1.0f);
    assert_int_equal(written(), 256 * WIDTH * sizeof(float)); /* one chunk of four */
    evict_all();
    set_row(cache, 700, 2.0f);
    assert_int_equal(written(), 2 * 256 * WIDTH * sizeof(float));
    assert_true(value_at(cache, 3) == 1.0f && value_at(cache, 700) == 2.0f && value_at(cache, 4) == 0.0f);
    evict_all();
    set_row(cache, 5, 3.0f);
    evict_all();
    assert_true(value_at(cache, 3) == 1.0f && value_at(cache, 5) == 3.0f && value_at(cache, 700) == 2.0f);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

/* State that is doubled in place, evicted between. */
static void test_in_place(void **state)
{
    (void)state;
    struct ggml_context *ctx = new_ctx();
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *cache = cache_new(ctx, &buffer);

    set_row(cache, 10, 1.0f);
    for (int i = 0; i < 4; i++) {
        struct ggml_context *graph_ctx = new_ctx();
        struct ggml_cgraph *graph = ggml_new_graph(graph_ctx);
        struct ggml_tensor *node = ggml_scale_inplace(graph_ctx, cache, 2.0f);
        evict_all();
        ggml_build_forward_expand(graph, node);
        assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
        ggml_free(graph_ctx);
    }
    evict_all();
    assert_true(value_at(cache, 10) == 16.0f && value_at(cache, 11) == 0.0f);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

/* ---- abort */

static bool say_yes(void *user)
{
    (void)user;
    return true;
}

static void test_abort(void **state)
{
    (void)state;
    ggml_backend_set_abort_callback_t set = NULL;
    struct model m = model_new("blk.1.abort.weight", GGML_TYPE_F16, ROWS);
    struct ggml_context *ctx = new_ctx();
    struct ggml_tensor *in = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, COLS, 3);
    struct ggml_tensor *out = ggml_sqr(ctx, ggml_mul_mat(ctx, m.weight, in));

    *(void **)&set = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device),
                                                       "ggml_backend_set_abort_callback");
    assert_non_null(set);
    evict_all();
    set(backend, say_yes, NULL);
    free(run(ctx, in, out, GGML_STATUS_ABORTED));
    set(backend, NULL, NULL);
    ggml_free(ctx);
    float *values = product(&m);
    assert_true(values[0] == values[0]);
    free(values);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed),   cmocka_unit_test(test_plain), cmocka_unit_test(test_rows_by_index),
        cmocka_unit_test(test_in_place), cmocka_unit_test(test_abort), cmocka_unit_test(test_runs_plain),
        cmocka_unit_test(test_runs_packed), cmocka_unit_test(test_runs_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
