// clang-format off
/* bench_quality: what evicting and restoring KV costs in quality, on a real model and a long text. JSON lines.
 *
 *   bench_quality --plugin LIBGGML-MZ.SO --model FILE.GGUF --text FILE [OPTION...]
 *
 *   --name NAME                    how the points call the model
 *   --variants exact:1,q8:1,q8:50  how KV is kept, and how often it is evicted and restored; single:0 is the control:
 *                                  nothing is evicted, but the context is decoded token by token instead of at once
 *   --context N, --eval N          tokens decoded before that, and scored after it (512, 256)
 *   --first N, --windows N         which pieces of so many tokens are taken from the text, as far as it goes (0, 8)
 *   --threads N, --swa-full
 *
 * Each window is decoded once without any eviction, and once for each variant; a line is printed for each as soon as it is known,
 * and windows add up. Scored are the tokens behind the evicted context:
 *   tokens, nll, nll_ref   how many; the sums of -log(probability) of the tokens of the text, in the variant and in the first pass
 *   kld                    sum of the divergences of the variant's distributions from the first pass's, in nats
 *   agree                  tokens of which both find the same one likeliest
 *   lossy_share            share of the context's KV that passed through a lossy codec
 *   logits                 a hash of all logits */
// clang-format on
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bench.h"
#include "model.h"

#define VARIANTS_MAX 8

struct variant {
    char kv[16];
    uint32_t cycles;
};

/* What a pass over one window gave. */
struct score {
    double nll, kld; /* sums over the tokens */
    uint32_t agree;
    double lossy_share;
    uint64_t hash; /* of all logits so far */
};

struct options {
    const char *plugin, *model, *text, *name, *variants;
    uint32_t context, eval, first, windows;
    int threads;
    bool swa_full;
};

struct bench {
    struct options o;
    struct bench_plugin plugin;
    struct bench_model m;
    struct variant variants[VARIANTS_MAX];
    unsigned n_variants;
    llama_token *tokens; /* of the whole text */
    uint32_t n_tokens;
    uint32_t vocab;
    float *logits; /* of the first pass over the window, eval * vocab */
    double nll_ref;
};

/* -------------------------------------------------------------------------------- text */

static char *read_text(const char *path, size_t *ret_length)
{
    FILE *file = fopen(path, "re");
    size_t room = 0, length = 0, n;
    char *text = NULL;

    if (!file)
        bench_die("%s cannot be read", path);
    do {
        room += 1 << 20;
        text = realloc(text, room);
        if (!text)
            bench_die("no memory");
        n = fread(text + length, 1, room - length, file);
        length += n;
    } while (n > 0 && length < (8u << 20));
    fclose(file);
    *ret_length = length;
    return text;
}

static void tokenize(struct bench *b)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(b->m.model);
    size_t length;
    char *text = read_text(b->o.text, &length);
    uint32_t window = b->o.context + b->o.eval;

    b->vocab = (uint32_t)llama_vocab_n_tokens(vocab);
    b->tokens = calloc(length + 1, sizeof(*b->tokens));
    if (!b->tokens)
        bench_die("no memory");
    int32_t n = llama_tokenize(vocab, text, (int32_t)length, b->tokens, (int32_t)length + 1, true, false);
    free(text);
    if (n <= (int32_t)window)
        bench_die("%s has %d tokens, fewer than a window", b->o.text, n);
    b->n_tokens = (uint32_t)n;
    if (b->o.first + b->o.windows > (b->n_tokens - 1) / window)
        bench_die("%s has %u windows, fewer than asked for", b->o.text, (b->n_tokens - 1) / window);
}

/* -------------------------------------------------------------------------------- scoring */

/* The logarithm of the sum of all exponentials: what turns logits into logarithms of probabilities. */
static double log_sum(const float *logits, uint32_t n, uint32_t *ret_best)
{
    uint32_t best = 0;
    double sum = 0;

    for (uint32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)(logits[i] - logits[best]));
    *ret_best = best;
    return (double)logits[best] + log(sum);
}

