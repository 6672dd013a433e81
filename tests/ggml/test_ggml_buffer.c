/* Buffers as a program uses them: whatever was written reads back, wherever its bytes are by then. */
#include "plugin.h"

#define N ((size_t)3 << 20)

struct pair {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *a, *b;
};

static struct pair pair_new(const char *a, const char *b, enum ggml_backend_buffer_usage usage)
{
    struct pair p = {.ctx = new_ctx()};

    p.a = ggml_set_name(ggml_new_tensor_2d(p.ctx, GGML_TYPE_I8, 1024, N / 1024), a);
    p.b = ggml_set_name(ggml_new_tensor_2d(p.ctx, GGML_TYPE_I8, 1024, N / 1024), b);
    p.buffer = ggml_backend_alloc_ctx_tensors_from_buft(p.ctx, buft);
    assert_non_null(p.buffer);
    ggml_backend_buffer_set_usage(p.buffer, usage);
    return p;
}

static void pair_free(struct pair *p)
{
    ggml_backend_buffer_free(p->buffer);
    ggml_free(p->ctx);
}

static void assert_reads(struct ggml_tensor *tensor, const unsigned char *want, size_t offset, size_t n)
{
    unsigned char *got = malloc(n);

    ggml_backend_tensor_get(tensor, got, offset, n);
    assert_memory_equal(got, want, n);
    free(got);
}

static void check_usage(const char *a, const char *b, enum ggml_backend_buffer_usage usage)
{
    struct pair p = pair_new(a, b, usage);
    unsigned char *bytes = pattern(N);

    ggml_backend_tensor_set(p.a, bytes, 0, N);
    ggml_backend_tensor_set(p.b, bytes, 0, N);
    assert_reads(p.a, bytes, 0, N);
    evict_all();
    assert_reads(p.a, bytes, 0, N);
    assert_reads(p.b, bytes + 4097, 4097, 12345);
    evict_all();
    memset(bytes + 1000000, 3, 5000);
    ggml_backend_tensor_set(p.a, bytes + 1000000, 1000000, 5000);
    evict_all();
    assert_reads(p.a, bytes, 0, N);
    ggml_backend_tensor_memset(p.b, 9, 100, 70000);
    evict_all();
    unsigned char *other = pattern(N);
    memset(other + 100, 9, 70000);
    assert_reads(p.b, other, 0, N);
    ggml_backend_tensor_copy(p.a, p.b);
    evict_all();
    assert_reads(p.b, bytes, 0, N);
    free(bytes);
    free(other);
    pair_free(&p);
}

static void test_weights(void **state)
{
    (void)state;
    check_usage("blk.0.a.weight", "blk.0.b.weight", GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

static void test_cache(void **state)
{
    (void)state;
    check_usage("cache_k_l0", "cache_v_l0", GGML_BACKEND_BUFFER_USAGE_ANY);
}

static void test_anything(void **state)
{
    (void)state;
    check_usage("something", "", GGML_BACKEND_BUFFER_USAGE_ANY);
}

/* Small weights come to lie together, so that no huge page between large ones has to stay; nothing overlaps,
 * views and contents are where they belong. */
static void check_mixed(bool viewed)
{
    enum { PAIRS = 5, SMALL = 1024, LARGE = 300000 };
    struct ggml_context *ctx = new_ctx();
    struct ggml_tensor *small[PAIRS], *large[PAIRS], *view = NULL;
    unsigned char *bytes = pattern(LARGE);

    for (int i = 0; i < PAIRS; i++) {
        small[i] = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, SMALL);
        large[i] = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, LARGE);
    }
    if (viewed)
        view = ggml_view_1d(ctx, small[3], 100, 50);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, buft);
    assert_non_null(buffer);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (int i = 0; i < PAIRS; i++) {
        ggml_backend_tensor_set(small[i], bytes + i, 0, SMALL);
        ggml_backend_tensor_set(large[i], bytes, 0, LARGE);
    }
    evict_all();
    char *base = ggml_backend_buffer_get_base(buffer), *end = base + ggml_backend_buffer_get_size(buffer);
    for (int i = 0; i < PAIRS; i++) {
        char *at = large[i]->data;
        assert_reads(small[i], bytes + i, 0, SMALL);
        assert_reads(large[i], bytes, 0, LARGE);
        assert_true(at >= base && at + LARGE <= end);
        assert_true(viewed || (char *)small[i]->data == base + i * SMALL);
        assert_true(viewed || at >= base + PAIRS * SMALL);
    }
    if (viewed)
        assert_reads(view, bytes + 3 + 50, 0, 100);
    free(bytes);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

