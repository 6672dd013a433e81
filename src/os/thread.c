/* Starting threads. A struct start belongs to the starter until pthread_create() succeeds, then to the
 * thread. */
#include "os/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "os/fault.h"
#include "os/os.h"

struct start {
    void *(*run)(void *);
    void *arg;
    char name[16];
};

static void *begin(void *arg)
{
    struct start start = *(struct start *)arg;
    free(arg);
    mz_os_thread_name(start.name);
    return start.run(start.arg);
}

int mz_thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg)
{
    int r = mz_fault_hit(MZ_FAULT_THREAD);
    if (r)
        return r;
    struct start *start = mz_alloc(sizeof *start);
    if (!start)
        return -ENOMEM;
    start->run = run;
    start->arg = arg;
    snprintf(start->name, sizeof start->name, "%s", name);

    /* The new thread inherits the mask, so that no signal finds it open for a moment. */
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    r = pthread_create(&thread, NULL, begin, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r) {
        free(start);
        return -r;
    }
    *ret = thread;
    return 0;
}

int mz_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int r = pthread_condattr_init(&attr);
    if (r)
        return -r;
    r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (!r)
        r = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return -r;
}

int mz_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, uint32_t ms)
{
    uint64_t until = mz_os_now_ns() + (uint64_t)ms * UINT64_C(1000000);
    struct timespec deadline = {.tv_sec = (time_t)(until / UINT64_C(1000000000)),
                                .tv_nsec = (long)(until % UINT64_C(1000000000))};
    return pthread_cond_timedwait(cond, lock, &deadline) == ETIMEDOUT ? -ETIMEDOUT : 0;
}
