/* The state of everything as JSON: what status, top, log and the tests read. mzcache-control(7) lists the
 * keys.
 *
 * All functions return a new reference, or NULL when out of memory. Any thread; they take core's lock for
 * moments and do not wait for storage or computing. */
#ifndef MZ_CONTROL_DUMP_H
#define MZ_CONTROL_DUMP_H

#include <jansson.h>
#include <stdint.h>

#include "control/values.h"

struct mz_evict_report;

/* Sets a number; one above INT64_MAX, which stands for "unknown" and "without bound", becomes null. */
void mz_json_put(json_t *object, const char *key, uint64_t value);

/* The name of this process, as the kernel has it; "?" when it cannot be told. */
json_t *mz_dump_program(void);

/* Totals, kinds, process, options, pressure. */
json_t *mz_dump_status(const struct mz_homes *homes);

/* What other processes need to know to share the work: remaining, floor, idle time. */
json_t *mz_dump_brief(struct mz_core *core);

/* Per layer, at most MZ_DUMP_LAYERS of them (the last entry's "layer" is -1: what belongs to none), and
 * "left_out". */
#define MZ_DUMP_LAYERS 160
json_t *mz_dump_layers(struct mz_core *core);

/* Units number [from, from + count) in consumption order, and "next" (null at the end). count 0: all. */
json_t *mz_dump_units(struct mz_core *core, uint64_t from, uint64_t count);

/* Events with a number above `since`, at most `count` of them, the oldest first. */
json_t *mz_dump_events(struct mz_core *core, uint64_t since, uint64_t count);

json_t *mz_dump_report(const struct mz_evict_report *report);

/* All of the above in one object. */
json_t *mz_dump_all(const struct mz_homes *homes);

#endif