static void score_token(const struct bench *b, struct score *score, uint32_t at, llama_token target)
{
    const float *ref = b->logits + (size_t)at * b->vocab, *row = llama_get_logits_ith(b->m.ctx, (int32_t)at);
    uint32_t ref_best, best;

    if (!row)
        bench_die("no logits");
    double ref_sum = log_sum(ref, b->vocab, &ref_best), sum = log_sum(row, b->vocab, &best), kld = 0;
    for (uint32_t i = 0; i < b->vocab; i++) {
        double p = (double)ref[i] - ref_sum;
        kld += exp(p) * (p - ((double)row[i] - sum));
    }
    score->nll += sum - (double)row[target];
    score->kld += kld;
    score->agree += best == ref_best;
    score->hash = XXH3_64bits_withSeed(row, b->vocab * sizeof(*row), score->hash);
}

/* -------------------------------------------------------------------------------- passes */

static void decode(struct bench *b, const llama_token *tokens, uint32_t n, llama_pos from, bool all)
{
    struct llama_batch batch = llama_batch_init((int32_t)n, 0, 1);

    batch.n_tokens = (int32_t)n;
    for (uint32_t i = 0; i < n; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = from + (llama_pos)i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = all || i + 1 == n;
    }
    if (llama_decode(b->m.ctx, batch))
        bench_die("decoding failed");
    llama_batch_free(batch);
}

/* Each window is a text of its own, so it begins as texts begin for this model. The rest comes `step` tokens at a time. */
static void decode_context(struct bench *b, const llama_token *tokens, uint32_t step)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(b->m.model);
    llama_token first = llama_vocab_get_add_bos(vocab) ? llama_vocab_bos(vocab) : tokens[0];

    bench_model_clear(&b->m);
    decode(b, &first, 1, 0, false);
    for (uint32_t at = 1; at < b->o.context; at += step) {
        uint32_t left = b->o.context - at;
        decode(b, tokens + at, left < step ? left : step, (llama_pos)at, false);
    }
}

static double lossy_share(struct bench *b)
{
    char *text = NULL;

    bench_must(b->plugin.dump(&text), "dump");
    json_t *all = json_loads(text, 0, NULL), *kv = json_object_get(json_object_get(all, "kinds"), "kv");
    json_t *lossy = json_object_get(kv, "lossy_bytes"), *total = json_object_get(kv, "total_bytes");
    if (!json_is_integer(lossy) || !json_is_integer(total))
        bench_die("the dump does not say what is lossy");
    double share =
        json_integer_value(total) ? (double)json_integer_value(lossy) / (double)json_integer_value(total) : 0;
    json_decref(all);
    free(text);
    return share;
}

static void pass_reference(struct bench *b, const llama_token *tokens)
{
    uint32_t best;

    b->nll_ref = 0;
    decode_context(b, tokens, b->o.context);
    decode(b, tokens + b->o.context, b->o.eval, (llama_pos)b->o.context, true);
    for (uint32_t i = 0; i < b->o.eval; i++) {
        const float *row = llama_get_logits_ith(b->m.ctx, (int32_t)i);
        memcpy(b->logits + (size_t)i * b->vocab, row, b->vocab * sizeof(*row));
        b->nll_ref += log_sum(row, b->vocab, &best) - (double)row[tokens[b->o.context + i + 1]];
    }
}

static void pass_variant(struct bench *b, const struct variant *v, const llama_token *tokens,
                         struct score *ret)
{
    bool single = strcmp(v->kv, "single") == 0;

    *ret = (struct score){0};
    bench_must(b->plugin.option_set("kv", single ? "exact" : v->kv), v->kv);
    decode_context(b, tokens, single ? 1 : b->o.context);
    for (uint32_t cycle = 0; cycle < v->cycles; cycle++) {
        bench_must(b->plugin.evict_to(0, NULL), "evicting");
        bench_must(b->plugin.restore(true), "restoring");
    }
    ret->lossy_share = lossy_share(b);
    decode(b, tokens + b->o.context, b->o.eval, (llama_pos)b->o.context, true);
    for (uint32_t i = 0; i < b->o.eval; i++)
        score_token(b, ret, i, tokens[b->o.context + i + 1]);
}

static void emit_score(const struct bench *b, const struct variant *v, uint32_t window,
                       const struct score *score)
{
    char key[256], hash[17];
    json_t *point = json_pack("{ss ss si si si}", "model", b->o.name, "codec", v->kv, "cycles",
                              (int)v->cycles, "window", (int)window, "tokens", (int)b->o.eval);

    (void)snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)score->hash);
    (void)json_object_set_new(point, "nll", json_real(score->nll));
    (void)json_object_set_new(point, "nll_ref", json_real(b->nll_ref));
    (void)json_object_set_new(point, "kld", json_real(score->kld));
    (void)json_object_set_new(point, "agree", json_integer(score->agree));
    (void)json_object_set_new(point, "lossy_share", json_real(score->lossy_share));
    (void)json_object_set_new(point, "logits", json_string(hash));
    (void)snprintf(key, sizeof(key), "%s/%s/%u/%u", b->o.name, v->kv, v->cycles, window);
    bench_emit("quality", key, point);
}

