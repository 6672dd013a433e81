/* The hybrid swap: which layers leave first, the two paths back in turn and at once, and the two rules that
 * split evictions between them. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "restore.h"

/* -------------------------------------------------------------------------------- orders */

static const char *const orders[] = {"backward", "forward", "random"};

#define ORDERS 3u

static void measure_orders(struct bench *b, uint32_t percent)
{
    struct bench_runs ttft_ms[ORDERS] = {{{0}, 0}};

    for (uint32_t run = 0; run < b->o.runs; run++) {
        for (unsigned i = 0; i < ORDERS; i++) {
            set_option(b, "order", orders[i]);
            (void)evict_to(b, percent);
            bench_runs_add(&ttft_ms[i], bench_model_ttft_ms(&b->m));
            (void)restore_all(b);
        }
    }
    for (unsigned i = 0; i < ORDERS; i++) {
        json_t *point = new_point(b, &ttft_ms[i]);
        (void)json_object_set_new(point, "order", json_string(orders[i]));
        put_bytes(point, "remaining", percent);
        put_real(point, "ttft_ms", bench_runs_median(&ttft_ms[i]));
        emit(b, "swap.orders", point, "%u/%s", percent, orders[i]);
    }
}

void run_orders(struct bench *b)
{
    open_warm(b);
    (void)evict_to(b, 0);
    (void)restore_all(b);
    for (uint32_t i = 0; i < b->o.n_levels; i++)
        measure_orders(b, b->o.levels[i]);
    set_option(b, "order", "backward");
    bench_model_close(&b->m);
}

/* -------------------------------------------------------------------------------- paths */

static double reload_ms(struct bench *b, uint32_t percent, const char *how)
{
    (void)evict_to(b, percent);
    set_option(b, "paths", how);
    double ms = restore_all(b);
    set_option(b, "paths", "parallel");
    return ms;
}

/* stack_ms and store_ms are each path alone, at the throughput that the profile measures: what both at once
 * can be compared with. */
static void measure_paths(struct bench *b, uint32_t percent)
{
    struct bench_runs parallel = {{0}, 0}, sequential = {{0}, 0};
    struct speed speed = {0};
    struct paths paths = {0};

    for (uint32_t run = 0; run < b->o.runs; run++) {
        bench_runs_add(&parallel, reload_ms(b, percent, "parallel"));
        bench_runs_add(&sequential, reload_ms(b, percent, "sequential"));
        measure_speed(b, &speed);
    }
    (void)evict_to(b, percent);
    (void)restore_counted(b, &paths);
    json_t *point = new_point(b, &parallel);
    put_bytes(point, "remaining", percent);
    put_real(point, "stack_ms", stack_ms(&paths, &speed));
    put_real(point, "store_ms", storage_ms(&paths, &speed));
    put_real(point, "parallel_ms", bench_runs_median(&parallel));
    put_real(point, "sequential_ms", bench_runs_median(&sequential));
    put_bytes(point, "stack_bytes", paths.stack_bytes);
    put_bytes(point, "storage_bytes", paths.storage_bytes);
    emit(b, "swap.paths", point, "%u", percent);
}

void run_paths(struct bench *b)
{
    open_warm(b);
    (void)evict_to(b, 0);
    (void)restore_all(b);
    for (uint32_t i = 0; i < b->o.n_levels; i++)
        measure_paths(b, b->o.levels[i]);
    bench_model_close(&b->m);
}

/* -------------------------------------------------------------------------------- rules */

static const char *const rules[] = {"exact", "published"};

#define RULES    2u
#define POLL_US  500u
#define QUIET_MS 100.0

/* What one rule did at one level. */
struct rule_runs {
    struct bench_runs restore_ms, storage_ms, stack_ms;
    struct paths paths; /* of the last eviction */
};

/* Restores with one path after the other, and notes how long each took. Storage comes first: it is done when
 * the kernel has counted its last byte, or none for long (images that sank are smaller than what they
 * become). */
