/* Time and memory of evicting, and generating under a limit. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "restore.h"

#define STREAM_TOKENS 8u

/* -------------------------------------------------------------------------------- evicting */

/* A figure of /proc/self/status in KiB. */
static uint64_t process_kib(const char *name)
{
    char line[256];
    unsigned long long value = 0;
    FILE *file = fopen("/proc/self/status", "re");

    if (!file)
        bench_die("/proc/self/status cannot be read");
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            value = strtoull(line + strlen(name) + 1, NULL, 10);
    fclose(file);
    return value;
}

/* Makes the highest resident size so far the present one (proc(5)). */
static void reset_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "5", 1) != 1)
        bench_die("/proc/self/clear_refs cannot be written");
    close(fd);
}

struct eviction {
    const char *what;
    struct bench_runs ms, peak_extra_mib;
    struct mz_report report; /* of the last */
};

/* One eviction of `bytes`, or of everything with 0. */
static void evict_once(struct bench *b, struct eviction *e, uint64_t bytes)
{
    reset_peak();
    uint64_t before = process_kib("VmRSS");
    bench_must(bytes ? b->plugin.evict(bytes, &e->report) : b->plugin.evict_to(0, &e->report), e->what);
    uint64_t peak = process_kib("VmHWM");
    bench_runs_add(&e->ms, e->report.ms);
    bench_runs_add(&e->peak_extra_mib, peak > before ? (double)(peak - before) / 1024 : 0);
}

static void emit_eviction(struct bench *b, const struct eviction *e)
{
    json_t *point = new_point(b, &e->ms);

    (void)json_object_set_new(point, "what", json_string(e->what));
    put_bytes(point, "bytes", e->report.freed_bytes);
    put_real(point, "ms", bench_runs_median(&e->ms));
    put_real(point, "peak_extra_mib", bench_runs_median(&e->peak_extra_mib));
    put_bytes(point, "to_stack_bytes", e->report.to_stack_bytes);
    put_bytes(point, "to_store_bytes", e->report.to_store_bytes);
    emit(b, "evict", point, "%s", e->what);
}

/* The context is filled without decoding, so that the weights stay away and only KV that was never evicted is
 * there. */
static void refill_without_weights(struct bench *b)
{
    (void)evict_to(b, 0);
    bench_model_fill(&b->m, b->o.tokens);
}

void run_evict(struct bench *b)
{
    struct eviction weights = {.what = "weights"}, kv = {.what = "kv"}, half = {.what = "half of kv"},
                    again = {.what = "all again"};
    struct mz_state state;

    open_warm(b);
    for (uint32_t run = 0; run < b->o.runs; run++) {
        bench_model_clear(&b->m);
        evict_once(b, &weights, 0);
        refill_without_weights(b);
        evict_once(b, &kv, 0);
        bench_model_clear(&b->m);
        refill_without_weights(b);
        bench_must(b->plugin.status(&state), "status");
        evict_once(b, &half, state.kv.resident_bytes / 2);
        (void)restore_all(b);
        (void)bench_model_ttft_ms(&b->m);
        (void)evict_to(b, 0);
        (void)restore_all(b);
        evict_once(b, &again, 0); /* bit-exact: every copy is valid and nothing is written */
        (void)restore_all(b);
    }
    emit_eviction(b, &weights);
    emit_eviction(b, &kv);
    emit_eviction(b, &half);
    emit_eviction(b, &again);
    bench_model_close(&b->m);
}

/* -------------------------------------------------------------------------------- streaming */

/* A number of the plugin's dump. */
static uint64_t dump_number(struct bench *b, const char *key)
{
    char *text = NULL;

    bench_must(b->plugin.dump(&text), "dump");
    json_t *all = json_loads(text, 0, NULL), *value = json_object_get(all, key);
    if (!value)
        value = json_object_get(json_object_get(all, "status"), key);
    if (!json_is_integer(value))
        bench_die("the dump has no %s", key);
    uint64_t number = (uint64_t)json_integer_value(value);
    json_decref(all);
    free(text);
    return number;
}

/* The share of the total that is asked for, or the least that computing needs. */
static uint64_t limit_to(struct bench *b, const struct mz_state *state)
{
    uint64_t bytes = state->total_bytes / 100 * b->o.limit_percent, floor = 0;
    int r = b->plugin.limit(bytes, &floor);

    if (r < 0 && floor > bytes)
        r = b->plugin.limit(bytes = floor, NULL);
    bench_must(r, "limit");
    return bytes;
}

void run_stream(struct bench *b)
{
    struct bench_runs tps = {{0}, 0}, warm = {{0}, 0};
    struct speed speed = {0};
    struct mz_state state;

    open_warm(b);
    bench_must(b->plugin.status(&state), "status");
    for (uint32_t run = 0; run < b->o.runs; run++)
        bench_runs_add(&warm, bench_model_tps(&b->m, STREAM_TOKENS));
    uint64_t limit = limit_to(b, &state);
    (void)bench_model_tps(&b->m, 1);
    uint64_t before = dump_number(b, "read_bytes");
    for (uint32_t run = 0; run < b->o.runs; run++) { /* in turns: both on the machine as it is now */
        bench_runs_add(&tps, bench_model_tps(&b->m, STREAM_TOKENS));
        measure_speed(b, &speed);
    }
    double token_bytes = (double)(dump_number(b, "read_bytes") - before) / (b->o.runs * STREAM_TOKENS);
    double tps_limit = bench_runs_median(&speed.read_gbps) * BENCH_GB / (token_bytes > 1 ? token_bytes : 1);
    bench_must(b->plugin.limit(0, NULL), "limit");
    json_t *point = new_point(b, &tps);
    put_real(point, "limit_percent", 100.0 * (double)limit / (double)state.total_bytes);
    put_real(point, "tps", bench_runs_median(&tps));
    put_real(point, "tps_limit", tps_limit);
    put_real(point, "ratio", tps_limit / bench_runs_median(&tps));
    put_real(point, "tps_warm", bench_runs_median(&warm));
    put_real(point, "bytes_per_token", token_bytes);
    put_real(point, "read_gbps", bench_runs_median(&speed.read_gbps));
    emit(b, "stream", point, "%u", b->o.limit_percent);
    bench_model_close(&b->m);
}
