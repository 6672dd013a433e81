/*
 * bench_attn: the attention kernel beside ggml-cpu's, in one process and in ggml-cpu's own thread team.
 *
 * Both run as graphs of one operation per layer: FLASH_ATTN_EXT, and two custom operations (partial, merge)
 * with the same inputs. Pairs are interleaved, so that what else the machine does hits both; each pair gives
 * a ratio, and the median of the ratios is the speedup. There are as many layers as give 256 MiB of K and V
 * (at least 1, at most 16), as in a model: the cache of one layer does not wait in the processor's caches for
 * its next use.
 *
 * Beside each point stands the machine's limit: the larger of its operations at the measured peak of fused
 * multiply-adds and its bytes at the measured bandwidth of memory, both with as many threads.
 *
 * The table takes some five minutes; --shape and --kv measure a part of it, --type q8_0 the same for such a
 * cache.
 *
 * Prints one JSON object {"attn": [...], "limits": {...}} to stdout, or to the file of --json.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "attn/attn.h"

#define LAYERS_MAX  16
#define LAYER_BYTES (256u << 20)
#define LAYER_FLOPS 20e9 /* but not more layers than this needs: such points wait for nothing */
#define PAIRS_MAX   64

struct point {
    uint32_t rows, kv, heads, kv_heads, head_dim;
};

struct options {
    int threads;
    double seconds; /* per point, at least */
    int pairs;      /* and at least so many */
    bool quick;
    const char *json;
    const char *only; /* "rows,kv,heads,kv_heads,head_dim": one point instead of the table */
    int shape;        /* of shapes[]; -1: all */
    uint32_t kv;      /* 0: all */
    enum ggml_type type;
    enum mz_attn_isa isa;
};

/* One thread can be measured beside other work: by the time it had the processor. */
static double now_ms(int threads)
{
    struct timespec t;

    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void die(const char *what)
{
    fprintf(stderr, "bench_attn: %s\n", what);
    exit(1);
}

/* ---- the machine's limits */

/* The widest vectors of the chosen instruction set; the compiler splits what the processor lacks. */
#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static float fma_avx512(uint64_t n)
{
    __m512 sum[12], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    float total = 0;

    for (int i = 0; i < 12; i++)
        sum[i] = _mm512_set1_ps((float)i);
    for (uint64_t i = 0; i < n; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++)
            sum[j] = _mm512_fmadd_ps(sum[j], x, y);
    }
    for (int i = 0; i < 12; i++)
        total += _mm512_reduce_add_ps(sum[i]);
    return total;
}

__attribute__((target("avx2,fma"))) static float fma_avx2(uint64_t n)
{
    __m256 sum[12], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    float total = 0;

    for (int i = 0; i < 12; i++)
        sum[i] = _mm256_set1_ps((float)i);
    for (uint64_t i = 0; i < n; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++)
            sum[j] = _mm256_fmadd_ps(sum[j], x, y);
    }
    for (int i = 0; i < 12; i++)
        for (int j = 0; j < 8; j++)
            total += ((float *)&sum[i])[j];
    return total;
}
#endif

static float fma_plain(uint64_t n)
{
    float sum[12], total = 0;

    for (int i = 0; i < 12; i++)
        sum[i] = (float)i;
    for (uint64_t i = 0; i < n; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++)
            sum[j] = __builtin_fmaf(sum[j], 0.999f, 0.001f);
    }
    for (int i = 0; i < 12; i++)
        total += sum[i];
    return total;
}

struct burn {
    pthread_t thread;
    enum mz_attn_isa isa;
    uint64_t n;
    const uint64_t *words; /* read these instead */
    uint64_t n_words;
    volatile uint64_t sink;
};

static uint64_t read_words(const uint64_t *words, uint64_t n)
{
    typedef uint64_t lanes __attribute__((vector_size(64)));
    lanes sum = {0}, more = {0};
    uint64_t total = 0;

    for (uint64_t i = 0; i + 16 <= n; i += 16) {
        sum += *(const lanes *)(words + i);
        more += *(const lanes *)(words + i + 8);
        __builtin_prefetch(words + i + 256);
    }
    for (int i = 0; i < 8; i++)
        total += sum[i] + more[i];
    return total;
}