static void score_window(struct bench *b, uint32_t window)
{
    const llama_token *tokens = b->tokens + (size_t)window * (b->o.context + b->o.eval);
    struct score score;

    pass_reference(b, tokens);
    for (unsigned i = 0; i < b->n_variants; i++) {
        pass_variant(b, &b->variants[i], tokens, &score);
        emit_score(b, &b->variants[i], window, &score);
    }
}

/* -------------------------------------------------------------------------------- options */

static void parse_variants(struct bench *b)
{
    char copy[256], *rest = copy;

    if (strlen(b->o.variants) >= sizeof(copy))
        bench_die("--variants is too long");
    strcpy(copy, b->o.variants);
    for (char *word; (word = strsep(&rest, ",")) != NULL; b->n_variants++) {
        char *colon = strchr(word, ':');
        if (b->n_variants == VARIANTS_MAX || !colon || colon - word >= (ptrdiff_t)sizeof(b->variants[0].kv))
            bench_die("--variants wants at most %d of KV:CYCLES", VARIANTS_MAX);
        memcpy(b->variants[b->n_variants].kv, word, (size_t)(colon - word));
        b->variants[b->n_variants].cycles = (uint32_t)bench_number("--variants", colon + 1, 0, 100000);
    }
}

static void parse(struct options *o, char **arg)
{
    for (; *arg; arg++) {
        const char *value = arg[1];
        if (strcmp(*arg, "--swa-full") == 0) {
            o->swa_full = true;
            continue;
        }
        if (strcmp(*arg, "--plugin") == 0)
            o->plugin = value;
        else if (strcmp(*arg, "--model") == 0)
            o->model = value;
        else if (strcmp(*arg, "--text") == 0)
            o->text = value;
        else if (strcmp(*arg, "--name") == 0)
            o->name = value;
        else if (strcmp(*arg, "--variants") == 0)
            o->variants = value;
        else if (strcmp(*arg, "--context") == 0)
            o->context = (uint32_t)bench_number(*arg, value, 2, 512);
        else if (strcmp(*arg, "--eval") == 0)
            o->eval = (uint32_t)bench_number(*arg, value, 1, 512);
        else if (strcmp(*arg, "--first") == 0)
            o->first = (uint32_t)bench_number(*arg, value, 0, 10000);
        else if (strcmp(*arg, "--windows") == 0)
            o->windows = (uint32_t)bench_number(*arg, value, 1, 10000);
        else if (strcmp(*arg, "--threads") == 0)
            o->threads = (int)bench_number(*arg, value, 1, 64);
        else
            bench_die("%s: no such option (quality.c lists them)", *arg);
        if (!*++arg)
            bench_die("an option lacks its value");
    }
    if (!o->plugin || !o->model || !o->text || !o->name || !o->variants)
        bench_die("--plugin, --model and --text are needed");
}

int main(int argc, char **argv)
{
    struct bench b = {.o = {.name = "?",
                            .variants = "exact:1,q8:1,q8:50",
                            .context = 512,
                            .eval = 256,
                            .windows = 8,
                            .threads = 2}};

    (void)argc;
    parse(&b.o, argv + 1);
    parse_variants(&b);
    bench_plugin_open(b.o.plugin, &b.plugin);
    struct bench_model_config config = {.path = b.o.model,
                                        .device = b.plugin.device,
                                        .tokens = 1024,
                                        .outputs = b.o.eval,
                                        .threads = b.o.threads,
                                        .swa_full = b.o.swa_full};
    bench_model_open(&config, &b.m);
    bench_must(b.plugin.option_set("clean", "off"), "clean");
    tokenize(&b);
    b.logits = calloc((size_t)b.o.eval * b.vocab, sizeof(*b.logits));
    if (!b.logits)
        bench_die("no memory");
    for (uint32_t window = b.o.first; window < b.o.first + b.o.windows; window++)
        score_window(&b, window);
    free(b.logits);
    free(b.tokens);
    bench_model_close(&b.m);
    return 0;
}
