/* The scripts: what programs do with a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static void chat(struct play *play)
{
    prompt(play, 0, 270);
    generate(play, 0, 5);
    prompt(play, 0, 20);
    generate(play, 0, 3);
}

static void short_chat(struct play *play)
{
    prompt(play, 0, 40);
    generate(play, 0, 4);
}

/* The beginning is dropped and the rest moves down: the cache is turned in place before the next batch. */
static void shift(struct play *play)
{
    llama_memory_t memory = llama_get_memory(play->ctx);

    prompt(play, 0, 300);
    for (int i = 0; i < 2; i++) {
        llama_memory_seq_rm(memory, 0, 8, 40);
        llama_memory_seq_add(memory, 0, 40, -1, -32);
        play->past[0] -= 32;
        disturb(play);
        generate(play, 0, 3);
    }
}

static void copy(struct play *play)
{
    prompt(play, 0, 270);
    generate(play, 0, 2);
    disturb(play);
    llama_memory_seq_cp(llama_get_memory(play->ctx), 0, 1, -1, -1);
    play->past[1] = play->past[0];
    play->last[1] = play->last[0];
    prompt(play, 1, 10);
    generate(play, 1, 3);
    generate(play, 0, 3);
}

/* Two conversations take turns. */
static void turns(struct play *play)
{
    prompt(play, 0, 100);
    prompt(play, 1, 120);
    for (int i = 0; i < 3; i++) {
        generate(play, 0, 2);
        generate(play, 1, 2);
    }
    llama_memory_seq_rm(llama_get_memory(play->ctx), 0, -1, -1);
    play->past[0] = 0;
    prompt(play, 0, 50);
    generate(play, 0, 2);
    generate(play, 1, 2);
}

/* Saved, cleared, loaded again: of the whole context, then of one sequence. */
static void state(struct play *play)
{
    llama_memory_t memory = llama_get_memory(play->ctx);

    prompt(play, 0, 270);
    disturb(play);
    size_t n = llama_state_get_size(play->ctx);
    uint8_t *bytes = malloc(n);
    n = llama_state_get_data(play->ctx, bytes, n);
    generate(play, 0, 2);
    play->past[0] -= 2;
    llama_memory_clear(memory, true);
    disturb(play);
    if (llama_state_set_data(play->ctx, bytes, n) == 0)
        fail(play, "the state cannot be loaded");
    free(bytes);
    prompt(play, 0, 10);
    generate(play, 0, 2);

    n = llama_state_seq_get_size(play->ctx, 0);
    bytes = malloc(n);
    disturb(play);
    n = llama_state_seq_get_data(play->ctx, bytes, n, 0);
    log_add(play->log, "state", bytes, n);
    llama_memory_seq_rm(memory, 0, -1, -1);
    disturb(play);
    if (llama_state_seq_set_data(play->ctx, bytes, n, 1) == 0)
        fail(play, "the sequence cannot be loaded");
    free(bytes);
    play->past[1] = play->past[0];
    play->last[1] = play->last[0];
    generate(play, 1, 3);
}

static void clear(struct play *play)
{
    prompt(play, 0, 270);
    disturb(play);
    llama_memory_clear(llama_get_memory(play->ctx), true);
    play->past[0] = 0;
    disturb(play);
    chat(play);
}

/* An adapter comes and goes. */
static void lora(struct play *play)
{
    float scale = 1.0f;

    prompt(play, 0, 100);
    llama_set_adapters_lora(play->ctx, &play->world->lora, 1, &scale);
    generate(play, 0, 3);
    prompt(play, 0, 30);
    llama_set_adapters_lora(play->ctx, NULL, 0, NULL);
    generate(play, 0, 3);
}

/* Two models in turn; the second one has a context of its own. */
static void both(struct play *play)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 512;
    params.n_batch = params.n_ubatch = 64;
    params.n_threads = params.n_threads_batch = play->world->threads;
    struct play other = *play;
    other.model = play->world->second ? play->world->second : play->model;
    other.ctx = llama_init_from_model(other.model, params);
    if (!other.ctx) {
        fail(play, "no second context");
        return;
    }
    for (int i = 0; i < 3; i++) {
        prompt(play, 0, 40);
        prompt(&other, 0, 30);
        generate(play, 0, 2);
        generate(&other, 0, 2);
    }
    llama_free(other.ctx);
    play->failed = play->failed || other.failed;
    play->disturbed = other.disturbed;
    generate(play, 0, 2);
}

