/* mzCache for programs on libllama: find it in the process, and generate while the model still comes back.
 *
 * Everything here is `static inline`, on top of llama.h and ggml-backend.h of the llama.cpp that the program
 * is built against: nothing has to be linked but what the program links anyway. The plugin must have been
 * loaded (ggml_backend_load_all() with GGML_BACKEND_PATH set, or ggml_backend_load(path)), and the model be
 * put on its device, "MZ0". Without it all still works: there is nothing to restore then. */
#ifndef MZCACHE_LLAMA_H
#define MZCACHE_LLAMA_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml-backend.h"
#include "llama.h"

#include "mzcache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The function of mzcache.h with this name, or NULL when the plugin is not loaded. To be cast to its mz_*_fn
 * type. Any thread, once all backends are loaded. */
static inline void *mz_llama_find(const char *name)
{
    for (size_t i = 0; i < ggml_backend_reg_count(); i++) {
        void *found = ggml_backend_reg_get_proc_address(ggml_backend_reg_get(i), name);
        if (found)
            return found;
    }
    return NULL;
}

/* The device to put a model on (llama_model_params.devices), or NULL when the plugin is not loaded. */
static inline ggml_backend_dev_t mz_llama_device(void)
{
    return ggml_backend_dev_by_name("MZ0");
}

/* Called with each token as soon as it is known; `piece` is its text in UTF-8 (a character may be divided
 * between tokens), not ended by NUL. Returns whether to go on. */
typedef bool (*mz_token_fn)(void *user, llama_token token, const char *piece, size_t piece_bytes);

/* How mz_restore_generate_with() chooses and when it stops. Zeroed: greedily, until the model ends or the
 * context is full. */
struct mz_generate {
    struct llama_sampler *sampler; /* the caller's; NULL: greedy */
    int32_t max_tokens;            /* to generate at most; 0: no such bound */
};

/* What llama_decode() returns, as an errno. */
static inline int mz_llama_error(int32_t rc)
{
    switch (rc) {
    case 0:
        return 0;
    case 1:
        return -ENOSPC;
    case 2:
        return -ECANCELED;
    case -1:
        return -EINVAL;
    default:
        return -EIO;
    }
}

/* Computes the tokens in batches as large as the context takes. */
static inline int mz_llama_prompt(struct llama_context *ctx, const llama_token *tokens, int32_t n)
{
    int32_t most = (int32_t)llama_n_batch(ctx);
    int rc = 0;

    for (int32_t i = 0; i < n && rc == 0; i += most) {
        int32_t count = n - i < most ? n - i : most;
        /* llama_batch_get_one() takes no const pointer, and changes nothing behind it. */
        rc = mz_llama_error(
            llama_decode(ctx, llama_batch_get_one((llama_token *)(uintptr_t)(tokens + i), count)));
    }
    return rc;
}

/* Generates token after token. Returns their number or negative errno. */
static inline int32_t mz_llama_stream(struct llama_context *ctx, struct llama_sampler *sampler,
                                      int32_t max_tokens, mz_token_fn callback, void *user)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(llama_get_model(ctx));
    int32_t n = 0;
    char piece[512];

    while (max_tokens == 0 || n < max_tokens) {
        llama_token token = llama_sampler_sample(sampler, ctx, -1);
        if (llama_vocab_is_eog(vocab, token))
            break;
        int32_t bytes = llama_token_to_piece(vocab, token, piece, (int32_t)sizeof(piece), 0, false);
        n++;
        if (callback && !callback(user, token, piece, bytes > 0 ? (size_t)bytes : 0))
            break;
        int rc = mz_llama_error(llama_decode(ctx, llama_batch_get_one(&token, 1)));
        if (rc == -ENOSPC) /* the context is full: what was generated stands */
            break;
        if (rc < 0)
            return rc;
    }
    return n;
}

/* Begins bringing the model back and computing at the same time: the tokens, which continue what is in
 * sequence 0 of the context, are computed on the layers that are there while the others return in the order
 * in which they are needed; then tokens are generated and handed to `callback` (may be NULL).
 *
 * Returns the number of generated tokens. -EINVAL: no tokens, or some that the model does not have. -ENOSPC:
 * they do not fit into the context. -ECANCELED: the context's abort callback said so. -EIO: computing failed,
 * for instance because something could not be read back; the log names it. After an error the context holds
 * the batches that were computed.
 *
 * Blocks until all is generated. One thread per context at a time, as with llama_decode(). `options` may be
 * NULL. */
static inline int32_t mz_restore_generate_with(struct llama_context *ctx, const llama_token *tokens,
                                               int32_t n, const struct mz_generate *options,
                                               mz_token_fn callback, void *user)
{
    mz_restore_fn restore = (mz_restore_fn)mz_llama_find("mz_restore");
    struct llama_sampler *own = NULL, *sampler = options ? options->sampler : NULL;

    if (!ctx || !tokens || n <= 0)
        return -EINVAL;
    if (!sampler)
        sampler = own = llama_sampler_init_greedy();
    if (!sampler)
        return -ENOMEM;
    /* An error means that no model is on MZ0 or something cannot come back: computing finds out what it
     * needs. */
    if (restore)
        (void)restore(false);
    int32_t rc = mz_llama_prompt(ctx, tokens, n);
    if (rc == 0)
        rc = mz_llama_stream(ctx, sampler, options ? options->max_tokens : 0, callback, user);
    if (own)
        llama_sampler_free(own);
    return rc;
}

/* The same, greedily. */
static inline int32_t mz_restore_generate(struct llama_context *ctx, const llama_token *tokens, int32_t n,
                                          mz_token_fn callback, void *user)
{
    return mz_restore_generate_with(ctx, tokens, n, NULL, callback, user);
}

#ifdef __cplusplus
}
#endif
#endif
