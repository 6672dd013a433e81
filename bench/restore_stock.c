/* Stock llama.cpp: beside the plugin with nothing evicted, and what its users can do instead of evicting. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "restore.h"

#define LONG_TOKENS 8u

/* -------------------------------------------------------------------------------- long contexts */

/* Both models are loaded and answer in turn. */
void run_longctx(struct bench *b)
{
    struct bench_runs ttft[2] = {{{0}, 0}}, tps[2] = {{{0}, 0}};
    struct bench_model stock;
    struct bench_model *models[2] = {&stock, &b->m};

    open_stock(b, &stock);
    bench_model_fill(&stock, b->o.tokens);
    (void)bench_model_ttft_ms(&stock);
    open_warm(b);
    for (uint32_t run = 0; run < b->o.runs; run++) {
        for (int i = 0; i < 2; i++) {
            bench_runs_add(&ttft[i], bench_model_ttft_ms(models[i]));
            bench_runs_add(&tps[i], bench_model_tps(models[i], LONG_TOKENS));
        }
    }
    json_t *point = new_point(b, &ttft[1]);
    put_real(point, "stock_ttft_ms", bench_runs_median(&ttft[0]));
    put_real(point, "mz_ttft_ms", bench_runs_median(&ttft[1]));
    put_real(point, "stock_tps", bench_runs_median(&tps[0]));
    put_real(point, "mz_tps", bench_runs_median(&tps[1]));
    emit(b, "longctx", point, "longctx");
    bench_model_close(&b->m);
    bench_model_close(&stock);
}

/* -------------------------------------------------------------------------------- starting again */

static void emit_baseline(struct bench *b, const char *name, const struct bench_runs *runs)
{
    json_t *point = new_point(b, runs);

    (void)json_object_set_new(point, "baseline", json_string(name));
    put_bytes(point, "remaining", 0);
    put_real(point, "ttft_ms", bench_runs_median(runs));
    emit(b, "baselines", point, "%s", name);
}

static void save_state(struct bench *b, const char *path)
{
    struct bench_model m;
    llama_token *tokens = calloc(b->o.tokens, sizeof(*tokens));

    open_stock(b, &m);
    bench_model_fill(&m, b->o.tokens);
    (void)bench_model_ttft_ms(&m); /* rotates the copies */
    if (!tokens || !llama_state_save_file(m.ctx, path, tokens, b->o.tokens))
        bench_die("%s cannot be written", path);
    free(tokens);
    bench_model_close(&m);
}

static double slot_restore_ms(struct bench *b, const char *path, llama_token *tokens)
{
    struct bench_model m;
    size_t n = 0;

    bench_forget_file(b->o.model);
    bench_forget_file(path);
    double begin = bench_now_ms();
    open_stock(b, &m);
    if (!llama_state_load_file(m.ctx, path, tokens, b->o.tokens, &n) || n != b->o.tokens)
        bench_die("%s cannot be loaded", path);
    m.past = b->o.tokens;
    (void)bench_model_ttft_ms(&m);
    double ms = bench_now_ms() - begin;
    bench_model_close(&m);
    return ms;
}

/* The program was ended to free its memory; its state lies in a file, and nothing of either file in the page
 * cache. */
void run_slot_restore(struct bench *b)
{
    struct bench_runs runs = {{0}, 0};
    llama_token *tokens = calloc(b->o.tokens, sizeof(*tokens));
    char path[4200];

    if (!tokens)
        bench_die("no memory");
    (void)snprintf(path, sizeof(path), "%s/bench-slot-%d.state", b->o.folder, (int)getpid());
    save_state(b, path);
    for (uint32_t run = 0; run < b->o.runs; run++)
        bench_runs_add(&runs, slot_restore_ms(b, path, tokens));
    (void)unlink(path);
    free(tokens);
    emit_baseline(b, "slot-restore", &runs);
}

static double cold_ms(struct bench *b, bool managed)
{
    struct bench_model m;

    bench_forget_file(b->o.model);
    double begin = bench_now_ms();
    if (managed)
        open_managed(b, &m);
    else
        open_stock(b, &m);
    bench_model_decode(&m, NULL, b->o.tokens);
    (void)bench_model_ttft_ms(&m);
    double ms = bench_now_ms() - begin;
    bench_model_close(&m);
    return ms;
}

void run_cold(struct bench *b)
{
    struct bench_runs stock = {{0}, 0}, managed = {{0}, 0};

    for (uint32_t run = 0; run < b->o.runs; run++) {
        bench_runs_add(&managed, cold_ms(b, true));
        bench_runs_add(&stock, cold_ms(b, false));
    }
    emit_baseline(b, "cold-start", &stock);
    json_t *point = new_point(b, &managed);
    put_bytes(point, "remaining", 0);
    (void)json_object_set_new(point, "mode", json_string("cold"));
    put_real(point, "ttft_ms", bench_runs_median(&managed));
    emit(b, "restore", point, "0/cold");
}