static void *burn_run(void *arg)
{
    struct burn *b = arg;

    if (b->words) {
        b->sink = read_words(b->words, b->n_words);
        return NULL;
    }
#if defined(__x86_64__)
    if (b->isa == MZ_ATTN_ISA_AVX512)
        b->sink = (uint64_t)fma_avx512(b->n);
    else if (b->isa == MZ_ATTN_ISA_AVX2)
        b->sink = (uint64_t)fma_avx2(b->n);
    else
#endif
        b->sink = (uint64_t)fma_plain(b->n);
    return NULL;
}

static double burn_ms(struct burn *burns, int n)
{
    double begin = now_ms(n);

    if (n == 1) {
        burn_run(burns);
        return now_ms(n) - begin;
    }
    for (int i = 0; i < n; i++)
        if (pthread_create(&burns[i].thread, NULL, burn_run, &burns[i]))
            die("no thread");
    for (int i = 0; i < n; i++)
        pthread_join(burns[i].thread, NULL);
    return now_ms(n) - begin;
}

/* GFLOP/s of fused multiply-adds, the best of five. */
static double measure_fma(enum mz_attn_isa isa, int threads)
{
    double lanes = isa == MZ_ATTN_ISA_AVX512 ? 16 : isa == MZ_ATTN_ISA_AVX2 ? 8 : 1, best = 0;
    struct burn burns[64];
    uint64_t n = 4000000;

    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < threads; i++)
            burns[i] = (struct burn){.isa = isa, .n = n};
        best = fmax(best, (double)threads * (double)n * 12 * 2 * lanes / burn_ms(burns, threads) * 1e-6);
    }
    return best;
}

/* GB/s of reading 512 MiB, the best of five. */
static double measure_memory(int threads)
{
    uint64_t bytes = 512u << 20;
    struct burn burns[64];
    double best = 0;
    char *memory = aligned_alloc(4096, bytes);

    if (!memory)
        die("out of memory");
    memset(memory, 1, bytes);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < threads; i++)
            burns[i] = (struct burn){
                .words = (uint64_t *)(memory + bytes / (uint64_t)threads / 128 * 128 * (uint64_t)i),
                .n_words = bytes / (uint64_t)threads / 128 * 16};
        best = fmax(best, (double)bytes / burn_ms(burns, threads) * 1e-6);
    }
    free(memory);
    return best;
}

/* ---- one point */

struct layer {
    struct ggml_tensor *k, *v;
    const void *k_chunks[1024], *v_chunks[1024];
    struct mz_attn a;
    void *ws;
};

struct setup {
    struct point p;
    enum ggml_type type; /* of K and V */
    int threads;
    int n_layers;
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *q, *mask, *ggml_dst, *mz_dst;
    struct ggml_cgraph *ggml_graph, *mz_graph;
    void *ws;
    struct layer layers[LAYERS_MAX];
};

#define NUMBERS 65504 /* different ones, repeated; whole blocks, and no whole number of rows */

/* Some numbers, the same each time; their spread is about that of keys and values. */
static void fill(struct ggml_tensor *t, uint64_t seed)
{
    uint64_t bytes = ggml_nbytes(t), some = ggml_row_size(t->type, NUMBERS);
    float *values = malloc(NUMBERS * sizeof(float));

    if (!values)
        die("out of memory");
    for (uint64_t i = 0; i < NUMBERS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        values[i] = ((float)(seed >> 40) * 0x1p-24f - 0.5f) * 3.4f;
    }
    if (some > bytes)
        some = bytes;
    if (t->type == GGML_TYPE_F32)
        memcpy(t->data, values, some);
    else
        ggml_quantize_chunk(t->type, values, t->data, 0, 1,
                            (int64_t)(some / ggml_type_size(t->type)) * ggml_blck_size(t->type), NULL);
    for (uint64_t at = some; at < bytes; at += some)
        memcpy((char *)t->data + at, t->data, bytes - at < some ? bytes - at : some);
    free(values);
}

/* The queries are the last rows of the cache. */
static void fill_mask(struct ggml_tensor *mask, const struct point *p)
{
    for (uint32_t row = 0; row < p->rows; row++)
        for (uint32_t t = 0; t < p->kv; t++)
            ((ggml_fp16_t *)mask->data)[(uint64_t)row * p->kv + t] =
                ggml_fp32_to_fp16(t + p->rows > p->kv + row ? -INFINITY : 0.0f);
}

