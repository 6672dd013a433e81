/* Time to first token after evictions, in each mode of overlap, beside what it can be at best. */
#include <string.h>
#include <unistd.h>

#include "restore.h"

static const char *const modes[] = {"full", "none", "alloc-reload", "reload-prefill"};

#define MODES 4u

/* Everything that is measured at one level. All in one loop, so that a slow moment of the machine hits all
 * alike. */
struct level {
    uint32_t percent;
    struct bench_runs ttft_ms[MODES], warm_ms, reload_ms, alloc_ms, evict_ms;
    struct paths paths; /* of the last restore */
    uint64_t freed_bytes;
    struct speed speed;
};

/* The kernel of a guest reports pages that were freed to the host 2 s after the first of them
 * (PAGE_REPORTING_DELAY). */
#define REPORTED_US 2500000

/* What the eviction freed is not what the restore gets: with as much backed again, every third one still met pages
 * that the host had taken; with 2 GB more, none of thirty did. */
#define MORE_BYTES UINT64_C(2000000000)

/* The host takes the pages that are reported, and their next use waits for it: clearing them takes five times
 * as long. No limit below has that in it, since the profile reads into the same 64 MiB again and again. So
 * what was freed until now, by the eviction too, is reported before the clock runs, and as much and more is then
 * backed again and taken within the next two seconds. A report in the middle of a restore makes 900 to 1000
 * ms of 410 (half of 1.4 GB evicted) and came in a third of the runs. Kernels that report at once when much
 * is free, as one did from a GiB on, still do so. */
static void make_host_back(const struct bench *b, uint64_t bytes)
{
    usleep(REPORTED_US);
    (void)bench_alloc_ms(bytes + MORE_BYTES, (unsigned)b->o.threads);
}

static void measure_mode(struct bench *b, struct level *level, unsigned mode)
{
    struct mz_report report = evict_to(b, level->percent);

    make_host_back(b, report.freed_bytes);
    bench_runs_add(&level->evict_ms, report.ms);
    set_option(b, "overlap", modes[mode]);
    bench_runs_add(&level->ttft_ms[mode], bench_model_ttft_ms(&b->m));
    set_option(b, "overlap", "full");
    (void)restore_all(b); /* nothing is left to do unless something is not needed for a token */
}

static void measure_apart(struct bench *b, struct level *level)
{
    level->freed_bytes = evict_to(b, level->percent).freed_bytes;
    bench_runs_add(&level->alloc_ms, bench_alloc_ms(level->freed_bytes, (unsigned)b->o.threads));
    bench_runs_add(&level->reload_ms, restore_counted(b, &level->paths));
    measure_speed(b, &level->speed);
}

static void emit_mode(struct bench *b, const struct level *level, unsigned mode)
{
    const struct bench_runs *ttft = &level->ttft_ms[mode];
    json_t *point = new_point(b, ttft);
    double warm = bench_runs_median(&level->warm_ms), storage = storage_ms(&level->paths, &level->speed);
    double stack = stack_ms(&level->paths, &level->speed);
    double io = storage > stack ? storage : stack, limit = warm > io ? warm : io;

    put_bytes(point, "remaining", level->percent);
    (void)json_object_set_new(point, "mode", json_string(modes[mode]));
    put_real(point, "ttft_ms", bench_runs_median(ttft));
    put_real(point, "warm_ms", warm);
    put_real(point, "io_ms", io);
    put_real(point, "limit_ms", limit);
    put_real(point, "ratio", bench_runs_median(ttft) / limit);
    put_real(point, "alloc_ms", bench_runs_median(&level->alloc_ms));
    put_real(point, "reload_ms", bench_runs_median(&level->reload_ms));
    put_real(point, "prefill_ms", warm);
    put_real(point, "evict_ms", bench_runs_median(&level->evict_ms));
    put_bytes(point, "freed_bytes", level->freed_bytes);
    put_bytes(point, "storage_bytes", level->paths.storage_bytes);
    put_bytes(point, "stack_bytes", level->paths.stack_bytes);
    put_real(point, "read_gbps", bench_runs_median(&level->speed.read_gbps));
    emit(b, "restore", point, "%u/%s", level->percent, modes[mode]);
}

/* With nothing evicted the modes are one. */
static void measure_level(struct bench *b, uint32_t percent)
{
    struct level level = {.percent = percent};
    unsigned n = percent == 100 ? 1 : MODES;

    for (uint32_t run = 0; run < b->o.runs; run++) {
        bench_runs_add(&level.warm_ms, bench_model_ttft_ms(&b->m));
        for (unsigned i = 0; i < n; i++)
            measure_mode(b, &level, (i + run) % n); /* no mode always follows the same other one */
        measure_apart(b, &level);
    }
    for (unsigned mode = 0; mode < n; mode++)
        emit_mode(b, &level, mode);
}

void run_restore(struct bench *b)
{
    open_warm(b);
    (void)evict_to(b, 0); /* the swap file grows and the profile is made: once, and not part of any figure */
    (void)restore_all(b);
    for (uint32_t i = 0; i < b->o.n_levels; i++)
        measure_level(b, b->o.levels[i]);
    bench_model_close(&b->m);
}
