/* Loading the plugin and the models. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level >= GGML_LOG_LEVEL_ERROR || getenv("MZ_HARNESS_LOG"))
        fputs(text, stderr);
}

static int fetch_api(ggml_backend_reg_t reg, struct api *api)
{
    *(void **)&api->evict = ggml_backend_reg_get_proc_address(reg, "mz_evict");
    *(void **)&api->evict_to = ggml_backend_reg_get_proc_address(reg, "mz_evict_to");
    *(void **)&api->restore = ggml_backend_reg_get_proc_address(reg, "mz_restore");
    *(void **)&api->status = ggml_backend_reg_get_proc_address(reg, "mz_status");
    *(void **)&api->limit = ggml_backend_reg_get_proc_address(reg, "mz_limit");
    *(void **)&api->option_set = ggml_backend_reg_get_proc_address(reg, "mz_option_set");
    if (api->evict && api->evict_to && api->restore && api->status && api->limit && api->option_set)
        return 0;
    fprintf(stderr, "the plugin does not have all functions of mzcache.h\n");
    return -1;
}

int world_open(struct world *world, const char *plugin)
{
    llama_log_set(quiet, NULL);
    ggml_backend_load_all(); /* the CPU, where backends are loadable modules */
    ggml_backend_reg_t reg = ggml_backend_load(plugin);
    if (!reg) {
        fprintf(stderr, "%s cannot be loaded as a ggml backend\n", plugin);
        return -1;
    }
    llama_backend_init();
    world->devices[0] = ggml_backend_reg_dev_get(reg, 0);
    world->devices[1] = NULL;
    return fetch_api(reg, &world->api);
}

static struct llama_model *load(struct world *world, const char *path)
{
    struct llama_model_params params = llama_model_default_params();

    params.devices = world->devices;
    params.n_gpu_layers = 999;
    params.load_mode = world->mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    if (world->half) {
        /* How many layers there are is not known before. */
        params.n_gpu_layers = 8;
    }
    struct llama_model *model = llama_model_load_from_file(path, params);
    if (!model)
        fprintf(stderr, "%s cannot be loaded\n", path);
    return model;
}

int world_load(struct world *world)
{
    struct mz_state state;

    world->model = load(world, world->model_path);
    world->second = world->second_path ? load(world, world->second_path) : NULL;
    if (!world->model || (world->second_path && !world->second))
        return -1;
    if (world->api.status(&state) || state.weights.total_bytes == 0) {
        fprintf(stderr, "no weights lie on the plugin's device\n");
        return -1;
    }
    return 0;
}

bool world_load_lora(struct world *world)
{
    char path[4096];
    size_t n = strlen(world->model_path);

    if (n < 5 || strcmp(world->model_path + n - 5, ".gguf") != 0)
        return false;
    snprintf(path, sizeof(path), "%.*s-lora.gguf", (int)(n - 5), world->model_path);
    if (access(path, R_OK) != 0)
        return false;
    world->lora = llama_adapter_lora_init(world->model, path);
    return world->lora != NULL;
}

void world_unload(struct world *world)
{
    llama_model_free(world->model);
    llama_model_free(world->second);
    world->model = world->second = NULL;
    world->lora = NULL;
}

void world_close(struct world *world)
{
    world_unload(world);
    llama_backend_free();
}