static void restore_apart(struct bench *b, uint64_t storage_bytes, struct rule_runs *runs)
{
    uint64_t first = storage_read_bytes(), last = first;
    double begin = bench_now_ms(), changed = begin;

    set_option(b, "paths", "sequential");
    bench_must(b->plugin.restore(false), "restoring");
    while (last - first < storage_bytes && bench_now_ms() - changed < QUIET_MS) {
        (void)usleep(POLL_US);
        uint64_t now = storage_read_bytes();
        changed = now != last ? bench_now_ms() : changed;
        last = now;
    }
    (void)restore_all(b);
    double end = bench_now_ms();
    set_option(b, "paths", "parallel");
    bench_runs_add(&runs->storage_ms, changed - begin);
    bench_runs_add(&runs->stack_ms, end - changed);
}

/* Brings everything back without waiting inside, so that the time taken does not correct the profile. */
static void restore_untaught(struct bench *b)
{
    struct paths left;

    bench_must(b->plugin.restore(false), "restoring");
    do {
        (void)usleep(20 * POLL_US);
        left = evicted_paths(b);
    } while (left.storage_bytes || left.stack_bytes);
}

/* How much of the longer path's time the shorter one has nothing to do. */
static double imbalance(double a, double b)
{
    double longer = fmax(a, b);

    return longer > 0 ? fabs(a - b) / longer : 0;
}

static void measure_rule(struct bench *b, const char *rule, uint32_t percent, struct rule_runs *runs)
{
    set_option(b, "rule", rule);
    (void)evict_to(b, percent);
    runs->paths = evicted_paths(b);
    if (b->o.read_gbps > 0) { /* nothing to measure: this machine's storage is another one */
        bench_runs_add(&runs->restore_ms, 0);
        restore_untaught(b);
        return;
    }
    bench_runs_add(&runs->restore_ms, restore_all(b));
    (void)evict_to(b, percent);
    restore_apart(b, evicted_paths(b).storage_bytes, runs);
}

static void put_measured(json_t *point, const struct rule_runs *runs)
{
    double storage = bench_runs_median(&runs->storage_ms), stack = bench_runs_median(&runs->stack_ms);

    put_real(point, "store_ms", storage);
    put_real(point, "stack_ms", stack);
    put_real(point, "imbalance", imbalance(storage, stack));
    put_real(point, "restore_ms", bench_runs_median(&runs->restore_ms));
}

static void emit_rule(struct bench *b, const char *rule, uint32_t percent, const struct rule_runs *runs,
                      const struct speed *speed)
{
    json_t *point = new_point(b, &runs->restore_ms);
    double storage = storage_ms(&runs->paths, speed), stack = stack_ms(&runs->paths, speed);

    (void)json_object_set_new(point, "rule", json_string(rule));
    (void)json_object_set_new(point, "simulated", json_boolean(b->o.read_gbps > 0));
    put_bytes(point, "remaining", percent);
    put_real(point, "predicted_store_ms", storage);
    put_real(point, "predicted_stack_ms", stack);
    put_real(point, "predicted_imbalance", imbalance(storage, stack));
    put_real(point, "predicted_restore_ms", fmax(storage, stack));
    if (b->o.read_gbps <= 0)
        put_measured(point, runs);
    put_bytes(point, "storage_bytes", runs->paths.storage_bytes);
    put_bytes(point, "stack_bytes", runs->paths.stack_bytes);
    put_real(point, "read_gbps", bench_runs_median(&speed->read_gbps));
    put_real(point, "decode_gbps", bench_runs_median(&speed->decode_gbps));
    emit(b, "swap.rules", point, "%u/%s/%g", percent, rule, b->o.read_gbps);
}

static void measure_rules(struct bench *b, uint32_t percent, const struct speed *speed)
{
    struct rule_runs runs[RULES];

    memset(runs, 0, sizeof(runs));
    for (uint32_t run = 0; run < b->o.runs; run++)
        for (unsigned i = 0; i < RULES; i++)
            measure_rule(b, rules[(i + run) % RULES], percent, &runs[(i + run) % RULES]);
    for (unsigned i = 0; i < RULES; i++)
        emit_rule(b, rules[i], percent, &runs[i], speed);
}

/* The predictions are by the profile that the plans are made by: it is measured and kept before the plugin
 * looks. */
void run_rules(struct bench *b)
{
    struct speed speed = {0};

    keep_profile(b, &speed);
    open_warm(b);
    (void)evict_to(b, 0);
    restore_untaught(b);
    for (uint32_t i = 0; i < b->o.n_levels; i++)
        measure_rules(b, b->o.levels[i], &speed);
    set_option(b, "rule", "exact");
    bench_model_close(&b->m);
}
