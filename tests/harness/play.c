/* Decoding, and writing down what came out. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* ---- the log */

void log_add(struct log *log, const char *name, const void *bytes, size_t n)
{
    if (log->n + n > log->room) {
        log->room = 2 * (log->n + n);
        log->bytes = realloc(log->bytes, log->room);
        if (!log->bytes)
            abort();
    }
    if (log->n_marks < sizeof(log->marks) / sizeof(*log->marks)) {
        log->marks[log->n_marks] = log->n;
        snprintf(log->names[log->n_marks++], sizeof(*log->names), "%s", name);
    }
    memcpy(log->bytes + log->n, bytes, n);
    log->n += n;
}

static void print_difference(const struct log *a, const struct log *b, size_t at, const char *what)
{
    size_t entry = 0;
    float x = 0, y = 0;

    while (entry + 1 < a->n_marks && a->marks[entry + 1] <= at)
        entry++;
    size_t place = a->marks[entry] + (at - a->marks[entry]) / 4 * 4;
    memcpy(&x, a->bytes + place, sizeof(x));
    memcpy(&y, b->bytes + place, sizeof(y));
    printf("difference in %s: entry %zu (%s), value %zu: %.9g left alone, %.9g disturbed\n", what, entry,
           a->names[entry], (place - a->marks[entry]) / 4, (double)x, (double)y);
}

int log_compare_begin(const struct log *a, const struct log *b, const char *what)
{
    size_t n = a->n < b->n ? a->n : b->n;

    for (size_t i = 0; i < n; i++) {
        if (a->bytes[i] != b->bytes[i]) {
            print_difference(a, b, i, what);
            return -1;
        }
    }
    return 0;
}

int log_compare(const struct log *a, const struct log *b, const char *what)
{
    if (log_compare_begin(a, b, what))
        return -1;
    if (a->n == b->n)
        return 0;
    printf("difference in %s: %zu bytes left alone, %zu disturbed\n", what, a->n, b->n);
    return -1;
}

void log_free(struct log *log)
{
    free(log->bytes);
    memset(log, 0, sizeof(*log));
}

/* ---- steps */

void fail(struct play *play, const char *format, ...)
{
    va_list args;

    if (play->failed)
        return;
    play->failed = true;
    va_start(args, format);
    printf("failed at step %d: ", play->steps);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

void disturb(struct play *play)
{
    struct mz_report report = {0};

    if (play->failed || play->how != TO_LEVEL)
        return;
    int err = play->world->api.evict_to(play->permyriad, &report);
    if (err)
        fail(play, "evicting to %u gave %d", play->permyriad, err);
    play->disturbed += report.freed_bytes > 0;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static llama_token likeliest(const float *logits, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static void note_logits(struct play *play, const char *name, int seq)
{
    int n = llama_vocab_n_tokens(llama_model_get_vocab(play->model));
    const float *logits = llama_get_logits_ith(play->ctx, -1);

    if (!logits) {
        fail(play, "no logits");
        return;
    }
    log_add(play->log, name, logits, (size_t)n * sizeof(float));
    play->last[seq] = likeliest(logits, n);
}

static void add(struct llama_batch *batch, llama_token token, llama_pos pos, int seq, bool want)
{
    int i = batch->n_tokens++;

    batch->token[i] = token;
    batch->pos[i] = pos;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = seq;
    batch->logits[i] = want;
}

void prompt(struct play *play, int seq, int n)
{
    int words = llama_vocab_n_tokens(llama_model_get_vocab(play->model)) / 2;
    int room = (int)llama_n_batch(play->ctx);

    for (int done = 0; done < n && !play->failed;) {
        struct llama_batch batch = llama_batch_init(room, 0, 1);
        for (; done < n && batch.n_tokens < room; done++)
            add(&batch, (llama_token)(200 + next_random(&play->random) % (uint32_t)(words - 200)),
                play->past[seq]++, seq, done == n - 1);
        disturb(play);
        int rc = llama_decode(play->ctx, batch);
        if (rc)
            fail(play, "decoding a prompt gave %d", rc);
        play->steps++;
        llama_batch_free(batch);
    }
    if (!play->failed)
        note_logits(play, "prompt", seq);
}

void generate(struct play *play, int seq, int n)
{
    for (int i = 0; i < n && !play->failed; i++) {
        struct llama_batch batch = llama_batch_init(1, 0, 1);
        add(&batch, play->last[seq], play->past[seq]++, seq, true);
        disturb(play);
        int rc = llama_decode(play->ctx, batch);
        if (rc)
            fail(play, "decoding a token gave %d", rc);
        play->steps++;
        llama_batch_free(batch);
        if (!play->failed)
            note_logits(play, "token", seq);
    }
}
