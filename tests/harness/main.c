/* mz-harness PLUGIN MODEL [--second MODEL] [--seed N] [--threads N] [--brief] [--may-fail] SCENARIO...
 *
 * Prints "ok SCENARIO" for each, or the first difference. Exit 0: all equal; 1: not; 77: the model is not
 * there. "all": all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

/* ---- the thread that evicts at random */

struct storm {
    struct world *world;
    uint32_t random;
    atomic_bool stop;
    int error;
};

static uint32_t draw(struct storm *storm, uint32_t below)
{
    storm->random = storm->random * 1664525u + 1013904223u;
    return (storm->random >> 8) % below;
}

static void *rage(void *arg)
{
    struct storm *storm = arg;
    const struct api *api = &storm->world->api;

    while (!atomic_load(&storm->stop) && storm->error == 0) {
        switch (draw(storm, 6)) {
        case 0:
        case 1:
            storm->error = api->evict_to(draw(storm, 10001), NULL);
            break;
        case 2:
            storm->error = api->evict((uint64_t)draw(storm, 32) << 20, NULL);
            break;
        case 3:
            storm->error = api->restore(false);
            break;
        case 4:
            storm->error = api->restore(true);
            break;
        default:
            usleep(draw(storm, 20000));
        }
    }
    return NULL;
}

/* ---- runs */

/* About half of the model, or the least that works. Lifted by 0. */
static int set_limit(struct world *world, bool on)
{
    struct mz_state state;
    uint64_t floor = 0;

    if (!on)
        return world->api.limit(0, NULL);
    if (world->api.status(&state))
        return -1;
    int err = world->api.limit(state.weights.total_bytes / 2, &floor);
    return err && floor ? world->api.limit(floor, NULL) : err;
}

static struct llama_context *new_context(struct world *world, const struct scenario *scenario)
{
    struct llama_context_params params = llama_context_default_params();

    params.n_ctx = 512;
    params.n_batch = 128;
    params.n_ubatch = 64;
    params.n_threads = params.n_threads_batch = world->threads;
    if (scenario->params)
        scenario->params(&params);
    return llama_init_from_model(world->model, params);
}

static int run_once(struct world *world, const struct scenario *scenario, enum disturbance how,
                    uint32_t permyriad, struct log *log)
{
    struct play play = {.world = world,
                        .model = world->model,
                        .log = log,
                        .how = how,
                        .permyriad = permyriad,
                        .random = world->seed};
    struct storm storm = {.world = world, .random = world->seed * 77 + 5};
    pthread_t thread;

    play.ctx = new_context(world, scenario);
    if (!play.ctx) {
        printf("no context\n");
        return -1;
    }
    if (how == AT_RANDOM && pthread_create(&thread, NULL, rage, &storm)) {
        printf("no thread\n");
        exit(1);
    }
    bool limited = scenario->limit && how != LEFT_ALONE;
    if (limited && set_limit(world, true))
        fail(&play, "the limit cannot be set");
    scenario->script(&play);
    if (limited && set_limit(world, false))
        fail(&play, "the limit cannot be lifted");
    if (how == AT_RANDOM) {
        atomic_store(&storm.stop, true);
        pthread_join(thread, NULL);
        if (storm.error)
            fail(&play, "evicting at random gave %d", storm.error);
    }
    if (how == TO_LEVEL && play.disturbed == 0 && !scenario->limit)
        fail(&play, "no eviction freed anything");
    llama_free(play.ctx);
    return play.failed ? -1 : 0;
}

static int run_compared(struct world *world, const struct scenario *scenario, const struct log *alone,
                        enum disturbance how, uint32_t permyriad)
{
    struct log *log = calloc(1, sizeof(*log));
    char what[64];

