/* The workers: threads that bring units back. Each owns a transfer and a few jobs in flight.
 *
 * The two paths run side by side: even workers take from storage first, odd ones from the stack first. To
 * stop means to take no new jobs and wait for the running ones. Lock: core->lock for picking and for
 * sleeping.
 *
 * They run at the priority of everyone else. What a worker does is short and keeps the storage busy, while
 * computing threads spin at their barriers as long as they wait: with a lower priority the first token came a
 * fifth later (two cores, half of 1.4 GB evicted: 470 instead of 384 ms). */
#include <errno.h>
#include <stdlib.h>

#include "core/restore.h"
#include "os/fault.h"
#include "os/log.h"
#include "os/thread.h"

#define JOBS 4u /* in flight per worker: one being read, one being verified, two queued */

struct worker {
    struct mz_core *core;
    uint32_t number;
    struct mz_transfer *transfer;
    struct mz_job jobs[JOBS];
    uint32_t depth; /* jobs used: 1 without io_uring, where submitting is reading */
};

static struct mz_job *free_job(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->depth; i++)
        if (worker->jobs[i].n == 0)
            return &worker->jobs[i];
    return NULL;
}

static enum mz_path first_path(const struct worker *worker)
{
    bool parallel = worker->core->options.paths == MZ_PATHS_PARALLEL;

    return parallel && mz_profile_decodes(worker->number) ? MZ_PATH_STACK : MZ_PATH_STORAGE;
}

/* Lock held. */
static bool may_work(const struct worker *worker)
{
    return !worker->core->stop && (!worker->core->limit_bytes || worker->number < MZ_LIMIT_WORKERS);
}

/* Starts one job if there is one, room for it in flight, and memory. Lock held, dropped meanwhile. */
static bool worker_start_one(struct worker *worker)
{
    struct mz_core *core = worker->core;
    struct mz_job *job = free_job(worker);

    if (!job || !may_work(worker) || !mz_job_pick(core, first_path(worker), job))
        return false;
    pthread_mutex_unlock(&core->lock);
    bool started = mz_job_start(core, worker->transfer, job);
    pthread_mutex_lock(&core->lock);
    return started;
}

/* Buffers are given back when nothing is left to do: an idle process holds none. Lock held, dropped
 * meanwhile. */
static void worker_rest(struct worker *worker)
{
    struct mz_core *core = worker->core;
    bool any = false;

    for (uint32_t i = 0; i < JOBS; i++)
        any = any || worker->jobs[i].bounce.counted;
    if (any) {
        pthread_mutex_unlock(&core->lock);
        for (uint32_t i = 0; i < JOBS; i++)
            mz_bounce_free(core, &worker->jobs[i].bounce);
        pthread_mutex_lock(&core->lock);
        return;
    }
    /* Without room there is something to do but no way to do it: look again soon. So too when more was asked
     * for while this worker found no memory, or while a layout changes. */
    bool stuck =
        core->want_head || (core->ahead && core->n_evicted && (core->graphs || !core->ahead_blocked));
    if (stuck && may_work(worker))
        (void)mz_cond_wait_ms(&core->work, &core->lock, 10);
    else
        pthread_cond_wait(&core->work, &core->lock);
}

static void *worker_run(void *arg)
{
    struct worker *worker = arg;
    struct mz_core *core = worker->core;

    pthread_mutex_lock(&core->lock);
    while (!core->stop || mz_transfer_pending(worker->transfer) > 0) {
        if (worker_start_one(worker))
            continue;
        if (mz_transfer_pending(worker->transfer) > 0) {
            pthread_mutex_unlock(&core->lock);
            struct mz_request *request = mz_transfer_wait(worker->transfer);
            mz_job_finish(core, request->user, request->result);
            pthread_mutex_lock(&core->lock);
        } else if (!core->stop) {
            worker_rest(worker);
        }
    }
    pthread_mutex_unlock(&core->lock);
    for (uint32_t i = 0; i < JOBS; i++)
        mz_bounce_free(core, &worker->jobs[i].bounce);
    mz_transfer_close(worker->transfer);
    free(worker);
    return NULL;
}

static int worker_new(struct mz_core *core, uint32_t number)
{
    const char *why = NULL;
    bool uring = core->options.uring && mz_transfer_uring(&why);
    struct worker *worker = mz_calloc(1, sizeof(*worker));

    if (!worker)
        return -ENOMEM;
    if (core->options.uring && !uring)
        mz_log_once(MZ_LOG_INFO, "io_uring is not available (%s); reading with plain calls",
                    why ? why : "refused");
    worker->core = core;
    worker->number = number;
    worker->depth = uring ? JOBS : 1;
    int err = mz_transfer_open(worker->depth, uring, &worker->transfer);
    if (err) {
        free(worker);
        return err;
    }
    err = mz_thread_start(&core->workers[number], "mz-restore", worker_run, worker);
    if (err) {
        mz_transfer_close(worker->transfer);
        free(worker);
    }
    return err;
}

int mz_restore_start(struct mz_core *core, uint32_t workers)
{
    int err = 0;

    for (uint32_t i = 0; i < workers && !err; i++) {
        err = worker_new(core, i);
        core->n_workers += !err;
    }
    return core->n_workers ? 0 : err; /* fewer than asked still work */
}

void mz_restore_stop(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    core->stop = true;
    pthread_cond_broadcast(&core->work);
    pthread_mutex_unlock(&core->lock);
    for (uint32_t i = 0; i < core->n_workers; i++)
        pthread_join(core->workers[i], NULL);
    core->n_workers = 0;
}

void mz_restore_kick(struct mz_core *core)
{
    core->ahead_blocked = false;
    pthread_cond_broadcast(&core->work);
}
