/* bench_limits: what this machine can do at best, as the JSON object `limits`.
 *
 *   read_gbps           direct sequential reads into fresh huge pages, from a file in the swap folder
 *   read_checksum_gbps  the same with a checksum over every byte: the limit of restoring
 *   mem_gbps            reading memory
 *   fma_gflops          fused multiply-adds, single precision
 *   alloc_gbps          backing fresh memory with huge pages
 *
 *   bench_limits [--folder DIR] [--threads N] [--file-mib N] [--runs N]
 *
 * Medians of the runs; n and spread (largest / smallest) stand beside them. */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/folder.h"

#define THREADS_MAX 64
#define MEM_BYTES   (UINT64_C(512) << 20)
#define ALLOC_BYTES (UINT64_C(1) << 30)
#define FMA_ROUNDS  UINT64_C(2000000)

struct options {
    char folder[4096];
    unsigned threads, runs;
    uint64_t file_bytes;
};

/* -------------------------------------------------------------------------------- multiply-adds */

/* Twelve sums hide the latency of 4 cycles at 2 or 3 a cycle. The file is compiled such that a product and a
 * sum become one operation. One body for each width, since a vector that the processor lacks is taken apart
 * before anything is inlined. */
#define FMA_BODY(name, lanes, attributes)                                                                    \
    attributes static float name(uint64_t n)                                                                 \
    {                                                                                                        \
        typedef float vector __attribute__((vector_size(4 * lanes)));                                        \
        vector sum[12], x = {0}, y = {0};                                                                    \
        float total = 0;                                                                                     \
        for (int i = 0; i < 12; i++)                                                                         \
            sum[i] = x + (float)i;                                                                           \
        x = x + 0.999f;                                                                                      \
        y = y + 0.001f;                                                                                      \
        for (uint64_t round = 0; round < n; round++) {                                                       \
            _Pragma("GCC unroll 12") for (int j = 0; j < 12; j++) sum[j] = sum[j] * x + y;                   \
        }                                                                                                    \
        for (int i = 0; i < 12; i++)                                                                         \
            for (int j = 0; j < lanes; j++)                                                                  \
                total += sum[i][j];                                                                          \
        return total;                                                                                        \
    }

#if defined(__x86_64__)
FMA_BODY(fma_512, 16, __attribute__((target("avx512f,avx2,fma"))))
FMA_BODY(fma_256, 8, __attribute__((target("avx2,fma"))))
#endif
FMA_BODY(fma_128, 4, )

struct burn {
    pthread_t thread;
    int lanes;
    const uint64_t *words; /* read these instead */
    uint64_t n_words;
    volatile uint64_t sink; /* so that nothing is computed for nothing */
};

static int fma_lanes(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return 16;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return 8;
#endif
    return 4;
}

static void burn_fma(struct burn *burn)
{
#if defined(__x86_64__)
    if (burn->lanes == 16)
        burn->sink = (uint64_t)fma_512(FMA_ROUNDS);
    else if (burn->lanes == 8)
        burn->sink = (uint64_t)fma_256(FMA_ROUNDS);
    else
#endif
        burn->sink = (uint64_t)fma_128(FMA_ROUNDS);
}

static void burn_memory(struct burn *burn)
{
    typedef uint64_t vector __attribute__((vector_size(64)));
    vector sums[4] = {{0}};

    for (uint64_t i = 0; i + 32 <= burn->n_words; i += 32)
        for (int j = 0; j < 4; j++)
            sums[j] += *(const vector *)(const void *)(burn->words + i + 8 * (uint64_t)j);
    burn->sink = sums[0][0] + sums[1][1] + sums[2][2] + sums[3][3];
}

static void *burn_run(void *arg)
{
    struct burn *burn = arg;

    if (burn->words)
        burn_memory(burn);
    else
        burn_fma(burn);
    return NULL;
}

static double burn_ms(struct burn *burns, unsigned n)
{
    double begin = bench_now_ms();

    for (unsigned i = 0; i < n; i++)
        if (pthread_create(&burns[i].thread, NULL, burn_run, &burns[i]))
            bench_die("no thread");
    for (unsigned i = 0; i < n; i++)
        pthread_join(burns[i].thread, NULL);
    return bench_now_ms() - begin;
}

/* -------------------------------------------------------------------------------- figures */