    if (how == AT_RANDOM)
        snprintf(what, sizeof(what), "%s, random eviction, seed %u", scenario->name, world->seed);
    else
        snprintf(what, sizeof(what), "%s, %u %% remaining", scenario->name, permyriad / 100);
    int err = run_once(world, scenario, how, permyriad, log);
    if (err && world->may_fail)
        err = log_compare_begin(alone, log, what);
    else if (!err)
        err = log_compare(alone, log, what);
    else
        printf("failed: %s\n", what);
    log_free(log);
    free(log);
    return err;
}

/* What a model cannot do without any plugin either; NULL: nothing is in the way. */
static const char *why_not(struct world *world, const struct scenario *scenario)
{
    char arch[32] = "";

    if (scenario->lora && !world_load_lora(world))
        return "no adapter lies beside the model";
    if (!scenario->needs_shift)
        return NULL;
    llama_model_meta_val_str(world->model, "general.architecture", arch, sizeof(arch));
    if (strcmp(arch, "deepseek2") == 0 && strcmp(scenario->name, "shift-q8_0") == 0)
        return "ggml-cpu aborts on a part of a quantised row (ggml_compute_forward_dup)";
    struct llama_context *ctx = new_context(world, scenario);
    bool can = ctx && llama_memory_can_shift(llama_get_memory(ctx));
    llama_free(ctx);
    return can ? NULL : "the model's cache cannot be shifted";
}

static int run_scenario(struct world *world, const struct scenario *scenario)
{
    static const uint32_t levels[] = {7500, 5000, 2500, 0}, few[] = {4000, 0};
    const uint32_t *level = world->brief ? few : levels;
    size_t n = world->brief ? 2 : 4;
    struct log *alone = calloc(1, sizeof(*alone));

    world->mmap = !scenario->no_mmap;
    world->half = scenario->half;
    int err = world_load(world);
    const char *reason = err ? NULL : why_not(world, scenario);
    if (reason) {
        printf("skip %s: %s\n", scenario->name, reason);
        goto out;
    }
    if (!err)
        err = run_once(world, scenario, LEFT_ALONE, 0, alone);
    if (err && world->may_fail) {
        printf("ok %s: it could not even begin\n", scenario->name);
        err = 0;
        goto out;
    }
    for (size_t i = 0; i < n && !err; i++)
        err = run_compared(world, scenario, alone, TO_LEVEL, level[i]);
    if (!err)
        err = run_compared(world, scenario, alone, AT_RANDOM, 0);
    if (!err)
        printf("ok %s\n", scenario->name);
out:
    fflush(stdout);
    world_unload(world);
    log_free(alone);
    free(alone);
    return err;
}

static bool is_named(const char *name, char **names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0 || strcmp(names[i], "all") == 0)
            return true;
    return false;
}

static int options(struct world *world, int argc, char **argv)
{
    int i = 3;

    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        if (strcmp(argv[i], "--brief") == 0)
            world->brief = true;
        else if (strcmp(argv[i], "--may-fail") == 0)
            world->may_fail = true;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            world->seed = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            world->threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--second") == 0 && i + 1 < argc)
            world->second_path = argv[++i];
        else
            return -1;
    }
    return i;
}

int main(int argc, char **argv)
{
    struct world world = {.threads = 2, .seed = 1};
    int first = argc < 4 ? -1 : options(&world, argc, argv), failed = 0, run = 0;

    if (first < 0 || first >= argc) {
        fprintf(stderr,
                "mz-harness PLUGIN MODEL [--second MODEL] [--seed N] [--threads N] [--brief] [--may-fail] "
                "SCENARIO...\n");
        return 1;
    }
    world.model_path = argv[2];
    if (access(world.model_path, R_OK) != 0) {
        printf("skip: there is no %s\n", world.model_path);
        return 77;
    }
    if (world_open(&world, argv[1]))
        return 1;
    for (const struct scenario *s = scenarios; s->name; s++) {
        if (!is_named(s->name, argv + first, argc - first))
            continue;
        run++;
        failed += run_scenario(&world, s) != 0;
    }
    world_close(&world);
    if (run == 0)
        printf("no scenario of that name\n");
    return failed || run == 0;
}
