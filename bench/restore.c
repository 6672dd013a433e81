// clang-format off
/* bench_restore: evicting and restoring a model in this process, measured. JSON lines, one for each point, as soon as it is known.
 *
 *   bench_restore --what WHAT --plugin LIBGGML-MZ.SO --model FILE.GGUF [OPTION...]
 *
 *   WHAT           restore       time to first token at each level and in each mode of overlap, beside its limits
 *                  orders        which layers leave first
 *                  paths         the two ways back, one after the other and at once
 *                  rules         how evenly each rule of the plan loads the two ways
 *                  evict         time and memory of evicting
 *                  stream        generating with a model that is larger than its limit
 *                  longctx       stock llama.cpp beside the plugin over a long context, nothing evicted
 *                  slot-restore  stock: state saved to a file, program ended, started again
 *                  cold          started again and the whole prompt computed: by the plugin and by stock
 *   --shape, --type NAME         how the points call the model
 *   --tokens N                   length of the context, a multiple of 512 (2048)
 *   --levels A,B,...             percent remaining (0,50)
 *   --runs N                     of everything; medians count (5)
 *   --threads N                  (2)
 *   --kv exact|q8                how KV is kept (exact)
 *   --folder DIR                 where the plugin's swap file lies, for measuring that storage (the cache folder)
 *   --read-gbps X                rules: plan for storage of that speed, and predict only
 *   --limit N                    stream: percent of the total (40)
 *   --swa-full                   whole caches for layers with sliding windows */
// clang-format on
#include "restore.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "core/profile.h"
#include "core/profile_measure.h"
#include "os/folder.h"

/* -------------------------------------------------------------------------------- models */

static void open_on(struct bench *b, ggml_backend_dev_t device, struct bench_model *ret)
{
    struct bench_model_config config = {
        .path = b->o.model,
        .device = device,
        .tokens = b->o.tokens,
        .threads = b->o.threads,
        .swa_full = b->o.swa_full,
    };

    bench_model_open(&config, ret);
}

void open_managed(struct bench *b, struct bench_model *ret)
{
    open_on(b, b->plugin.device, ret);
    set_option(b, "kv", b->o.kv);
    set_option(b, "clean", "off"); /* whatever an eviction writes is to be counted */
}

void open_stock(struct bench *b, struct bench_model *ret)
{
    open_on(b, NULL, ret);
}

void open_warm(struct bench *b)
{
    open_managed(b, &b->m);
    bench_model_fill(&b->m, b->o.tokens);
    (void)bench_model_ttft_ms(&b->m);
    (void)bench_model_ttft_ms(&b->m);
}

/* -------------------------------------------------------------------------------- the plugin */

void set_option(struct bench *b, const char *name, const char *value)
{
    bench_must(b->plugin.option_set(name, value), name);
}

struct mz_report evict_to(struct bench *b, uint32_t percent)
{
    struct mz_report report = {0};

    bench_must(b->plugin.evict_to(percent * 100, &report), "evicting");
    return report;
}

double restore_all(struct bench *b)
{
    double begin = bench_now_ms();

    bench_must(b->plugin.restore(true), "restoring");
    return bench_now_ms() - begin;
}

struct paths evicted_paths(struct bench *b)
{
    struct mz_state state;

    bench_must(b->plugin.status(&state), "status");
    const struct mz_state_kind *kinds[] = {&state.weights, &state.kv, &state.other};
    struct paths paths = {0};
    for (int i = 0; i < 3; i++) {
        paths.storage_bytes += kinds[i]->store_bytes + kinds[i]->dropped_bytes;
        paths.stack_bytes += kinds[i]->stack_bytes;
    }
    return paths;
}

uint64_t storage_read_bytes(void)
{
    char line[256];
    unsigned long long value = 0;
    FILE *file = fopen("/proc/self/io", "re");

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "read_bytes: %llu", &value) == 1)
            break;
    if (file)
        fclose(file);
    return value;
}

double restore_counted(struct bench *b, struct paths *ret)
{
    *ret = evicted_paths(b);
    uint64_t before = storage_read_bytes();
    double ms = restore_all(b);
    uint64_t read = storage_read_bytes() - before;
    if (read > 0 && read < ret->storage_bytes)
        ret->storage_bytes = read;
    return ms;
}

static void measure_profile(struct bench *b, struct mz_profile *ret, struct speed *speed)
{
    struct mz_profile_job job = {
        .folder = b->o.folder, .force = true, .uring = true, .workers = (uint32_t)b->o.threads};
    const struct mz_codec *q8 = mz_codec_find("q8");

    bench_must(mz_profile_measure(&job, ret), "measuring storage");
    bench_runs_add(&speed->read_gbps, ret->read_gbps);
    bench_runs_add(&speed->decode_gbps, ret->decode_gbps[q8->id]);
}

void measure_speed(struct bench *b, struct speed *speed)
{
    struct mz_profile profile;

    measure_profile(b, &profile, speed);
}

/* The median of three: one that another process falls into would decide all plans. */
void keep_profile(struct bench *b, struct speed *speed)
{
    struct mz_profile profile;
    const struct mz_codec *q8 = mz_codec_find("q8");

    for (int i = 0; i < 3; i++)
        measure_profile(b, &profile, speed);
    if (b->o.read_gbps > 0)
        speed->read_gbps = (struct bench_runs){{b->o.read_gbps}, 1};
    profile.read_gbps = bench_runs_median(&speed->read_gbps);
    profile.decode_gbps[q8->id] = bench_runs_median(&speed->decode_gbps);
    bench_must(mz_profile_save(&profile), "keeping the profile");
}

