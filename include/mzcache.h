/* mzCache inside the process whose model it manages.
 *
 * The functions live in libggml-mz.so, the ggml backend plugin. A program that loads the plugin at run time
 * (every unmodified llama.cpp program does) fetches them by name:
 *
 *     ggml_backend_reg_t reg = ggml_backend_reg_by_name("MZ");
 *     mz_evict_fn evict = (mz_evict_fn)ggml_backend_reg_get_proc_address(reg, "mz_evict");
 *
 * and a program that links to the plugin calls them directly. Names, types and meaning are the same on both
 * ways.
 *
 * Terms. A unit is the smallest piece that is evicted and restored. total: bytes of weights on the device
 * MZ0, of the written part of the KV cache and of what else persists there. remaining: the part of it that
 * still occupies memory, compressed copies in memory counted in. Every percentage is one of total, in 1/10000
 * (permyriad): 2500 is 25 %.
 *
 * Errors. 0 or a negative errno; outputs are written on success only, unless said otherwise. Common to all:
 *     -ENODEV   no model was placed on MZ0 in this process yet
 *     -ECHILD   this process was forked from the one that owns the model; the library is off in it
 *     -EINVAL   an argument is NULL or out of range
 *
 * Threads. Every function may be called from any thread at any time, also while the model computes; not from
 * signal handlers. Structures belong to the caller. "Waits" says that a call may block: on storage, or until
 * computing reaches a point at which memory can be taken (at most about 100 ms or one node of the graph).
 *
 * Compatibility. Structures only grow, into their reserved fields, which are 0 today. */
#ifndef MZCACHE_H
#define MZCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MZ_API __attribute__((visibility("default")))
#else
#define MZ_API
#endif

/* What an eviction did. All sizes in bytes. */
struct mz_report {
    uint64_t asked_bytes;
    uint64_t freed_bytes;    /* as counted in the page tables, less what compressed copies took */
    uint64_t floor_bytes;    /* what cannot be freed now */
    uint64_t to_stack_bytes; /* plain bytes that went to compressed copies in memory */
    uint64_t to_store_bytes; /* bytes written to the swap file; weights are dropped, not written */
    uint64_t total_bytes, remaining_bytes; /* afterwards */
    double ms;                             /* time taken */
    uint64_t reserved[8];
};

/* Where the bytes of one kind are. */
struct mz_state_kind {
    uint64_t total_bytes;
    uint64_t resident_bytes; /* in memory, ready for use */
    uint64_t stack_bytes;    /* compressed in memory: their plain size */
    uint64_t store_bytes;    /* in the swap file only */
    uint64_t dropped_bytes;  /* in the model file only */
    uint64_t empty_bytes;    /* reserved and never written: no memory at all */
    uint64_t lost_bytes;     /* could not be read back; graphs that need them fail */
    uint64_t swapped_bytes;  /* taken by the system's own swap */
    uint64_t reserved[4];
};

/* The whole process at one moment. */
struct mz_state {
    struct mz_state_kind weights, kv, other;
    uint64_t total_bytes, remaining_bytes;
    uint64_t floor_bytes;  /* remaining cannot go below this now */
    uint64_t limit_bytes;  /* 0: none */
    uint64_t ledger_bytes; /* all memory that mzCache holds: model, compressed copies, buffers */
    uint64_t ledger_peak_bytes;
    uint64_t swap_file_bytes;
    uint64_t idle_ms; /* since the last computing or mz_restore(); 0 while computing, UINT64_MAX before the first */
    bool computing, restoring;
    uint64_t reserved[8];
};

/* Levels for mz_trim(), as Android's onTrimMemory and GLib's GMemoryMonitor hand them over. */
enum {
    MZ_TRIM_LEVEL_UI_HIDDEN = 20,  /* the window is hidden: copies are written, nothing is taken */
    MZ_TRIM_LEVEL_BACKGROUND = 40, /* in the background: evict down to the floor */
    MZ_TRIM_LEVEL_LOW = 50,        /* GMemoryMonitor: one step */
    MZ_TRIM_LEVEL_MEDIUM = 100,    /* GMemoryMonitor: a large step, at once */
    MZ_TRIM_LEVEL_CRITICAL = 255   /* GMemoryMonitor: everything, at once */
};