static void run_partial(struct ggml_tensor *dst, int ith, int nth, void *user)
{
    const struct layer *l = user;

    (void)dst;
    mz_attn_partial(&l->a, l->ws, ith, nth);
}

static void run_merge(struct ggml_tensor *dst, int ith, int nth, void *user)
{
    const struct layer *l = user;

    (void)dst;
    mz_attn_merge(&l->a, l->ws, ith, nth);
}

static void build_layer(struct setup *s, struct layer *l)
{
    const struct point *p = &s->p;
    struct ggml_tensor *k, *v, *dst, *node;

    l->k = ggml_new_tensor_2d(s->ctx, s->type, p->head_dim * p->kv_heads, p->kv);
    l->v = ggml_new_tensor_2d(s->ctx, s->type, p->head_dim * p->kv_heads, p->kv);
    k = ggml_permute(s->ctx, ggml_reshape_3d(s->ctx, l->k, p->head_dim, p->kv_heads, p->kv), 0, 2, 1, 3);
    v = ggml_permute(s->ctx, ggml_reshape_3d(s->ctx, l->v, p->head_dim, p->kv_heads, p->kv), 0, 2, 1, 3);
    dst = ggml_flash_attn_ext(s->ctx, ggml_permute(s->ctx, s->q, 0, 2, 1, 3), k, v, s->mask,
                              1.0f / sqrtf((float)p->head_dim), 0.0f, 0.0f);
    ggml_build_forward_expand(s->ggml_graph, dst);
    s->ggml_dst = dst;
    node = ggml_custom_4d(s->ctx, GGML_TYPE_F32, 1, 1, 1, 1, &l->k, 1, run_partial, GGML_N_TASKS_MAX, l);
    node = ggml_custom_4d(s->ctx, GGML_TYPE_F32, dst->ne[0], dst->ne[1], dst->ne[2], dst->ne[3], &node, 1,
                          run_merge, GGML_N_TASKS_MAX, l);
    ggml_build_forward_expand(s->mz_graph, node);
    s->mz_dst = node;
    l->a.dst = (float *)node; /* becomes its data below */
}

static void describe_layer(struct setup *s, struct layer *l, enum mz_attn_isa isa)
{
    const struct point *p = &s->p;
    uint64_t head_bytes = ggml_row_size(s->type, p->head_dim), row_bytes = head_bytes * p->kv_heads;
    struct ggml_tensor *dst = (struct ggml_tensor *)l->a.dst;

    for (uint32_t i = 0; i * MZ_ATTN_CHUNK < p->kv; i++) {
        l->k_chunks[i] = (char *)l->k->data + i * MZ_ATTN_CHUNK * row_bytes;
        l->v_chunks[i] = (char *)l->v->data + i * MZ_ATTN_CHUNK * row_bytes;
    }
    l->a = (struct mz_attn){
        .isa = isa,
        .run = 1,
        .n_rows = p->rows,
        .n_heads = p->heads,
        .n_kv_heads = p->kv_heads,
        .n_seq = 1,
        .n_kv = p->kv,
        .dk = p->head_dim,
        .dv = p->head_dim,
        .k_type = s->type == GGML_TYPE_Q8_0 ? MZ_ATTN_Q8_0 : MZ_ATTN_F16,
        .v_type = s->type == GGML_TYPE_Q8_0 ? MZ_ATTN_Q8_0 : MZ_ATTN_F16,
        .q = s->q->data,
        .q_head_bytes = p->head_dim * sizeof(float),
        .q_row_bytes = (uint64_t)p->heads * p->head_dim * sizeof(float),
        .k = l->k_chunks,
        .v = l->v_chunks,
        .k_row_bytes = row_bytes,
        .k_head_bytes = head_bytes,
        .v_row_bytes = row_bytes,
        .v_head_bytes = head_bytes,
        .mask = s->mask->data,
        .mask_row_bytes = 2 * (uint64_t)p->kv,
        .mask_heads = 1,
        .mask_seqs = 1,
        .scale = 1.0f / sqrtf((float)p->head_dim),
        .dst = dst->data,
    };
    l->ws = s->ws;
    if (mz_attn_check(&l->a))
        die("the kernel refuses the shape");
}

