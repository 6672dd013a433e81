/* Threads that fault injection can refuse and that take no signals of the host program. */
#ifndef MZ_OS_THREAD_H
#define MZ_OS_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Starts a thread with all signals blocked, named `name`. -EAGAIN, -ENOMEM. */
int mz_thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg);

/* A condition on CLOCK_MONOTONIC, and waiting on it for at most `ms`. Returns 0 or -ETIMEDOUT. */
int mz_cond_init(pthread_cond_t *cond);
int mz_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, uint32_t ms);

#endif
