/* The memory watch of this process: starts src/pressure on our core and keeps its options.
 * Calls are safe from any thread and do not block unless said otherwise. */
#ifndef MZ_CONTROL_WATCH_H
#define MZ_CONTROL_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct mz_core;
struct mz_watch;

/* Starts the thread; `sources` false: the system is not watched, idle steps and trim levels still work.
 * -ENOMEM, -EAGAIN, -EMFILE. */
int mz_watch_start(struct mz_core *core, bool sources, struct mz_watch **ret);

/* Waits for what it is doing. NULL allowed. */
void mz_watch_stop(struct mz_watch *watch);

/* -EINVAL: no such level. */
int mz_watch_trim(struct mz_watch *watch, int level);

/* Options of settings.h whose home is the policy. -ENOENT, -EINVAL, -ERANGE; -ENOSPC when the text does not
 * fit. */
int mz_watch_option_set(struct mz_watch *watch, const char *name, const char *value);
int mz_watch_option_get(struct mz_watch *watch, const char *name, char *buf, size_t size);

/* Sources, level and last action as an object; NULL when out of memory. */
json_t *mz_watch_json(struct mz_watch *watch);

#endif