/* A program that looks at the nodes: each view of the graph is computed alone, and any tensor may be read
 * between. */
static bool look(struct ggml_tensor *tensor, bool ask, void *user)
{
    struct play *play = *(struct play **)user;
    static _Thread_local char bytes[4096];
    size_t n = ggml_nbytes(tensor);

    if (!play)
        return !ask;
    if (ask)
        return strncmp(tensor->name, "ffn_out", 7) == 0 || strncmp(tensor->name, "l_out", 5) == 0;
    n = n < sizeof(bytes) ? n : sizeof(bytes);
    disturb(play);
    ggml_backend_tensor_get(tensor, bytes, 0, n);
    log_add(play->log, tensor->name, bytes, n);
    if (tensor->src[1] && tensor->src[1]->buffer) {
        size_t m = ggml_nbytes(tensor->src[1]);
        m = m < sizeof(bytes) ? m : sizeof(bytes);
        ggml_backend_tensor_get(tensor->src[1], bytes, 0, m);
        log_add(play->log, "src", bytes, m);
    }
    return true;
}

static struct play *looking; /* the play of the context with a callback; one at a time */

static void params_callback(struct llama_context_params *params)
{
    params->cb_eval = look;
    params->cb_eval_user_data = &looking;
}

static void callback(struct play *play)
{
    looking = play;
    prompt(play, 0, 40);
    generate(play, 0, 2);
    looking = NULL;
}

static void params_no_flash(struct llama_context_params *params)
{
    params->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
}

static void params_no_flash_two(struct llama_context_params *params)
{
    params_no_flash(params);
    params->n_seq_max = 2;
    params->kv_unified = true;
}

static void params_q8(struct llama_context_params *params)
{
    params->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params->type_k = params->type_v = GGML_TYPE_Q8_0;
}

static void params_unified(struct llama_context_params *params)
{
    params->n_seq_max = 2;
    params->kv_unified = true;
}

static void params_streams(struct llama_context_params *params)
{
    params->n_seq_max = 2;
    params->kv_unified = false;
    params->n_ctx = 1024;
}

static void params_no_offload(struct llama_context_params *params)
{
    params->offload_kqv = false;
}

static void params_embeddings(struct llama_context_params *params)
{
    params->embeddings = true;
    params->pooling_type = LLAMA_POOLING_TYPE_NONE;
}

const struct scenario scenarios[] = {
    {.name = "chat", .script = chat},
    {.name = "fa-off", .script = chat, .params = params_no_flash},
    {.name = "kv-q8_0", .script = chat, .params = params_q8},
    {.name = "shift", .script = shift, .needs_shift = true},
    {.name = "shift-q8_0", .script = shift, .params = params_q8, .needs_shift = true},
    {.name = "copy", .script = copy, .params = params_unified},
    {.name = "copy-streams", .script = copy, .params = params_streams},
    {.name = "turns", .script = turns, .params = params_unified},
    {.name = "turns-streams", .script = turns, .params = params_streams},
    {.name = "turns-fa-off", .script = turns, .params = params_no_flash_two},
    {.name = "state", .script = state, .params = params_unified},
    {.name = "state-fa-off", .script = state, .params = params_no_flash_two},
    {.name = "clear", .script = clear},
    {.name = "callback", .script = callback, .params = params_callback},
    {.name = "no-kv-offload", .script = short_chat, .params = params_no_offload},
    {.name = "embeddings", .script = short_chat, .params = params_embeddings},
    {.name = "half", .script = short_chat, .half = true},
    {.name = "no-mmap", .script = chat, .no_mmap = true},
    {.name = "two-models", .script = both},
    {.name = "lora", .script = lora, .lora = true},
    {.name = "limit", .script = chat, .limit = true},
    {.name = "limit-fa-off", .script = chat, .params = params_no_flash, .limit = true},
    {.name = NULL},
};
