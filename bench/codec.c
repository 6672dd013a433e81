// clang-format off
/* bench_codec: what each codec costs on one core, per instruction set, as the JSON array `swap.codecs`.
 *
 *   encode_gbps, decode_gbps   plain (fp16) bytes a second, source in cache, destination recycled; hash included
 *   fresh_gbps                 decoding into huge pages that were never touched
 *   copy_gbps                  a plain copy of the same bytes into such pages: what fresh_gbps is measured against
 *   saved                      share of the plain bytes that the image does not need
 *
 * All are medians; n and spread (slowest / fastest of decode_gbps) stand beside them.
 *
 *   bench_codec [--chunk-kib N] [--fresh-mib N] [--runs N] */
// clang-format on
#include "codec/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE_BYTES (2u << 20)
#define RUNS_MAX   101u

struct bench {
    uint64_t chunk_bytes; /* 512 KiB: 256 tokens of 1024 elements */
    uint64_t fresh_bytes;
    unsigned runs;
    uint8_t *plain, *image, *out; /* chunk_bytes; the bound of it; chunk_bytes */
};

static const struct mz_chunk_key key = {.layer = 3, .chunk = 1, .row_elements = 1024};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned n, double *ret_spread)
{
    qsort(values, n, sizeof(*values), compare);
    if (ret_spread)
        *ret_spread = values[n - 1] / values[0];
    return values[n / 2];
}

static void die(const char *what)
{
    fprintf(stderr, "bench_codec: %s\n", what);
    exit(1);
}

/* Finite fp16 of magnitudes 2^-6 to 2^2, as K and V have them. */
static void fill(uint8_t *dst, uint64_t bytes)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint64_t i = 0; i + 1 < bytes; i += 2) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        uint16_t half = (uint16_t)((state & 0x83ffu) | ((9u + (state >> 20) % 8u) << 10));
        memcpy(dst + i, &half, sizeof(half));
    }
}

static uint64_t encode(const struct bench *bench, const struct mz_codec *codec)
{
    uint64_t bytes = 0;
    if (mz_codec_encode(codec, &key, bench->plain, bench->chunk_bytes, bench->image,
                        mz_codec_bound(codec, bench->chunk_bytes), &bytes) != 0)
        die("encoding failed");
    return bytes;
}

static void decode(const struct bench *bench, uint64_t image_bytes, uint8_t *dst)
{
    if (mz_codec_decode(&key, bench->image, image_bytes, dst, bench->chunk_bytes) != 0)
        die("decoding failed");
}

/* A run is as many chunks as make 64 MiB, so that the clock's cost vanishes. */
static unsigned chunks_per_run(const struct bench *bench)
{
    uint64_t chunks = (64u << 20) / bench->chunk_bytes;
    return chunks ? (unsigned)chunks : 1;
}

static double encode_gbps(const struct bench *bench, const struct mz_codec *codec)
{
    double values[RUNS_MAX];
    const unsigned chunks = chunks_per_run(bench);
    for (unsigned r = 0; r < bench->runs; r++) {
        double start = now_s();
        for (unsigned i = 0; i < chunks; i++)
            encode(bench, codec);
        values[r] = (double)(chunks * bench->chunk_bytes) / (now_s() - start) / 1e9;
    }
    return median(values, bench->runs, NULL);
}

static double decode_gbps(const struct bench *bench, uint64_t image_bytes, double *ret_spread)
{
    double values[RUNS_MAX];
    const unsigned chunks = chunks_per_run(bench);
    for (unsigned r = 0; r < bench->runs; r++) {
        double start = now_s();
        for (unsigned i = 0; i < chunks; i++)
            decode(bench, image_bytes, bench->out);
        values[r] = (double)(chunks * bench->chunk_bytes) / (now_s() - start) / 1e9;
    }
    return median(values, bench->runs, ret_spread);
}