static void put(json_t *limits, const char *name, double value, double spread)
{
    char key[64];

    (void)json_object_set_new(limits, name, json_real(value));
    (void)snprintf(key, sizeof(key), "%s_spread", name);
    (void)json_object_set_new(limits, key, json_real(spread));
}

static void put_runs(json_t *limits, const char *name, const struct bench_runs *runs)
{
    put(limits, name, bench_runs_median(runs), bench_runs_spread(runs));
}

static void measure_read(const struct options *o, json_t *limits)
{
    struct bench_read read = {
        .folder = o->folder, .file_bytes = o->file_bytes, .threads = o->threads, .runs = o->runs};

    bench_read_measure(&read);
    put(limits, "read_gbps", read.plain_gbps, read.plain_spread);
    put(limits, "read_checksum_gbps", read.checksum_gbps, read.checksum_spread);
}

static void measure_memory(const struct options *o, json_t *limits)
{
    struct burn burns[THREADS_MAX];
    struct bench_runs runs = {0};
    uint64_t each = MEM_BYTES / o->threads / 4096 * 4096;
    char *memory = aligned_alloc(4096, each * o->threads);

    if (!memory)
        bench_die("no memory");
    memset(memory, 1, each * o->threads);
    for (unsigned run = 0; run < o->runs; run++) {
        for (unsigned i = 0; i < o->threads; i++)
            burns[i] = (struct burn){.words = (uint64_t *)(void *)(memory + each * i), .n_words = each / 8};
        bench_runs_add(&runs, (double)(each * o->threads) / BENCH_GB / (burn_ms(burns, o->threads) * 1e-3));
    }
    free(memory);
    put_runs(limits, "mem_gbps", &runs);
}

static void measure_fma(const struct options *o, json_t *limits)
{
    struct burn burns[THREADS_MAX];
    struct bench_runs runs = {0};
    int lanes = fma_lanes();
    double flops = 2.0 * 12 * lanes * (double)FMA_ROUNDS * o->threads;

    for (unsigned run = 0; run < o->runs; run++) {
        for (unsigned i = 0; i < o->threads; i++)
            burns[i] = (struct burn){.lanes = lanes};
        bench_runs_add(&runs, flops / 1e9 / (burn_ms(burns, o->threads) * 1e-3));
    }
    put_runs(limits, "fma_gflops", &runs);
}

static void measure_alloc(const struct options *o, json_t *limits)
{
    struct bench_runs runs = {0};

    for (unsigned run = 0; run < o->runs; run++)
        bench_runs_add(&runs,
                       (double)ALLOC_BYTES / BENCH_GB / (bench_alloc_ms(ALLOC_BYTES, o->threads) * 1e-3));
    put_runs(limits, "alloc_gbps", &runs);
}

static void parse(struct options *o, char **arg)
{
    bench_must(mz_folder_cache(o->folder, sizeof(o->folder)), "the cache folder");
    for (; *arg; arg += 2) {
        if (strcmp(*arg, "--folder") == 0 && arg[1] && strlen(arg[1]) < sizeof(o->folder))
            strcpy(o->folder, arg[1]);
        else if (strcmp(*arg, "--threads") == 0)
            o->threads = (unsigned)bench_number(*arg, arg[1], 1, THREADS_MAX);
        else if (strcmp(*arg, "--file-mib") == 0)
            o->file_bytes = (uint64_t)bench_number(*arg, arg[1], 8, 65536) << 20;
        else if (strcmp(*arg, "--runs") == 0)
            o->runs = (unsigned)bench_number(*arg, arg[1], 1, BENCH_RUNS_MAX);
        else
            bench_die("usage: bench_limits [--folder DIR] [--threads N] [--file-mib N] [--runs N]");
    }
    bench_must(mz_folder_make(o->folder), o->folder);
}

int main(int argc, char **argv)
{
    struct options o = {.threads = 2, .runs = 5, .file_bytes = UINT64_C(1) << 30};
    json_t *limits = json_object();

    (void)argc;
    parse(&o, argv + 1);
    measure_read(&o, limits);
    measure_memory(&o, limits);
    measure_fma(&o, limits);
    measure_alloc(&o, limits);
    (void)json_object_set_new(limits, "threads", json_integer(o.threads));
    (void)json_object_set_new(limits, "n", json_integer(o.runs));
    bench_emit("limits", "limits", limits);
    return 0;
}