static void test_mixed(void **state)
{
    (void)state;
    check_mixed(false);
    check_mixed(true);
}

static uint64_t kv_bytes_written(void)
{
    struct mz_state state;

    assert_int_equal(get_status(&state), 0);
    return state.kv.total_bytes;
}

/* A cleared cache is as if never written, and one that is written in part is written in that part. */
static void test_clear(void **state)
{
    (void)state;
    struct pair p = pair_new("cache_k_l0", "cache_v_l0", GGML_BACKEND_BUFFER_USAGE_ANY);
    unsigned char *bytes = pattern(N), *zeros = calloc(1, N);

    ggml_backend_buffer_clear(p.buffer, 0);
    assert_int_equal(kv_bytes_written(), 0);
    assert_reads(p.a, zeros, 0, N);
    ggml_backend_tensor_set(p.a, bytes, 0, 1000);
    assert_in_range(kv_bytes_written(), 1000, N / 2);
    ggml_backend_tensor_set(p.a, bytes, 0, N);
    evict_all();
    ggml_backend_buffer_clear(p.buffer, 0);
    assert_int_equal(kv_bytes_written(), 0);
    assert_reads(p.a, zeros, 0, N);
    ggml_backend_buffer_clear(p.buffer, 5);
    evict_all();
    memset(zeros, 5, N);
    assert_reads(p.b, zeros, 0, N);
    free(bytes);
    free(zeros);
    pair_free(&p);
}

/* Copying what was never written leaves it unwritten on the other side. */
static void test_copy_of_nothing(void **state)
{
    (void)state;
    struct pair p = pair_new("cache_k_l0", "cache_v_l0", GGML_BACKEND_BUFFER_USAGE_ANY);
    unsigned char *zeros = calloc(1, N);

    ggml_backend_buffer_clear(p.buffer, 0);
    ggml_backend_tensor_copy(p.a, p.b);
    assert_int_equal(kv_bytes_written(), 0);
    assert_reads(p.b, zeros, 0, N);
    free(zeros);
    pair_free(&p);
}

/* Buffers of no size, tensors of no size, and a buffer that goes before anything was written. */
static void test_nothing(void **state)
{
    (void)state;
    struct ggml_context *ctx = new_ctx();
    struct ggml_tensor *empty = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 0, 4);
    ggml_backend_buffer_t none = ggml_backend_buft_alloc_buffer(buft, 0);
    ggml_backend_buffer_t some = ggml_backend_buft_alloc_buffer(buft, 10000);

    assert_non_null(none);
    assert_non_null(some);
    assert_int_equal(ggml_backend_tensor_alloc(some, empty, ggml_backend_buffer_get_base(some)), 0);
    ggml_backend_buffer_clear(some, 0);
    ggml_backend_buffer_free(none);
    ggml_backend_buffer_free(some);
    ggml_free(ctx);
    assert_false(ggml_backend_buft_is_host(buft));
    assert_null(ggml_backend_buft_alloc_buffer(buft, (size_t)1 << 60));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),         cmocka_unit_test(test_weights), cmocka_unit_test(test_cache),
        cmocka_unit_test(test_anything),        cmocka_unit_test(test_mixed),   cmocka_unit_test(test_clear),
        cmocka_unit_test(test_copy_of_nothing),
    };
    return cmocka_run_group_tests(tests, load_plugin, NULL);
}
