/* The one core of a process, and all that runs beside it: control socket, memory watch, options from the
 * environment.
 *
 * Nothing here is ever torn down while the process lives: ggml never unloads a plugin, and exit-time
 * destructors of the program still use the core. At exit the socket file is unlinked; no thread is joined, so
 * exiting cannot hang. A forked child finds the library switched off: the model's memory is not inherited,
 * and neither are threads. */
#ifndef MZ_CONTROL_PROCESS_H
#define MZ_CONTROL_PROCESS_H

#include <stdbool.h>

struct mz_core;
struct mz_engine;
struct mz_watch;

/* Creates the core with the environment's options, starts the control socket and the memory watch. Later
 * calls return the same core and look at nothing else. Any thread. -ENOMEM, -EAGAIN (no threads), -ECHILD
 * (forked). A socket or a watch that cannot be had, and a variable that holds nonsense, are logged and are no
 * error. */
int mz_process_start(struct mz_engine *engine, struct mz_core **ret);

/* The core, or NULL: not started, or forked. Any thread, does not block. */
struct mz_core *mz_process_core(void);

/* The memory watch, or NULL. Any thread, does not block. */
struct mz_watch *mz_process_watch(void);

/* Whether this is a forked child of a process that had started. Any thread. */
bool mz_process_forked(void);

#endif
