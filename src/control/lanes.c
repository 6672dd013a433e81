/* Threads for what may block. A lane's queue and flags belong to its lock; jobs run without it. */
#include "control/lanes.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "os/thread.h"

struct lane {
    pthread_mutex_t lock;
    pthread_cond_t wake;          /* something was queued, or it is over; with `lock` */
    struct mz_job *first, **last; /* `lock` */
    bool started, stop;           /* `lock` */
    pthread_t thread;             /* written under `lock`, read again after `stop` */
};

struct mz_lanes {
    struct lane lane[MZ_LANES];
};

static void *work(void *arg)
{
    struct lane *lane = arg;

    (void)pthread_mutex_lock(&lane->lock);
    for (;;) {
        struct mz_job *job = lane->first;
        if (!job) {
            if (lane->stop)
                break;
            (void)pthread_cond_wait(&lane->wake, &lane->lock);
            continue;
        }
        lane->first = job->next;
        if (!lane->first)
            lane->last = &lane->first;
        (void)pthread_mutex_unlock(&lane->lock);
        job->run(job);
        (void)pthread_mutex_lock(&lane->lock);
    }
    (void)pthread_mutex_unlock(&lane->lock);
    return NULL;
}

int mz_lanes_create(struct mz_lanes **ret)
{
    struct mz_lanes *lanes = calloc(1, sizeof(*lanes));

    if (!lanes)
        return -ENOMEM;
    for (int i = 0; i < MZ_LANES; i++) {
        struct lane *lane = &lanes->lane[i];
        (void)pthread_mutex_init(&lane->lock, NULL);
        (void)pthread_cond_init(&lane->wake, NULL);
        lane->last = &lane->first;
    }
    *ret = lanes;
    return 0;
}

static void lane_end(struct lane *lane)
{
    (void)pthread_mutex_lock(&lane->lock);
    lane->stop = true;
    bool started = lane->started;
    (void)pthread_cond_signal(&lane->wake);
    (void)pthread_mutex_unlock(&lane->lock);
    if (started)
        (void)pthread_join(lane->thread, NULL);
    (void)pthread_cond_destroy(&lane->wake);
    (void)pthread_mutex_destroy(&lane->lock);
}

void mz_lanes_destroy(struct mz_lanes *lanes)
{
    if (!lanes)
        return;
    for (int i = 0; i < MZ_LANES; i++)
        lane_end(&lanes->lane[i]);
    free(lanes);
}

int mz_lanes_push(struct mz_lanes *lanes, enum mz_lane which, struct mz_job *job)
{
    static const char *const names[MZ_LANES] = {"mz-view", "mz-act", "mz-wait"};
    struct lane *lane = &lanes->lane[which];
    int rc = 0;

    (void)pthread_mutex_lock(&lane->lock);
    if (!lane->started) {
        rc = mz_thread_start(&lane->thread, names[which], work, lane);
        lane->started = rc == 0;
    }
    if (rc == 0) {
        job->next = NULL;
        *lane->last = job;
        lane->last = &job->next;
        (void)pthread_cond_signal(&lane->wake);
    }
    (void)pthread_mutex_unlock(&lane->lock);
    return rc;
}
