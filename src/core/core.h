/* Core: which bytes of a model are in memory, where the others are, and how they come back.
 *
 * Knows no ggml. One struct mz_core per process. A region is the address range behind one buffer; tensors put into it are
 * cut into units, the smallest pieces that are evicted and restored. All calls are safe from any thread unless
 * said otherwise; "waits" means that the call may block on storage or on computing. Return values are 0 or negative errno;
 * outputs are written only on success. */
#ifndef MZ_CORE_H
#define MZ_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

struct mz_core;
struct mz_region;
struct mz_tensor;
struct mz_unit;

enum mz_kind {
    MZ_KIND_WEIGHT,  /* read only after loading */
    MZ_KIND_KV,      /* the conversation, in chunks */
    MZ_KIND_OTHER,   /* anything else that persists: adapters, recurrent state, snapshots */
    MZ_KIND_SCRATCH, /* compute buffers: worth nothing between graphs but for the ranges kept alive */
    MZ_KINDS
};

/* ------------------------------------------------------------------------------------------------- life */

struct mz_core_config {
    struct mz_engine *engine;   /* outlives core */
    const char *swap_folder;    /* where the swap file is made when first needed; NULL: the cache folder */
    uint32_t workers;           /* restoring threads; 0: as many as CPUs, at least 2, at most 8 */
};

/* -ENOMEM, -EAGAIN (no threads). No file is opened and no large memory taken yet. */
int mz_core_create(const struct mz_core_config *config, struct mz_core **ret);

/* All regions are gone already. Waits for the workers. NULL allowed. */
void mz_core_destroy(struct mz_core *core);

/* In a forked child, where core has no memory and no threads: closes the swap file. Nothing else may be called then. */
void mz_core_fork_child(struct mz_core *core);

/* ------------------------------------------------------------------------------------------------- regions and tensors */

/* Reserves addresses. `scratch`: a compute buffer (known at once or told later by mz_region_kind()). -ENOMEM. */
int mz_region_create(struct mz_core *core, uint64_t bytes, enum mz_kind kind, struct mz_region **ret);

/* Waits for the I/O of its units; touches no tensor of the caller. NULL allowed. */
void mz_region_destroy(struct mz_region *region);

void *mz_region_base(const struct mz_region *region);
uint64_t mz_region_bytes(const struct mz_region *region);
enum mz_kind mz_region_get_kind(const struct mz_region *region);

/* The buffer's use became known. Before the first tensor is added, or between kinds that are not scratch. */
void mz_region_set_kind(struct mz_region *region, enum mz_kind kind);

struct mz_tensor_desc {
    const char *name;        /* display and tests only; copied */
    uint64_t offset, bytes;  /* in the region */
    enum mz_kind kind;       /* not scratch */
    uint64_t cut_bytes;      /* units begin at multiples of this from the tensor's start (packed or chunked tensors: a
                                multiple of the engine's granule); 0: units of 4 MiB at granule borders */
    uint32_t row_bytes;      /* of one token (KV) or row; 0: unknown */
    int32_t layer;           /* from the name, for display and codec keys; -1: none */
    bool is_v;               /* KV only */
    bool fp16;               /* elements are fp16: codecs may apply */
};

/* Cuts the tensor into units (state never written) and returns its handle, which lives as long as the region. A tensor
 * that lies in the range of one added before gets that one's handle. -ENOMEM, -ERANGE, -EBUSY (partly overlapping). */
int mz_region_add(struct mz_region *region, const struct mz_tensor_desc *desc, struct mz_tensor **ret);

/* The tensor that holds the byte at `offset`, or NULL. */
struct mz_tensor *mz_region_find(struct mz_region *region, uint64_t offset);

/* Before anything was written: moves the tensor's start by `shift` bytes (so that direct reads fit its file). -EBUSY. */
int mz_tensor_shift(struct mz_tensor *tensor, uint64_t shift);

uint32_t mz_tensor_units(const struct mz_tensor *tensor);
struct mz_unit *mz_tensor_unit(struct mz_tensor *tensor, uint32_t index);