/* Version of the library, "0.1.0". Static. Works in every process and never fails. */
MZ_API const char *mz_version(void);

/* Frees at least `bytes` and less than `bytes` plus one unit or 2 MiB; what a pass over the model needs last
 * goes first. Frees what there is when asked for more: that is success, `ret->freed_bytes` and
 * `ret->floor_bytes` say so. bytes 0 frees nothing. `ret` may be NULL. Waits. -ENOSPC, -EIO: nothing could be
 * freed, because the swap file cannot be written. */
MZ_API int mz_evict(uint64_t bytes, struct mz_report *ret);

/* Evicts until at most this share of total remains (0..10000, in 1/10000). Nothing to do is success.
 * Otherwise like mz_evict(). Waits. */
MZ_API int mz_evict_to(uint32_t remaining_permyriad, struct mz_report *ret);

/* Brings everything back, in the order in which it will be used, as far as the limit and the machine's memory
 * allow. With `wait` false it returns once that has been started, and is cheap to call often; with true it
 * waits for the end. Never needed: computing restores by itself. -EIO: something could not be read back; the
 * log names it. */
MZ_API int mz_restore(bool wait);

/* Stops what mz_restore() started. Does not wait for reads under way. */
MZ_API int mz_restore_cancel(void);

/* Bounds all memory that mzCache holds (ledger), at every moment; 0: no bound. Evicts down to it first:
 * waits. -ERANGE: below what computing needs at least. In that case `*ret_floor`, if not NULL, is that least
 * number and the old limit stays. */
MZ_API int mz_limit(uint64_t bytes, uint64_t *ret_floor);

/* The state at this moment. Does not wait for storage or computing; takes up to milliseconds, since it counts
 * pages. */
MZ_API int mz_status(struct mz_state *ret);

/* Hands over a level of memory pressure that the host application was told: one of the MZ_TRIM_LEVEL_*
 * values, or any other level of onTrimMemory (5, 10, 15, 60, 80). Returns at once; a thread of the library
 * acts on it. -EINVAL: no such level. -ENOTSUP: watching memory is switched off. */
MZ_API int mz_trim(int level);

/* Sets an option by name; the text forms are those of mzcache(1). Copied. -ENOENT: no such option. -EINVAL:
 * no such value. -EBUSY: can be set before the start only, by its environment variable. */
MZ_API int mz_option_set(const char *name, const char *value);

/* Writes the option's value as text, ended by NUL. -ENOENT; -ENOSPC: `size` is too small. */
MZ_API int mz_option_get(const char *name, char *buf, size_t size);

/* Everything that is known, as one JSON object (mzcache-control(7) describes the keys), ended by NUL. On
 * success `*ret` is to be freed with free(). -ENOMEM. For people and tests; may be hundreds of KiB. */
MZ_API int mz_dump(char **ret);

/* Types of the functions above, for those who fetch them by name. */
typedef const char *(*mz_version_fn)(void);
typedef int (*mz_evict_fn)(uint64_t bytes, struct mz_report *ret);
typedef int (*mz_evict_to_fn)(uint32_t remaining_permyriad, struct mz_report *ret);
typedef int (*mz_restore_fn)(bool wait);
typedef int (*mz_restore_cancel_fn)(void);
typedef int (*mz_limit_fn)(uint64_t bytes, uint64_t *ret_floor);
typedef int (*mz_status_fn)(struct mz_state *ret);
typedef int (*mz_trim_fn)(int level);
typedef int (*mz_option_set_fn)(const char *name, const char *value);
typedef int (*mz_option_get_fn)(const char *name, char *buf, size_t size);
typedef int (*mz_dump_fn)(char **ret);

#ifdef __cplusplus
}
#endif
#endif
