/* Threads that fault injection can refuse and that take no signals of the host program. */
#ifndef MZ_OS_THREAD_H
#define MZ_OS_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Starts a joinable thread named `name` (15 characters count) with all signals blocked; only those that a fault of
 * the thread itself raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL) stay open, so that the host's crash handler sees them.
 * -EAGAIN, -ENOMEM. */
int mz_thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg);

/* A condition on CLOCK_MONOTONIC, and waiting on it for at most `ms`. Returns 0 (also when woken for nothing: check
 * what is waited for) or -ETIMEDOUT. The caller holds the lock. */
int mz_cond_init(pthread_cond_t *cond);
int mz_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, uint32_t ms);

#endif