/* Units [*ret_first, *ret_end) that a range of the tensor (bytes from its start) touches. */
void mz_tensor_range(const struct mz_tensor *tensor, uint64_t offset, uint64_t bytes, uint32_t *ret_first,
                     uint32_t *ret_end);
const char *mz_tensor_name(const struct mz_tensor *tensor);
uint64_t mz_tensor_offset(const struct mz_tensor *tensor);
uint64_t mz_tensor_bytes(const struct mz_tensor *tensor);

/* Whether the unit was never written since allocation or clear: it reads as zeros and has no memory. */
bool mz_unit_is_empty(const struct mz_unit *unit);

/* Memory that the unit takes while it is resident: the pages that evicting it gives back. */
uint64_t mz_unit_span_bytes(const struct mz_unit *unit);

/* ------------------------------------------------------------------------------------------------- content */

/* Where a weight's bytes can be read again. */
struct mz_origin {
    const char *path;
    uint64_t dev, inode, offset;
};

/* First and whole content of a weight: copies `bytes` (= the tensor's) from `plain`, in packed form when `form` is not
 * NULL, remembers a hash of every unit and, with `origin` not NULL, that the file holds them. Without an origin a packed
 * tensor is written to the store once (so that its plain bytes exist). When a limit leaves no room, units begin evicted.
 * `form` outlives the region. -EIO, -ENOMEM. Waits. */
int mz_tensor_load(struct mz_tensor *tensor, const void *plain, const struct mz_origin *origin,
                   const struct mz_form *form);

/* Changes the layout of a loaded weight to plain or packed; evicts what is in the other form. Not while pinned. */
int mz_tensor_set_form(struct mz_tensor *tensor, const struct mz_form *form);
const struct mz_form *mz_tensor_form(const struct mz_tensor *tensor);

/* Any bytes of a region, across tensors and gaps. Writing restores what is covered in part only, marks units written and
 * voids their copies; reading goes through to the copies without making anything resident, and gives the plain bytes of
 * packed weights. Reading a lost unit gives 0xFF bytes and -EIO. Both wait. */
int mz_region_write(struct mz_region *region, uint64_t offset, const void *from, uint64_t bytes);
int mz_region_fill(struct mz_region *region, uint64_t offset, uint8_t value, uint64_t bytes);
int mz_region_read(struct mz_region *region, uint64_t offset, void *to, uint64_t bytes);

/* Copies between regions of one core, unit by unit: what was never written stays so on the other side. */
int mz_region_copy(struct mz_region *to, uint64_t to_offset, struct mz_region *from, uint64_t from_offset,
                   uint64_t bytes);

/* Everything becomes `value`; with 0 all units become never written, their copies and memory go. Waits for I/O. */
int mz_region_clear(struct mz_region *region, uint8_t value);

/* Scratch: the ranges that must survive until the next graph (sorted pairs of offset and end); NULL with n 0: none,
 * `all`: everything. Replaces what was said before. */
void mz_region_keep(struct mz_region *region, const uint64_t (*ranges)[2], uint32_t n, bool all);

/* ------------------------------------------------------------------------------------------------- computing */

/* One first reading of a unit in a graph. */
struct mz_lesson {
    struct mz_unit *unit;
    uint32_t layer; /* attention nodes before it */
};

/* Teaches the consumption order from one graph (units in the order of the first node that reads them, each once). The
 * splits of one decode come in turn and are merged; a small pass (an adapter, an encoder) does not replace a large one. */
void mz_core_teach(struct mz_core *core, const struct mz_lesson *lessons, uint32_t n);

/* Polled while the gate waits; true: give up. */
typedef bool (*mz_abort_fn)(void *user);

/* Brackets a graph: between them the process counts as computing. Restoring starts at `enter`, at the first unit that is
 * missing. One thread per graph; several graphs (contexts) may run at once. */
void mz_gate_enter(struct mz_core *core);
void mz_gate_leave(struct mz_core *core);

/* Waits until a graph has been computed and something is loaded: before, loading may not be over. Core must live on. */
void mz_gate_wait_first(struct mz_core *core);

enum { MZ_PIN_READ = 0, MZ_PIN_WRITE = 1 };

