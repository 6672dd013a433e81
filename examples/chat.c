/* A small chat that gives its memory back while nobody looks at it.
 *
 *     chat MODEL.gguf [TOKENS]        at most TOKENS an answer (256)
 *
 * Each line is a question, but for these, which stand for what a window manager would tell a program with a
 * window:
 *
 *     /hide      it is hidden: evict everything
 *     /show      it has the focus again: begin restoring, before the user has finished typing
 *     /status    what is in memory
 *     /quit
 *
 * The conversation survives /hide: the next answer continues it. Loads mzCache from GGML_BACKEND_PATH
 * (mzcache run sets it), and works without it, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mzcache-llama.h"

#define CONTEXT_TOKENS 4096
#define LINE_BYTES     4096

struct chat {
    struct llama_model *model;
    struct llama_context *ctx;
    const struct llama_vocab *vocab;
    int32_t max_tokens;
    bool begun;
};

/* ------------------------------------------------------------------------------------------- the model */

static bool chat_open(struct chat *chat, const char *path)
{
    struct llama_model_params model = llama_model_default_params();
    struct llama_context_params ctx = llama_context_default_params();
    ggml_backend_dev_t devices[2] = {NULL, NULL};

    ggml_backend_load_all();
    devices[0] = mz_llama_device();
    if (devices[0])
        model.devices = devices;
    else
        fprintf(stderr, "chat: mzCache is not loaded; start me with: mzcache run -- chat ...\n");
    chat->model = llama_model_load_from_file(path, model);
    if (!chat->model)
        return false;
    ctx.n_ctx = CONTEXT_TOKENS;
    chat->ctx = llama_init_from_model(chat->model, ctx);
    chat->vocab = llama_model_get_vocab(chat->model);
    return chat->ctx != NULL;
}

static void chat_close(struct chat *chat)
{
    if (chat->ctx)
        llama_free(chat->ctx);
    if (chat->model)
        llama_model_free(chat->model);
}

/* ------------------------------------------------------------------------------------------- answering */

/* The question in the form that the model was trained on. Freed by the caller. */
static char *wrap(const struct chat *chat, const char *question)
{
    const char *template = llama_model_chat_template(chat->model, NULL);
    struct llama_chat_message message = {"user", question};
    size_t size = 2 * strlen(question) + 1024;
    char *text = malloc(size);

    if (!text)
        return NULL;
    int32_t n =
        template ? llama_chat_apply_template(template, &message, 1, true, text, (int32_t)size - 1) : -1;
    if (n < 0 || (size_t)n >= size)
        n = snprintf(text, size, "Question: %s\nAnswer:", question);
    text[n] = '\0';
    return text;
}

static llama_token *tokenize(const struct chat *chat, const char *text, int32_t *ret_n)
{
    int32_t bytes = (int32_t)strlen(text), most = bytes + 8;
    llama_token *tokens = malloc((size_t)most * sizeof(*tokens));

    if (tokens)
        *ret_n = llama_tokenize(chat->vocab, text, bytes, tokens, most, !chat->begun, true);
    return tokens;
}

static bool print_piece(void *user, llama_token token, const char *piece, size_t bytes)
{
    (void)user;
    (void)token;
    (void)fwrite(piece, 1, bytes, stdout);
    return fflush(stdout) == 0;
}

static int answer(struct chat *chat, const char *question)
{
    struct mz_generate options = {NULL, chat->max_tokens};
    int32_t n = 0, rc = -ENOMEM;
    char *text = wrap(chat, question);
    llama_token *tokens = text ? tokenize(chat, text, &n) : NULL;

    if (tokens)
        rc = mz_restore_generate_with(chat->ctx, tokens, n, &options, print_piece, NULL);
    if (rc >= 0)
        chat->begun = true;
    free(tokens);
    free(text);
    (void)printf("\n");
    if (rc < 0)
        fprintf(stderr, "chat: no answer: %s\n",
                rc == -ENOSPC ? "the conversation is too long" : strerror(-rc));
    return rc;
}

/* ------------------------------------------------------------------------------------------------- memory */

static void hide(void)
{
    mz_evict_to_fn evict_to = (mz_evict_to_fn)mz_llama_find("mz_evict_to");
    struct mz_report report;
    int rc = evict_to ? evict_to(0, &report) : -ENODEV;

    if (rc < 0)
        (void)printf("[nothing evicted: %s]\n", strerror(-rc));
    else
        (void)printf("[gave %.1f MiB back in %.0f ms]\n", (double)report.freed_bytes / 1048576, report.ms);
}

static void show(void)
{
    mz_restore_fn restore = (mz_restore_fn)mz_llama_find("mz_restore");

    if (restore)
        (void)restore(false);
    (void)printf("[coming back]\n");
}

static void status(void)
{
    mz_status_fn get = (mz_status_fn)mz_llama_find("mz_status");
    struct mz_state state;

    if (get && get(&state) == 0)
        (void)printf("[%.1f of %.1f MiB in memory]\n", (double)state.remaining_bytes / 1048576,
                     (double)state.total_bytes / 1048576);
    else
        (void)printf("[mzCache holds nothing here]\n");
}

static int talk(struct chat *chat)
{
    char line[LINE_BYTES];
    int rc = 0;

    (void)printf("[/hide, /show, /status, /quit; every other line is a question]\n");
    while (rc >= 0) {
        (void)printf("> ");
        (void)fflush(stdout);
        if (!fgets(line, sizeof(line), stdin))
            break;
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "/quit") == 0)
            break;
        else if (strcmp(line, "/hide") == 0)
            hide();
        else if (strcmp(line, "/show") == 0)
            show();
        else if (strcmp(line, "/status") == 0)
            status();
        else if (*line)
            rc = answer(chat, line);
    }
    return rc;
}

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        (void)fputs(text, stderr);
}

int main(int argc, char **argv)
{
    struct chat chat = {.max_tokens = argc > 2 ? atoi(argv[2]) : 256};
    int rc = -1;

    if (argc < 2 || chat.max_tokens <= 0) {
        fprintf(stderr, "usage: chat MODEL.gguf [TOKENS]\n");
        return 2;
    }
    llama_log_set(quiet, NULL);
    llama_backend_init();
    if (chat_open(&chat, argv[1]))
        rc = talk(&chat);
    else
        fprintf(stderr, "chat: %s cannot be loaded\n", argv[1]);
    chat_close(&chat);
    llama_backend_free();
    return rc < 0 ? 1 : 0;
}