static double path_ms(uint64_t bytes, const struct bench_runs *gbps)
{
    double median = bench_runs_median(gbps);

    return median > 0 ? (double)bytes / BENCH_GB / median * 1e3 : 0;
}

double storage_ms(const struct paths *paths, const struct speed *speed)
{
    return path_ms(paths->storage_bytes, &speed->read_gbps);
}

double stack_ms(const struct paths *paths, const struct speed *speed)
{
    return path_ms(paths->stack_bytes, &speed->decode_gbps);
}

/* -------------------------------------------------------------------------------- points */

void put_real(json_t *point, const char *key, double value)
{
    (void)json_object_set_new(point, key, json_real(value));
}

void put_bytes(json_t *point, const char *key, uint64_t value)
{
    (void)json_object_set_new(point, key, json_integer((json_int_t)value));
}

json_t *new_point(const struct bench *b, const struct bench_runs *runs)
{
    json_t *point = json_pack("{ss ss si ss}", "shape", b->o.shape, "type", b->o.type, "ctx",
                              (int)b->o.tokens, "kv", b->o.kv);

    (void)json_object_set_new(point, "n", json_integer(runs->n));
    put_real(point, "spread", bench_runs_spread(runs));
    return point;
}

void emit(const struct bench *b, const char *section, json_t *point, const char *format, ...)
{
    char rest[128], key[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(rest, sizeof(rest), format, args);
    va_end(args);
    (void)snprintf(key, sizeof(key), "%s/%s/%u/%s/%s", b->o.shape, b->o.type, b->o.tokens, b->o.kv, rest);
    bench_emit(section, key, point);
}

/* -------------------------------------------------------------------------------- options */

static void parse_levels(struct options *o, const char *text)
{
    char copy[256], *rest = copy;

    if (!text || strlen(text) >= sizeof(copy))
        bench_die("--levels wants percentages, as in 0,50,75");
    strcpy(copy, text);
    o->n_levels = 0;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        if (o->n_levels == LEVELS_MAX)
            bench_die("more than %d levels", LEVELS_MAX);
        o->levels[o->n_levels++] = (uint32_t)bench_number("--levels", word, 0, 100);
    }
}

static bool parse_text(struct options *o, const char *name, const char *value)
{
    const struct {
        const char *name, **place;
    } texts[] = {
        {"--what", &o->what}, {"--plugin", &o->plugin}, {"--model", &o->model},   {"--shape", &o->shape},
        {"--type", &o->type}, {"--kv", &o->kv},         {"--folder", &o->folder},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        if (strcmp(texts[i].name, name) == 0 && value) {
            *texts[i].place = value;
            return true;
        }
    }
    return false;
}

static bool parse_number(struct options *o, const char *name, const char *value)
{
    if (strcmp(name, "--tokens") == 0)
        o->tokens = (uint32_t)bench_number(name, value, 256, 1 << 20);
    else if (strcmp(name, "--runs") == 0)
        o->runs = (uint32_t)bench_number(name, value, 1, BENCH_RUNS_MAX);
    else if (strcmp(name, "--threads") == 0)
        o->threads = (int)bench_number(name, value, 1, 64);
    else if (strcmp(name, "--limit") == 0)
        o->limit_percent = (uint32_t)bench_number(name, value, 1, 100);
    else if (strcmp(name, "--read-gbps") == 0)
        o->read_gbps = bench_number(name, value, 0.01, 1000);
    else
        return false;
    return true;
}

static void parse(struct options *o, char **arg)
{
    for (; *arg; arg++) {
        if (strcmp(*arg, "--swa-full") == 0) {
            o->swa_full = true;
            continue;
        }
        if (strcmp(*arg, "--levels") == 0)
            parse_levels(o, arg[1]);
        else if (!parse_text(o, *arg, arg[1]) && !parse_number(o, *arg, arg[1]))
            bench_die("%s: no such option, or no value (restore.c lists them)", *arg);
        arg++;
    }
    if (!o->what || !o->plugin || !o->model)
        bench_die("--what, --plugin and --model are needed");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct bench *b);
    } table[] = {
        {"restore", run_restore}, {"orders", run_orders},
        {"paths", run_paths},     {"rules", run_rules},
        {"evict", run_evict},     {"stream", run_stream},
        {"longctx", run_longctx}, {"slot-restore", run_slot_restore},
        {"cold", run_cold},
    };
    static char folder[4096];
    struct bench b = {
        .o = {.shape = "?",
              .type = "?",
              .kv = "exact",
              .levels = {0, 50},
              .n_levels = 2,
              .tokens = 2048,
              .runs = 5,
              .limit_percent = 40,
              .threads = 2,
              .folder = folder},
    };

    (void)argc;
    bench_must(mz_folder_cache(folder, sizeof(folder)), "the cache folder");
    parse(&b.o, argv + 1);
    bench_must(mz_folder_make(b.o.folder), b.o.folder);
    bench_plugin_open(b.o.plugin, &b.plugin);
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (strcmp(table[i].name, b.o.what) == 0) {
            table[i].run(&b);
            return 0;
        }
    }
    bench_die("%s: nothing of that name is measured here", b.o.what);
}