struct mz_pin {
    struct mz_unit *unit;
    uint8_t flags;
    bool held; /* set by the gate */
};

/* Waits until all units are in memory and holds them there, in one step. Written units lose their copies at once; a
 * never-written unit pinned for writing becomes resident, for reading it stays as it is. -ECANCELED: abort said so. -EIO: a unit is
 * lost (named in the log). -ENOSPC: the limit cannot hold them at once. On error nothing is held. A unit may appear once. */
int mz_gate_pin(struct mz_core *core, struct mz_pin *pins, uint32_t n, mz_abort_fn abort, void *user);

/* Pins all that can be pinned without waiting: 0 when all are held, -EAGAIN when none is held because one is missing. */
int mz_gate_try_pin(struct mz_core *core, struct mz_pin *pins, uint32_t n);

/* One unit more, while others are held (attention takes KV chunks in flight): 0; -EAGAIN when it is missing and `block`
 * is false (it is asked for then); -ECANCELED, -EIO, -ENOSPC. */
int mz_gate_pin_late(struct mz_core *core, struct mz_pin *pin, bool block, mz_abort_fn abort, void *user);

/* Lets go of those that are held. */
void mz_gate_unpin(struct mz_core *core, struct mz_pin *pins, uint32_t n);

/* Asks for units ahead of a pin, first come first served, without waiting. */
void mz_gate_want(struct mz_core *core, struct mz_unit *const *units, uint32_t n);

/* A node of a graph touches this many bytes of units at once: the floor of any limit. A limit in force below that is
 * raised, with a message. Called once for each new graph with its largest node. */
void mz_gate_need(struct mz_core *core, uint64_t bytes);

/* Someone waits for memory: computing should reach a slice border soon. */
bool mz_gate_cut_wanted(const struct mz_core *core);

/* ------------------------------------------------------------------------------------------------- commands */

struct mz_evict_report {
    uint64_t asked_bytes, freed_bytes; /* freed: as counted in the page tables, less what the stack took */
    uint64_t floor_bytes;              /* what cannot be freed now */
    uint64_t to_stack_bytes, to_store_bytes;
    uint64_t total_bytes, remaining_bytes;
    int err; /* of a write that failed: what it was for stays in memory; 0: none did */
    double ms;
};

/* Frees at least `bytes`, and less than `bytes` plus one unit or 2 MiB, backward-out. Waits for computing to reach a slice
 * border if it needs what is pinned. Frees less when there is no more (floor). -ENOSPC and others only when nothing could be freed
 * because of failing writes; what was freed stays freed. `why`: for the event log. */
int mz_core_evict(struct mz_core *core, uint64_t bytes, const char *why, struct mz_evict_report *ret);

/* Evicts down to a share of the total, in 1/10000 (0..10000). Nothing to do is success. */
int mz_core_evict_to(struct mz_core *core, uint32_t remaining_permyriad, const char *why,
                     struct mz_evict_report *ret);

/* Starts bringing everything back (as far as limit and headroom allow) in order of use; `wait`: until nothing more can
 * be brought back. Counts as use. Cheap when nothing is missing. -EIO: a unit was lost meanwhile. */
int mz_core_restore(struct mz_core *core, bool wait);

/* Stops what mz_core_restore() started; computing still gets what it needs. */
void mz_core_restore_stop(struct mz_core *core);

/* Bounds the ledger at every moment; 0: no limit. Evicts down to it first; where that fails the limit stays all the same, and the
 * error is that of mz_core_evict(). -ERANGE: below the floor, which is returned. */
int mz_core_limit(struct mz_core *core, uint64_t bytes, uint64_t *ret_floor);

/* Of the machine's available memory, restoring leaves that much alone: what does not fit is streamed. Only what computing
 * needs at once, when nothing of ours can go any more, goes below. 0 at start. Any thread. */
void mz_core_keep(struct mz_core *core, uint64_t bytes);

/* Writes copies of units that have none to the store, coldest first, at most `bytes`, until computing or eviction wants
 * the machine. */
int mz_core_clean(struct mz_core *core, uint64_t bytes, uint64_t *ret_written);

