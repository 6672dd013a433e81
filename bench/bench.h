/* What the programs of the bench share: clock, medians, JSON lines (common.c); what the machine can do at
 * best (io.c); a model with the plugin or without, and a context full of tokens (model.c).
 *
 * The programs are single-threaded but for what they measure, and end at the first error with a message:
 * there is nobody to hand it to. */
#ifndef MZ_BENCH_H
#define MZ_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define BENCH_RUNS_MAX 64
#define BENCH_GB       1e9

/* -------------------------------------------------------------------------------- common.c */

/* Prints "PROGRAM: ..." and exits with 1. */
void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Dies when a call failed: `error` is 0 or a negative errno. */
void bench_must(int error, const char *what);

/* Milliseconds of a clock that never jumps. */
double bench_now_ms(void);

/* The values of repeated runs. */
struct bench_runs {
    double values[BENCH_RUNS_MAX];
    unsigned n;
};

void bench_runs_add(struct bench_runs *runs, double value); /* beyond the room: dropped */
double bench_runs_median(const struct bench_runs *runs);    /* 0 without any */
double bench_runs_spread(const struct bench_runs *runs);    /* largest / smallest; 1 without any */

/* Prints {"section": ..., "key": ..., "point": {...}} as one line and flushes. Takes the reference to
 * `point`. `key` tells the point from all others of the section; a run that was broken off goes on behind the
 * last line. */
void bench_emit(const char *section, const char *key, json_t *point);

/* A number of an option, or dies naming the option. */
double bench_number(const char *option, const char *text, double least, double most);

/* -------------------------------------------------------------------------------- io.c */

/* GB/s of direct sequential reading into fresh huge pages by `threads` threads, several requests each in
 * flight, from a file without a name in `folder` that is written first. Memory is taken anew for every 8 MiB,
 * which counts; giving it back does not. Each result is the median of `runs`. With `checksum` every byte is
 * hashed as well. */
struct bench_read {
    const char *folder;
    uint64_t file_bytes;
    unsigned threads, runs;
    double plain_gbps, checksum_gbps, plain_spread, checksum_spread; /* out */
};
void bench_read_measure(struct bench_read *read);

/* Milliseconds for backing that many fresh bytes with huge pages, by `threads` threads at once. The memory is
 * given back. */
double bench_alloc_ms(uint64_t bytes, unsigned threads);

#endif
