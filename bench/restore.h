/* bench_restore: its options, and one function for each thing that it measures. */
#ifndef MZ_BENCH_RESTORE_H
#define MZ_BENCH_RESTORE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "bench.h"
#include "model.h"

#define LEVELS_MAX 16

struct options {
    const char *what, *plugin, *model, *shape, *type, *kv, *folder;
    uint32_t levels[LEVELS_MAX]; /* percent remaining */
    uint32_t n_levels, tokens, runs, limit_percent;
    int threads;
    double read_gbps; /* 0: of this machine */
    bool swa_full;
};

/* A run of the program: options, plugin and the model that is managed. */
struct bench {
    struct options o;
    struct bench_plugin plugin;
    struct bench_model m;
};

/* -------------------------------------------------------------------------------- restore.c */

/* Opens the model on the plugin's device, and on the CPU. */
void open_managed(struct bench *b, struct bench_model *ret);
void open_stock(struct bench *b, struct bench_model *ret);

/* The managed model with a full context that has answered once, so that orders and thread pools are there. */
void open_warm(struct bench *b);

/* Sets an option of the plugin. */
void set_option(struct bench *b, const char *name, const char *value);

/* Evicts down to that many percent. */
struct mz_report evict_to(struct bench *b, uint32_t percent);

/* Brings everything back and waits for it. Milliseconds. */
double restore_all(struct bench *b);

/* What comes back on each path: bytes read from storage, and plain bytes that are decoded from the stack. */
struct paths {
    uint64_t storage_bytes, stack_bytes;
};

/* Plain bytes that are evicted now. */
struct paths evicted_paths(struct bench *b);

/* Bytes that this process caused to be read from storage so far; 0 where the kernel does not count. */
uint64_t storage_read_bytes(void);

/* restore_all(), and what it took. What was read is counted by the kernel where it does so: a chunk that went
 * to storage in encoded form is smaller than what it becomes. */
double restore_counted(struct bench *b, struct paths *ret);

/* The paths' throughputs as the profile measures them on this machine now: one second. */
struct speed {
    struct bench_runs read_gbps, decode_gbps;
};
void measure_speed(struct bench *b, struct speed *speed);

/* The same, or --read-gbps, kept as this machine's profile for the plugin. Before the first eviction. */
void keep_profile(struct bench *b, struct speed *speed);

/* Milliseconds that the paths need alone, at those throughputs. */
double storage_ms(const struct paths *paths, const struct speed *speed);
double stack_ms(const struct paths *paths, const struct speed *speed);

/* {shape, type, ctx, n, spread} and whatever the caller adds. `runs`: of its main figure. */
json_t *new_point(const struct bench *b, const struct bench_runs *runs);
void put_real(json_t *point, const char *key, double value);
void put_bytes(json_t *point, const char *key, uint64_t value);

/* Emits with a key of shape, type, length and the text. */
void emit(const struct bench *b, const char *section, json_t *point, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* -------------------------------------------------------------------------------- what is measured */

void run_restore(struct bench *b); /* restore_levels.c */
void run_orders(struct bench *b);  /* restore_swap.c */
void run_paths(struct bench *b);
void run_rules(struct bench *b);
void run_evict(struct bench *b); /* restore_evict.c */
void run_stream(struct bench *b);
void run_longctx(struct bench *b); /* restore_stock.c */
void run_slot_restore(struct bench *b);
void run_cold(struct bench *b);

#endif