static uint8_t *map_fresh(uint64_t bytes, uint8_t **ret_aligned)
{
    uint8_t *base =
        mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        die("no memory");
    *ret_aligned = (uint8_t *)(((uintptr_t)base + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    madvise(*ret_aligned, bytes, MADV_HUGEPAGE);
    return base;
}

static double fresh_run(const struct bench *bench, uint64_t image_bytes, bool is_copy)
{
    uint8_t *dst, *base = map_fresh(bench->fresh_bytes, &dst);
    double start = now_s();
    for (uint64_t at = 0; at + bench->chunk_bytes <= bench->fresh_bytes; at += bench->chunk_bytes) {
        if (is_copy)
            memcpy(dst + at, bench->plain, bench->chunk_bytes);
        else
            decode(bench, image_bytes, dst + at);
    }
    double took = now_s() - start;
    munmap(base, bench->fresh_bytes + HUGE_BYTES);
    return (double)(bench->fresh_bytes / bench->chunk_bytes * bench->chunk_bytes) / took / 1e9;
}

/* The two are interleaved: what else runs on the machine meets both. */
static void fresh_gbps(const struct bench *bench, uint64_t image_bytes, double *ret_decode, double *ret_copy)
{
    double decodes[RUNS_MAX], copies[RUNS_MAX];
    for (unsigned r = 0; r < bench->runs; r++) {
        decodes[r] = fresh_run(bench, image_bytes, false);
        copies[r] = fresh_run(bench, image_bytes, true);
    }
    *ret_decode = median(decodes, bench->runs, NULL);
    *ret_copy = median(copies, bench->runs, NULL);
}

static void report(const struct bench *bench, const struct mz_codec *codec, const char *separator)
{
    double spread, fresh, copy;
    uint64_t image_bytes = encode(bench, codec);
    double encoding = encode_gbps(bench, codec);
    image_bytes = encode(bench, codec);
    double decoding = decode_gbps(bench, image_bytes, &spread);
    fresh_gbps(bench, image_bytes, &fresh, &copy);
    printf("%s{\"codec\": \"%s\", \"preset\": null, \"isa\": \"%s\", \"encode_gbps\": %.2f, \"decode_gbps\": "
           "%.2f, "
           "\"fresh_gbps\": %.2f, \"copy_gbps\": %.2f, \"saved\": %.4f, \"n\": %u, \"spread\": %.2f}",
           separator, codec->name, mz_codec_isa(), encoding, decoding, fresh, copy,
           1.0 - (double)image_bytes / (double)bench->chunk_bytes, bench->runs, spread);
    fflush(stdout);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text ? text : "", &end, 10);
    if (!text || end == text || *end || value < least || value > most)
        die("usage: bench_codec [--chunk-kib 1..1048576] [--fresh-mib 1..65536] [--runs 1..101]");
    return value;
}

static void parse(struct bench *bench, char **arg)
{
    for (; *arg; arg += 2) {
        if (strcmp(*arg, "--chunk-kib") == 0)
            bench->chunk_bytes = number(arg[1], 1, 1u << 20) << 10;
        else if (strcmp(*arg, "--fresh-mib") == 0)
            bench->fresh_bytes = number(arg[1], 1, 1u << 16) << 20;
        else if (strcmp(*arg, "--runs") == 0)
            bench->runs = (unsigned)number(arg[1], 1, RUNS_MAX);
        else
            number(NULL, 0, 0);
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.chunk_bytes = 512u << 10, .fresh_bytes = 256u << 20, .runs = 7};
    const char *separator = "[\n  ";
    (void)argc;
    parse(&bench, argv + 1);
    bench.plain = malloc(bench.chunk_bytes);
    bench.image = malloc(mz_codec_bound(mz_codec_find("q8"), bench.chunk_bytes));
    bench.out = malloc(bench.chunk_bytes);
    if (!bench.plain || !bench.image || !bench.out)
        die("no memory");
    fill(bench.plain, bench.chunk_bytes);
    for (unsigned i = 0; mz_codec_isa_at(i); i++) {
        if (mz_codec_isa_select(mz_codec_isa_at(i)) != 0)
            continue;
        for (unsigned c = 0; mz_codec_at(c); c++, separator = ",\n  ")
            report(&bench, mz_codec_at(c), separator);
    }
    printf("\n]\n");
    free(bench.plain);
    free(bench.image);
    free(bench.out);
    return 0;
}
