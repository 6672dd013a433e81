/* Options of core: one table with name, environment variable, default, allowed values and meaning of each.
 *
 * A struct mz_options is plain data: whoever owns it guards it. Names and values are text, so that the
 * environment, the control socket and mz_core_option_set() share one door. */
#ifndef MZ_CORE_OPTIONS_H
#define MZ_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/plan.h"

enum mz_kv_format { MZ_KV_EXACT, MZ_KV_Q8 };
enum mz_order_rule { MZ_ORDER_BACKWARD, MZ_ORDER_FORWARD, MZ_ORDER_RANDOM };
enum mz_overlap { MZ_OVERLAP_FULL, MZ_OVERLAP_NONE, MZ_OVERLAP_ALLOC_RELOAD, MZ_OVERLAP_RELOAD_PREFILL };
enum mz_paths { MZ_PATHS_PARALLEL, MZ_PATHS_SEQUENTIAL };

struct mz_options {
    uint32_t kv;                       /* enum mz_kv_format */
    uint32_t order;                    /* enum mz_order_rule */
    uint32_t overlap;                  /* enum mz_overlap */
    uint32_t paths;                    /* enum mz_paths */
    uint32_t rule;                     /* enum mz_rule */
    uint32_t workers;                  /* restoring threads; 0: as many as CPUs, at least 2, at most 8 */
    uint32_t request_bytes;            /* of one read or write; 0: what the profile says */
    uint32_t uring, clean, swap_force, repacked; /* 0 or 1 */
    char swap_folder[4096];            /* "": the cache folder */
};

/* One row of the table, all constant strings. */
struct mz_option_info {
    const char *name;    /* "swap-folder" */
    const char *env;     /* "MZ_SWAP_FOLDER" */
    const char *initial; /* the default, as text */
    const char *values;  /* "exact|q8", "0..64", "SIZE", "PATH" */
    const char *meaning;
};

/* The rows in the order of documentation; NULL behind the last. */
const struct mz_option_info *mz_options_row(uint32_t index);

/* Whether the option counts at start only: core reads it once, when it is made. */
bool mz_options_at_start(const char *name);

/* All defaults. */
void mz_options_init(struct mz_options *options);

/* Defaults, then every variable of the environment that is set. One that is not allowed is left at its
 * default and its name and value are logged as a warning; the first error is returned too (-EINVAL,
 * -ENAMETOOLONG), or 0. Reads the environment. */
int mz_options_from_env(struct mz_options *options);

/* Sets one by name. Sizes are bytes, or with K, M, G (KiB, MiB, GiB). -ENOENT: no such option; -EINVAL: a
 * value that is not allowed; -ENAMETOOLONG. On error nothing changes. */
int mz_options_set(struct mz_options *options, const char *name, const char *value);

/* The value as text that mz_options_set() takes. -ENOENT; -ENOSPC: `size` is too small. */
int mz_options_get(const struct mz_options *options, const char *name, char *buf, size_t size);

/* One line per option at debug level: name, value, where it differs from the default. */
void mz_options_log(const struct mz_options *options);

#endif
