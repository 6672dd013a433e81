/* A model on libllama, with the plugin or on stock ggml, and a context that is filled to a length.
 *
 * Needs llama.h and ggml-backend.h. All calls block, and end the program when something fails. */
#ifndef MZ_BENCH_MODEL_H
#define MZ_BENCH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ggml-backend.h>
#include <llama.h>

#include "mzcache.h"

/* How many tokens the question has whose first answer is waited for. */
#define BENCH_QUESTION 8

/* The functions of the plugin, fetched by name, and its device. */
struct bench_plugin {
    ggml_backend_dev_t device;
    mz_evict_fn evict;
    mz_evict_to_fn evict_to;
    mz_restore_fn restore;
    mz_status_fn status;
    mz_limit_fn limit;
    mz_option_set_fn option_set;
    mz_dump_fn dump;
};

struct bench_model {
    struct llama_model *model;
    struct llama_context *ctx;
    uint32_t past;    /* tokens in the cache */
    llama_token last; /* the likeliest after the last decode */
    uint8_t *block;   /* state of the first tokens, of which a long context is made */
    size_t block_bytes;
    uint32_t block_tokens;
};

/* Loads the plugin at `path` and starts libllama. */
void bench_plugin_open(const char *path, struct bench_plugin *ret);

/* What bench_model_open() needs. device NULL: stock, on the CPU. */
struct bench_model_config {
    const char *path;
    ggml_backend_dev_t device;
    uint32_t tokens;  /* longest content of the context; there is room for 256 more */
    uint32_t outputs; /* tokens of a batch whose logits are wanted; 0: the last only */
    int threads;
    bool swa_full;
};

void bench_model_open(const struct bench_model_config *config, struct bench_model *ret);
void bench_model_close(struct bench_model *m);

/* Decodes n tokens, which continue the sequence; `tokens` NULL: made-up ones. Logits are kept of the last. */
void bench_model_decode(struct bench_model *m, const llama_token *tokens, uint32_t n);

/* Fills the empty context with `tokens` tokens as if they had been decoded. The first 512 are; the rest are
 * copies of their state at later positions, so that K and V are of the right shape and distribution and a
 * long context takes seconds. Rotating the copies is left to the first decode. Again after
 * bench_model_clear(): no decoding at all. */
void bench_model_fill(struct bench_model *m, uint32_t tokens);

/* Empties the context: its memory goes. */
void bench_model_clear(struct bench_model *m);

/* Milliseconds from a question of BENCH_QUESTION tokens to the first token of the answer. The context is as
 * before then. */
double bench_model_ttft_ms(struct bench_model *m);

/* Tokens a second while generating n tokens one by one. The context is as before then. */
double bench_model_tps(struct bench_model *m, uint32_t n);

/* Forgets what the page cache holds of a file that nobody maps. */
void bench_forget_file(const char *path);

#endif