static uint64_t cache_bytes(const struct point *p, enum ggml_type type)
{
    return 2 * (uint64_t)p->kv * p->kv_heads * ggml_row_size(type, p->head_dim);
}

static double point_flops(const struct point *p)
{
    return 4.0 * p->rows * p->heads * p->head_dim * p->kv;
}

static int layers(const struct point *p, enum ggml_type type)
{
    int n = (int)(LAYER_BYTES / cache_bytes(p, type)), most = (int)(LAYER_FLOPS / point_flops(p));

    n = n < most ? n : most;
    return n < 1 ? 1 : n > LAYERS_MAX ? LAYERS_MAX : n;
}

static struct setup *setup_create(const struct point *p, const struct options *o, ggml_backend_t cpu)
{
    struct setup *s = calloc(1, sizeof(*s));
    struct ggml_init_params params = {.mem_size = 16u << 20, .no_alloc = true};

    if (!s)
        die("out of memory");
    s->p = *p;
    s->threads = o->threads;
    s->type = o->type;
    s->n_layers = layers(p, o->type);
    s->ctx = ggml_init(params);
    s->ggml_graph = ggml_new_graph(s->ctx);
    s->mz_graph = ggml_new_graph(s->ctx);
    s->q = ggml_new_tensor_3d(s->ctx, GGML_TYPE_F32, p->head_dim, p->heads, p->rows);
    s->mask = ggml_new_tensor_2d(s->ctx, GGML_TYPE_F16, p->kv, p->rows);
    for (int i = 0; i < s->n_layers; i++)
        build_layer(s, &s->layers[i]);
    s->buffer = ggml_backend_alloc_ctx_tensors(s->ctx, cpu);
    if (!s->buffer)
        die("out of memory");
    fill(s->q, 1);
    fill_mask(s->mask, p);
    for (int i = 0; i < s->n_layers; i++) {
        fill(s->layers[i].k, 2 + (uint64_t)i);
        fill(s->layers[i].v, 100 + (uint64_t)i);
        describe_layer(s, &s->layers[i], o->isa);
    }
    if (posix_memalign(&s->ws, 4096, mz_attn_workspace(&s->layers[0].a, o->threads)))
        die("out of memory");
    memset(s->ws, 0, mz_attn_workspace(&s->layers[0].a, o->threads));
    for (int i = 0; i < s->n_layers; i++)
        s->layers[i].ws = s->ws;
    return s;
}

static void setup_destroy(struct setup *s)
{
    ggml_backend_buffer_free(s->buffer);
    ggml_free(s->ctx);
    free(s->ws);
    free(s);
}

static double time_ms(struct setup *s, ggml_backend_t cpu, struct ggml_cgraph *graph)
{
    static uint32_t run = 1;
    double begin;

    for (int i = 0; i < s->n_layers; i++)
        s->layers[i].a.run = ++run;
    begin = now_ms(s->threads);
    if (ggml_backend_graph_compute(cpu, graph) != GGML_STATUS_SUCCESS)
        die("the graph failed");
    return (now_ms(s->threads) - begin) / s->n_layers;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return a < b ? -1 : a > b;
}

/* `share` 0.5: the median. Sorts. */
static double quantile(double *values, int n, double share)
{
    qsort(values, (size_t)n, sizeof(double), by_value);
    return values[(int)((double)(n - 1) * share)];
}

/* Largest distance between the two results, relative to the largest value: both are right, or one is not
 * measured. */
static double distance(const struct setup *s)
{
    uint64_t n = (uint64_t)ggml_nelements(s->ggml_dst);
    double worst = 0, scale = 0;

    for (uint64_t i = 0; i < n; i++) {
        double x = ((float *)s->ggml_dst->data)[i], y = ((float *)s->mz_dst->data)[i];

        worst = fabs(x - y) > worst || isnan(x - y) ? fabs(x - y) : worst;
        scale = fmax(scale, fabs(x));
    }
    return worst / scale;
}

