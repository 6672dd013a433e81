/* The life of core, and its options. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/state.h"
#include "os/fault.h"
#include "os/log.h"
#include "os/os.h"
#include "os/thread.h"

static uint32_t workers_of(const struct mz_core_config *config, const struct mz_options *options)
{
    uint32_t workers = config->workers ? config->workers : options->workers ? options->workers : mz_os_cpus();

    return workers < 2 ? 2 : workers > 8 ? 8 : workers;
}

static void free_core(struct mz_core *core)
{
    mz_stack_destroy(core->stack);
    mz_store_destroy(core->store);
    free(core->plan_units);
    free(core->plan_steps);
    free(core->plan_from);
    free(core->plan_out);
    free(core->sequence);
    free(core->pass);
    free(core->peek);
    pthread_cond_destroy(&core->changed);
    pthread_cond_destroy(&core->work);
    pthread_mutex_destroy(&core->lock);
    pthread_mutex_destroy(&core->evict_turn);
    pthread_mutex_destroy(&core->peek_lock);
    pthread_mutex_destroy(&core->count_lock);
    free(core);
}

static int open_parts(struct mz_core *core, const struct mz_core_config *config)
{
    const char *folder = core->options.swap_folder[0] ? core->options.swap_folder : config->swap_folder;
    int err = mz_stack_create(&core->stack);

    if (!err)
        err = mz_store_create(folder, core->options.swap_force, &core->store);
    if (!err)
        err = mz_evict_reserve(core);
    if (!err)
        err = mz_restore_start(core, workers_of(config, &core->options));
    return err;
}

int mz_core_create(const struct mz_core_config *config, struct mz_core **ret)
{
    struct mz_core *core = mz_calloc(1, sizeof(*core));

    if (!core)
        return -ENOMEM;
    core->engine = config->engine;
    pthread_mutex_init(&core->lock, NULL);
    pthread_mutex_init(&core->evict_turn, NULL);
    pthread_mutex_init(&core->peek_lock, NULL);
    pthread_mutex_init(&core->count_lock, NULL);
    (void)mz_cond_init(&core->changed);
    (void)mz_cond_init(&core->work);
    (void)mz_options_from_env(&core->options);
    mz_profile_guess(&core->profile, workers_of(config, &core->options));
    int err = open_parts(core, config);
    if (err) {
        free_core(core);
        return err;
    }
    mz_options_log(&core->options);
    *ret = core;
    return 0;
}

void mz_core_destroy(struct mz_core *core)
{
    if (!core)
        return;
    mz_profile_stop(core);
    mz_restore_stop(core);
    free_core(core);
}

void mz_core_fork_child(struct mz_core *core)
{
    mz_store_fork_child(core->store);
}

/* ---- options */

/* The stack's spare segment exists where the stack is used, packed images where they are wanted. */
static void apply(struct mz_core *core)
{
    mz_packed_apply(core);
    mz_stack_spare(core->stack, core->options.kv == MZ_KV_Q8);
}

int mz_core_option_set(struct mz_core *core, const char *name, const char *value)
{
    if (mz_options_at_start(name))
        return -EBUSY;
    pthread_mutex_lock(&core->lock);
    int err = mz_options_set(&core->options, name, value);
    if (!err)
        apply(core);
    pthread_mutex_unlock(&core->lock);
    return err;
}

int mz_core_option_get(struct mz_core *core, const char *name, char *buf, size_t size)
{
    pthread_mutex_lock(&core->lock);
    int err = mz_options_get(&core->options, name, buf, size);
    pthread_mutex_unlock(&core->lock);
    return err;
}
