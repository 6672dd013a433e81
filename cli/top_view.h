/* The lines that mzcache top shows: the same on a terminal and in a file. Pure functions. */
#ifndef MZ_CLI_TOP_VIEW_H
#define MZ_CLI_TOP_VIEW_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Calls `line` for each line of one process (at most `width` characters): head, one bar per layer, last
 * events. Where that is more than `rows` lines, layers share bars; 0: no bound. `layers` and `events` may be
 * NULL. */
void top_view(const json_t *status, const json_t *layers, const json_t *events, int width, int rows,
              void (*line)(void *user, const char *text), void *user);

/* A bar of `width` characters that shows the shares of a layer's bytes: '#' in memory, '=' compressed there,
 * '-' swap file, '.' model file, '~' on its way, '!' lost. What was never written takes no part. buf holds
 * width + 1. */
void top_bar(const json_t *layer, int width, char *buf);

#endif