static json_t *measure(const struct point *p, const struct options *o, ggml_backend_t cpu, double fma_gflops,
                       double mem_gbps)
{
    struct setup *s = setup_create(p, o, cpu);
    double theirs[PAIRS_MAX], ours[PAIRS_MAX], ratios[PAIRS_MAX], begin, flops, bytes, limit, best;
    json_t *ret;
    int n = 0;

    time_ms(s, cpu, s->ggml_graph);
    time_ms(s, cpu, s->mz_graph);
    begin = now_ms(0);
    while (n < PAIRS_MAX && (n < o->pairs || now_ms(0) - begin < o->seconds * 1e3)) {
        theirs[n] = time_ms(s, cpu, s->ggml_graph);
        ours[n] = time_ms(s, cpu, s->mz_graph);
        ratios[n] = theirs[n] / ours[n];
        n++;
    }
    flops = point_flops(p);
    bytes = (double)cache_bytes(p, o->type);
    limit = fmax(flops / fma_gflops, bytes / mem_gbps) * 1e-6;
    best = quantile(ours, n, 0.5);
    ret = json_pack("{ss si si si si si sf sf sf sf sf sf sf sf si ss sb}", "type", ggml_type_name(o->type),
                    "rows", p->rows, "kv", p->kv, "heads", p->heads, "kv_heads", p->kv_heads, "head_dim",
                    p->head_dim, "ggml_ms", quantile(theirs, n, 0.5), "mz_ms", best, "speedup",
                    quantile(ratios, n, 0.5), "speedup_low", quantile(ratios, n, 0.25), "limit_ms", limit,
                    "gflops", flops / best * 1e-6, "gbps", bytes / best * 1e-6, "distance", distance(s), "n",
                    n, "isa", mz_attn_isa_name(o->isa), "wins", mz_attn_wins(&s->layers[0].a, o->isa));
    fprintf(stderr,
            "%s %4u rows %6u kv %2u/%u d%-3u  ggml %9.3f ms  mz %9.3f ms  x%6.2f (x%5.2f)  limit %8.3f ms "
            "(%3.0f%%)  "
            "%6.1f GFLOP/s %5.1f GB/s  distance %.1e\n",
            ggml_type_name(o->type), p->rows, p->kv, p->heads, p->kv_heads, p->head_dim,
            quantile(theirs, n, 0.5), best, quantile(ratios, n, 0.5), quantile(ratios, n, 0.25), limit,
            100 * limit / best, flops / best * 1e-6, bytes / best * 1e-6, distance(s));
    setup_destroy(s);
    return ret;
}

/* ---- the table */

static const uint32_t all_rows[] = {1, 2, 4, 8, 16, 32, 128, 512};
static const uint32_t all_kv[] = {1024, 8192, 32768};
static const struct point shapes[] = {
    {.heads = 16, .kv_heads = 8, .head_dim = 128},
    {.heads = 32, .kv_heads = 8, .head_dim = 64},
    {.heads = 9, .kv_heads = 3, .head_dim = 64},
    {.heads = 8, .kv_heads = 1, .head_dim = 256},
};

#define SHAPES (int)(sizeof(shapes) / sizeof(shapes[0]))

static const struct point quick_points[] = {
    {1, 8192, 16, 8, 128}, {8, 8192, 16, 8, 128},   {32, 1024, 32, 8, 64},
    {8, 1024, 9, 3, 64},   {128, 1024, 16, 8, 128},
};

static json_t *measure_table(const struct options *o, ggml_backend_t cpu, double fma_gflops, double mem_gbps)
{
    json_t *list = json_array();
    struct point p;

    if (o->only) {
        if (sscanf(o->only, "%u,%u,%u,%u,%u", &p.rows, &p.kv, &p.heads, &p.kv_heads, &p.head_dim) != 5)
            die("--only wants rows,kv,heads,kv_heads,head_dim");
        json_array_append_new(list, measure(&p, o, cpu, fma_gflops, mem_gbps));
        return list;
    }
    for (unsigned i = 0; o->quick && i < sizeof(quick_points) / sizeof(quick_points[0]); i++)
        json_array_append_new(list, measure(&quick_points[i], o, cpu, fma_gflops, mem_gbps));
    for (int shape = 0; !o->quick && shape < SHAPES; shape++)
        for (unsigned kv = 0; kv < sizeof(all_kv) / sizeof(all_kv[0]); kv++)
            for (unsigned rows = 0; rows < sizeof(all_rows) / sizeof(all_rows[0]); rows++) {
                p = shapes[shape];
                p.kv = all_kv[kv];
                p.rows = all_rows[rows];
                if ((o->shape < 0 || o->shape == shape) && (!o->kv || o->kv == p.kv))
                    json_array_append_new(list, measure(&p, o, cpu, fma_gflops, mem_gbps));
            }
    return list;
}

