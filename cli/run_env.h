/* What mzcache run sets for the program that it starts: one list. Pure but for the environment. */
#ifndef MZ_CLI_RUN_ENV_H
#define MZ_CLI_RUN_ENV_H

#include <stdbool.h>
#include <stddef.h>

struct run_set {
    const char *name;      /* environment variable */
    const char *value;     /* NULL: it is the plugin's path */
    const char *others[5]; /* the user's own word on it: options of the program, or variables (NULL behind the
                              last) */
    const char *why;
};

/* Ends with an entry whose name is NULL. */
extern const struct run_set run_sets[];

/* Whether the user decided this: by its variable, or by one of the others in the environment or among the
 * program's arguments. */
bool run_is_given(const struct run_set *set, char *const *argv);

/* Prints what in the arguments leaves parts of the model outside of mzCache, one line each; returns the
 * number of lines. */
int run_warn(char *const *argv);

/* Finds libggml-mz.so: $MZ_PLUGIN, beside the command, in the lib folders next to it, where it was installed.
 * Absolute. -ENOENT. */
int run_find_plugin(char *buf, size_t size);

#endif