/* Options by name (list: options.c): kv, order, overlap, paths, rule, ... Values as text. -ENOENT, -EINVAL; -EBUSY:
 * it counts at start only, by its environment variable. */
int mz_core_option_set(struct mz_core *core, const char *name, const char *value);
int mz_core_option_get(struct mz_core *core, const char *name, char *buf, size_t size);

/* ------------------------------------------------------------------------------------------------- state */

struct mz_kind_status {
    uint64_t total_bytes;     /* bytes that exist: weights, written KV, other; scratch: reserved */
    uint64_t resident_bytes;  /* of units in memory */
    uint64_t stack_bytes;     /* plain bytes whose only copy in memory is on the stack */
    uint64_t store_bytes;     /* evicted to the swap file */
    uint64_t dropped_bytes;   /* evicted, in the model file */
    uint64_t empty_bytes;     /* never written */
    uint64_t lost_bytes;
    uint64_t counted_bytes;   /* in memory as the page tables say */
    uint64_t swapped_bytes;   /* in the system's swap */
    uint64_t clean_bytes;     /* resident; evicting them writes nothing */
    uint64_t lossy_bytes;     /* passed through a lossy codec */
};

struct mz_core_status {
    struct mz_kind_status kind[MZ_KINDS];
    uint64_t total_bytes, remaining_bytes, floor_bytes, limit_bytes;
    uint64_t stack_used_bytes, stack_reserve_bytes, bounce_bytes, ledger_bytes, ledger_peak_bytes;
    uint64_t store_file_bytes, store_written_bytes; /* size of the swap file; all bytes ever written to it */
    uint64_t store_packed_bytes;                    /* of the swap file: packed weights (option repacked) */
    uint64_t read_bytes, decoded_bytes;             /* ever restored, by path */
    uint64_t evictions, restores, gate_waits, gate_wait_ns;
    uint64_t model_cached_bytes;                    /* page cache of the model files */
    uint64_t last_use_ns;                           /* mz_os_now_ns() when a graph, or a restore that was asked for, ended last; 0: never */
    bool computing, restoring;
};

/* Everything. Asks the kernel which pages are in memory, which may take some milliseconds for each gigabyte. */
void mz_core_status(struct mz_core *core, struct mz_core_status *ret);

/* What is known without asking the kernel: for those who look once a second and more often. */
struct mz_core_brief {
    uint64_t total_bytes, remaining_bytes, floor_bytes, limit_bytes;
    uint64_t dirty_bytes; /* in memory, and would have to be written to leave it */
    uint64_t last_use_ns; /* as above */
    bool computing, restoring;
};

void mz_core_brief(struct mz_core *core, struct mz_core_brief *ret);

/* Path of the file that most weights came from; "" when there is none, or buf is too small for it. */
void mz_core_model(struct mz_core *core, char *buf, size_t size);

/* Milliseconds since that last use: 0 while computing, UINT64_MAX when there was none. Pure but for the clock. */
uint64_t mz_core_idle_ms(uint64_t last_use_ns, bool computing);

/* The profile that plans go by (core/profile.h): as measured or guessed, with what was learned in use. */
struct mz_profile;
void mz_core_profile(struct mz_core *core, struct mz_profile *ret);

/* One unit's state, for display and tests. `where`: "resident", "stack", "store", "file", "empty", "lost", "moving". */
struct mz_unit_view {
    const char *tensor, *where;
    enum mz_kind kind;
    int32_t layer;
    uint32_t index, order;
    uint64_t bytes;
    bool clean, lossy, is_v, pinned;
};

/* Calls for each unit in consumption order, under the lock: the callback must be short and call nothing of core. */
void mz_core_visit(struct mz_core *core, void (*see)(void *user, const struct mz_unit_view *view), void *user);

/* Recent events, oldest first, those with number > since. Text is JSON-free. */
struct mz_event {
    uint64_t number, wall_ns;
    const char *what; /* "evict", "restore", "limit", "clean", "lost", "refused" */
    char why[64];
    uint64_t bytes;
    double ms;
};
void mz_core_events(struct mz_core *core, uint64_t since, void (*see)(void *user, const struct mz_event *event),
                    void *user);

#endif
