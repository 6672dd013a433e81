/* Options by name, wherever they are kept: in core, in the memory watch, or as the ledger's limit. Any
 * thread. */
#ifndef MZ_CONTROL_VALUES_H
#define MZ_CONTROL_VALUES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct mz_core;
struct mz_watch;

/* Where options live; `watch` may be NULL: then its options are -ENOTSUP. */
struct mz_homes {
    struct mz_core *core;
    struct mz_watch *watch;
};

/* Setting the limit evicts down to it and waits. -ENOENT, -EINVAL, -ERANGE, -EBUSY (can be set at start
 * only), -ENOTSUP. */
int mz_value_set(const struct mz_homes *homes, const char *name, const char *value);

/* -ENOENT, -ENOSPC (buf too small), -ENOTSUP. */
int mz_value_get(const struct mz_homes *homes, const char *name, char *buf, size_t size);

/* All that this build has, {"name": "value"}; NULL when out of memory. */
json_t *mz_values_json(const struct mz_homes *homes);

/* Bounds the ledger: "500M", "40%" (of total now), "off". `*ret_bytes` is the bound, `*ret_floor`, also
 * written on -ERANGE, what is needed at least (0: not known). Waits. -EINVAL; -EAGAIN: a percentage, and
 * nothing is loaded yet. */
int mz_value_limit(struct mz_core *core, const char *value, uint64_t *ret_bytes, uint64_t *ret_floor);

/* Applies every MZ_* variable of the table that is set and is not core's. A percentage as limit is
 * applied by a thread of its own once the model has run. A value that is not allowed is logged and changes
 * nothing. */
void mz_values_from_environment(const struct mz_homes *homes);

#endif
