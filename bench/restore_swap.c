/* The hybrid swap: which layers leave first, and the two paths back in turn and at once. */
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