static enum mz_attn_isa isa_by_name(const char *name)
{
    for (int isa = MZ_ATTN_ISA_BEST; isa < MZ_ATTN_ISA_COUNT; isa++)
        if (strcmp(mz_attn_isa_name((enum mz_attn_isa)isa), name) == 0 &&
            mz_attn_isa_usable((enum mz_attn_isa)isa))
            return isa == MZ_ATTN_ISA_BEST ? mz_attn_isa_best() : (enum mz_attn_isa)isa;
    die("no such instruction set here");
    return MZ_ATTN_ISA_PLAIN;
}

static enum ggml_type type_by_name(const char *name)
{
    for (int i = 0; i < 2; i++) {
        enum ggml_type type = i ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;

        if (strcmp(ggml_type_name(type), name) == 0)
            return type;
    }
    die("--type wants f16 or q8_0");
    return GGML_TYPE_F16;
}

static struct options parse(int argc, char **argv)
{
    struct options o = {.threads = 2,
                        .seconds = 1,
                        .pairs = 3,
                        .shape = -1,
                        .type = GGML_TYPE_F16,
                        .isa = mz_attn_isa_best()};

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--quick") == 0) {
            o.quick = true;
            o.seconds = 0.5;
            continue;
        }
        if (!value || strncmp(argv[i], "--", 2) != 0)
            die("usage: bench_attn [--quick] [--json FILE] [--threads N] [--seconds S] [--pairs N] [--isa "
                "NAME] [--type f16|q8_0] [--shape 0..3] [--kv TOKENS] [--only POINT]");
        i++;
        if (strcmp(argv[i - 1], "--json") == 0)
            o.json = value;
        else if (strcmp(argv[i - 1], "--threads") == 0)
            o.threads = atoi(value);
        else if (strcmp(argv[i - 1], "--seconds") == 0)
            o.seconds = atof(value);
        else if (strcmp(argv[i - 1], "--pairs") == 0)
            o.pairs = atoi(value);
        else if (strcmp(argv[i - 1], "--isa") == 0)
            o.isa = isa_by_name(value);
        else if (strcmp(argv[i - 1], "--type") == 0)
            o.type = type_by_name(value);
        else if (strcmp(argv[i - 1], "--shape") == 0)
            o.shape = atoi(value);
        else if (strcmp(argv[i - 1], "--kv") == 0)
            o.kv = (uint32_t)atoi(value);
        else if (strcmp(argv[i - 1], "--only") == 0)
            o.only = value;
        else
            die("no such option");
    }
    if (o.shape >= SHAPES)
        die("--shape wants 0 to 3");
    if (o.threads < 1 || o.threads > 64 || o.pairs < 1 || o.pairs > PAIRS_MAX)
        die("--threads and --pairs want 1 to 64");
    return o;
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    ggml_backend_t cpu = ggml_backend_cpu_init();
    double fma_gflops = measure_fma(o.isa, o.threads), mem_gbps = measure_memory(o.threads);
    json_t *root;
    int status;

    if (!cpu)
        die("no CPU backend");
    ggml_backend_cpu_set_n_threads(cpu, o.threads);
    fprintf(stderr, "%s, %d threads: %.0f GFLOP/s, %.1f GB/s\n", mz_attn_isa_name(o.isa), o.threads,
            fma_gflops, mem_gbps);
    root = json_pack("{so s{sf sf}}", "attn", measure_table(&o, cpu, fma_gflops, mem_gbps), "limits",
                     "fma_gflops", fma_gflops, "mem_gbps", mem_gbps);
    status = o.json ? json_dump_file(root, o.json, JSON_INDENT(1)) : json_dumpf(root, stdout, JSON_INDENT(1));
    if (!o.json)
        printf("\n");
    if (status)
        fprintf(stderr, "bench_attn: cannot write the result: %s\n", strerror(errno));
    json_decref(root);
    ggml_backend_free(cpu);
    return status ? 1 : 0;
}
