/* A model, its context, and time to first token. No state of its own. */
#include "model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define BLOCK_TOKENS 512u
#define SPARE_TOKENS 256u

static void only_errors(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level >= GGML_LOG_LEVEL_ERROR || getenv("MZ_BENCH_LOG"))
        fputs(text, stderr);
}

/* ISO C has no conversion from an object's pointer to a function's. */
#define FETCH(reg, plugin, name)                                                                             \
    (*(void **)&(plugin)->name = ggml_backend_reg_get_proc_address(reg, "mz_" #name))

void bench_plugin_open(const char *path, struct bench_plugin *ret)
{
    llama_log_set(only_errors, NULL);
    ggml_backend_load_all(); /* the CPU, where backends are loadable modules */
    ggml_backend_reg_t reg = path ? ggml_backend_load(path) : NULL;
    if (!reg)
        bench_die("%s cannot be loaded as a ggml backend", path ? path : "no plugin given: it");
    llama_backend_init();
    ret->device = ggml_backend_reg_dev_get(reg, 0);
    if (!FETCH(reg, ret, evict) || !FETCH(reg, ret, evict_to) || !FETCH(reg, ret, restore) ||
        !FETCH(reg, ret, status) || !FETCH(reg, ret, limit) || !FETCH(reg, ret, option_set) ||
        !FETCH(reg, ret, dump))
        bench_die("%s lacks a function of mzcache.h", path);
}

static struct llama_model *load(const struct bench_model_config *config)
{
    ggml_backend_dev_t devices[2] = {config->device, NULL};
    struct llama_model_params params = llama_model_default_params();

    params.devices = devices; /* an empty list: no device but the CPU */
    params.n_gpu_layers = config->device ? 999 : 0;
    struct llama_model *model = llama_model_load_from_file(config->path, params);
    if (!model)
        bench_die("%s cannot be loaded", config->path);
    return model;
}

void bench_model_open(const struct bench_model_config *config, struct bench_model *ret)
{
    struct llama_context_params params = llama_context_default_params();

    *ret = (struct bench_model){.model = load(config)};
    params.n_ctx = config->tokens + SPARE_TOKENS;
    params.n_batch = params.n_ubatch = BLOCK_TOKENS;
    params.n_outputs_max =
        config->outputs ? config->outputs : 2; /* one a sequence; more is hundreds of MiB of scratch */
    params.n_seq_max = 2;                      /* the second is where copies land first */
    params.kv_unified = true;
    params.n_threads = params.n_threads_batch = config->threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.swa_full = config->swa_full;
    ret->ctx = llama_init_from_model(ret->model, params);
    if (!ret->ctx)
        bench_die("no context for %s", config->path);
}

void bench_model_close(struct bench_model *m)
{
    llama_free(m->ctx);
    llama_model_free(m->model);
    free(m->block);
    *m = (struct bench_model){0};
}

/* -------------------------------------------------------------------------------- decoding */

/* The same tokens in every program: behind the bytes and control tokens that vocabularies begin with. */
static llama_token made_up(const struct bench_model *m, uint32_t at)
{
    int32_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(m->model));
    uint32_t room = vocab > 600 ? (uint32_t)vocab - 300 : 1;

    return vocab > 600 ? (llama_token)(300 + at * 2654435761u % room) : (llama_token)(at % 100);
}

static llama_token likeliest(const struct bench_model *m)
{
    const float *logits = llama_get_logits_ith(m->ctx, -1);
    int32_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(m->model)), best = 0;

    if (!logits)
        bench_die("no logits");
    for (int32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static void decode_batch(struct bench_model *m, llama_token *tokens, uint32_t n)
{
    int r = llama_decode(m->ctx, llama_batch_get_one(tokens, (int32_t)n));

    if (r)
        bench_die("decoding %u tokens behind %u failed (%d)", n, m->past, r);
    m->past += n;
}

void bench_model_decode(struct bench_model *m, const llama_token *tokens, uint32_t n)
{
    llama_token batch[BLOCK_TOKENS];

    for (uint32_t done = 0, size; done < n; done += size) {
        size = n - done < BLOCK_TOKENS ? n - done : BLOCK_TOKENS;
        for (uint32_t i = 0; i < size; i++)
            batch[i] = tokens ? tokens[done + i] : made_up(m, m->past + i);
        decode_batch(m, batch, size);
    }
    m->last = likeliest(m);
}

/* -------------------------------------------------------------------------------- filling */

static void save_block(struct bench_model *m, uint32_t tokens)
{
    m->block_tokens = tokens < BLOCK_TOKENS ? tokens : BLOCK_TOKENS;
    bench_model_decode(m, NULL, m->block_tokens);
    m->block_bytes = llama_state_seq_get_size(m->ctx, 0);
    m->block = malloc(m->block_bytes);
    if (!m->block || llama_state_seq_get_data(m->ctx, m->block, m->block_bytes, 0) != m->block_bytes)
        bench_die("the state of the first tokens cannot be read");
}

/* One more copy of the block behind what is there. */
static void append_block(struct bench_model *m)
{
    llama_memory_t memory = llama_get_memory(m->ctx);

    if (llama_state_seq_set_data(m->ctx, m->block, m->block_bytes, 1) == 0)
        bench_die("no room for %u tokens behind %u", m->block_tokens, m->past);
    if (m->past > 0)
        llama_memory_seq_add(memory, 1, 0, -1, (llama_pos)m->past);
    llama_memory_seq_cp(memory, 1, 0, -1, -1);
    llama_memory_seq_rm(memory, 1, -1, -1);
    m->past += m->block_tokens;
}

void bench_model_fill(struct bench_model *m, uint32_t tokens)
{
    if (!m->block)
        save_block(m, tokens);
    if (tokens % m->block_tokens != 0)
        bench_die("a context is filled with multiples of %u tokens", m->block_tokens);
    while (m->past < tokens)
        append_block(m);
}

void bench_model_clear(struct bench_model *m)
{
    llama_memory_clear(llama_get_memory(m->ctx), true);
    m->past = 0;
}

/* -------------------------------------------------------------------------------- measuring */

static void roll_back(struct bench_model *m, uint32_t past)
{
    llama_memory_seq_rm(llama_get_memory(m->ctx), 0, (llama_pos)past, -1);
    m->past = past;
}

double bench_model_ttft_ms(struct bench_model *m)
{
    uint32_t past = m->past;
    double begin = bench_now_ms();

    bench_model_decode(m, NULL, BENCH_QUESTION);
    double ms = bench_now_ms() - begin;
    roll_back(m, past);
    return ms;
}

double bench_model_tps(struct bench_model *m, uint32_t n)
{
    uint32_t past = m->past;
    double begin = bench_now_ms();

    for (uint32_t i = 0; i < n; i++) {
        llama_token token = m->last;
        bench_model_decode(m, &token, 1);
    }
    double ms = bench_now_ms() - begin;
    roll_back(m, past);
    return n / (ms * 1e-3);
}

void bench_forget_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        bench_die("%s cannot be opened", path);
    (void)fdatasync(fd); /* dirty pages are not forgotten */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}
