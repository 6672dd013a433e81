/* The ggml backend: buffers whose memory comes and goes, a device that computes on the CPU.
 *
 * ggml's calls come from the threads of the program. A buffer and its tensors belong to whoever made them,
 * and ggml asks for no locking of its own between calls on one buffer; buffer->lock is there because a buffer
 * is used by several contexts (weights). Lock order: buffer->lock, then what core takes. learn.c has a leaf
 * lock of its own. */
#ifndef MZ_GGML_GLUE_H
#define MZ_GGML_GLUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"

#include "core/core.h"
#include "engine/cpu/cpu.h"

#define MZ_DEVICE_NAME "MZ0"

/* Pages of 4 KiB: leaves are padded to whole ones, so that each starts on a page of its own. */
#define MZ_PAGE_BYTES 4096

static inline uint64_t mz_round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* ---- process.c */

/* The engine and the core of this process; NULL after logging why not. Any thread. */
struct mz_engine *mz_glue_engine(void);
struct mz_core *mz_glue_core(void);

/* ---- buffer.c */

/* What is known of one tensor that lies in a buffer by itself (not a view). Lives as long as the buffer;
 * tensor->extra points to it. */
struct mz_record {
    char name[GGML_MAX_NAME];
    struct ggml_tensor *tensor;      /* the program's; used until the buffer is settled */
    uint64_t offset, bytes;          /* in the region; offset moves when the buffer is settled and when a weight is loaded */
    uint64_t alloc_bytes;            /* with its padding */
    uint64_t row_bytes, plane_bytes; /* nb[1], nb[2] */
    int64_t planes;                  /* ne[2] * ne[3] */
    enum ggml_type type;
    struct mz_tensor *handle; /* core's; NULL until the buffer is settled */
    struct mz_form *form;     /* packed layout it was cut for, owned; NULL: plain */
    enum mz_kind kind;        /* once settled */
    bool viewed;              /* has views whose addresses are fixed */
    bool loaded;
};

struct mz_buffer {
    struct mz_region *region;   /* fixed */
    char *base;                 /* fixed */
    ggml_backend_buffer_t ggml; /* fixed: the buffer this belongs to */
    pthread_mutex_t lock;
    struct mz_record **records; /* in order of appearance; owned; lock */
    uint32_t n, room;           /* lock */
    uint32_t settled;           /* records handed to core; lock */
    atomic_bool scratch;        /* a compute buffer; set once */
    atomic_bool keep_all;       /* scratch: core was told to keep all of it */
    atomic_bool broken;         /* content could not be taken: graphs that touch it fail */
};

extern struct ggml_backend_buffer_type mz_buft;

/* Counts the times that a buffer broke or was made whole again: plans older than the last time look again. */
extern atomic_uint mz_buffers_broken;

/* Our buffer behind a tensor or view, or NULL. */
struct mz_buffer *mz_buffer_of(const struct ggml_tensor *tensor);

/* Makes sure that core knows the tensors of the buffer, now that its use is known. Negative errno of core. */
int mz_buffer_settle(struct mz_buffer *buffer);

/* The record of the tensor that a tensor or view lies in; NULL in scratch. */
struct mz_record *mz_record_of(const struct ggml_tensor *tensor);

/* Says that all of a scratch buffer must survive until the next graph (no-op when that is so already). */
void mz_buffer_keep_all(struct mz_buffer *buffer);

/* The tensor that stands for a weight while its units are pinned, or NULL: it is in the plain form. Core is
 * asked, since another context may have changed the form while nothing was pinned. */
struct ggml_tensor *mz_record_shadow(const struct mz_record *record);

/* Takes the packed form from a weight; waits until nothing of it is pinned. Negative errno. */
int mz_record_make_plain(struct mz_record *record);

/* ---- gather.c */

/* Moves the tensors of a weights buffer that nothing was written to yet, so that the small ones lie together.
 * buffer->lock held. */
void mz_buffer_gather(struct mz_buffer *buffer);

/* ---- record.c */

/* Fills a record from a tensor (name, sizes, form); records are freed by mz_record_free(). NULL: out of
 * memory. */
struct mz_record *mz_record_new(struct ggml_tensor *tensor, uint64_t offset);
void mz_record_free(struct mz_record *record);

/* Core's description of a record in a buffer of this use. */
struct mz_tensor_desc mz_record_desc(struct mz_record *record, enum ggml_backend_buffer_usage usage);

/* Smaller weights stay in memory, so how they lie towards their file does not matter. */
#define MZ_RECORD_SMALL_BYTES (UINT64_C(64) << 10)

/* Bytes of buffer that a tensor takes, padding and room for a shift included. */
size_t mz_record_alloc_bytes(const struct ggml_tensor *tensor);

/* ---- learn.c */

/* Notes that `op` will read a weight that is not loaded yet (ggml asks the device before loading). */
void mz_learn_op(const struct ggml_tensor *op);

/* A new form for the weight if all operations noted for one of its name, type and shape fit the same kernel;
 * NULL: plain. */
struct mz_form *mz_learn_form(const struct ggml_tensor *weight);

/* ---- touch.c */

/* What a graph touches, worked out once per graph uid. */
struct mz_swap {
    int node;
    struct mz_record *record;
};

struct mz_keep {
    struct mz_buffer *buffer;
    uint64_t (*ranges)[2]; /* sorted; owned */
    uint32_t n, room;
};

enum mz_node_kind {
    MZ_NODE_PLAIN,
    MZ_NODE_ROWS,    /* reads or writes rows of a tensor that an index known before the graph names */
    MZ_NODE_EXPERTS, /* MUL_MAT_ID: reads the experts that an index computed in the graph names */
    MZ_NODE_BY_ROWS, /* a product with a large weight: its rows are waited for run by run */
    MZ_NODE_SHIFT,   /* in-place ROPE over a KV tensor: chunks never written are passed over */
};

struct mz_special {
    int node;
    enum mz_node_kind kind;
    int ready_at; /* experts: the index is there once the nodes before this one are computed */
};

struct mz_plan {
    uint64_t uid;
    int n_nodes;
    struct ggml_tensor *first, *last; /* compared, never followed */
    uint64_t age;
    unsigned broken; /* mz_buffers_broken when it was made */
    int threads;     /* that the graph will be computed with */

    struct mz_pin *pins; /* each unit once, in the order of first touch */
    uint32_t n_pins, pins_room;
    uint32_t *map; /* hash of unit -> index in pins + 1 */
    uint32_t map_size;
    uint32_t *refs; /* by node: indices in pins; those of node i are [ref_end[i - 1], ref_end[i]) */
    uint32_t n_refs, refs_room;
    uint32_t *ref_end;
    double *cost; /* by node: estimated operations */
    double total_cost;
    int batch_rows; /* largest number of rows of a product: tells prompt from generation */

    struct mz_special *specials; /* in node order */
    uint32_t n_specials, specials_room;
    struct mz_swap *swaps;
    uint32_t n_swaps, swaps_room;
    struct mz_keep *keeps; /* scratch buffers of the graph and what of them survives it */
    uint32_t n_keeps, keeps_room;
    struct mz_site **sites; /* attention nodes computed by our kernel, in node order; owned */
    uint32_t n_sites;
    struct ggml_tensor **nodes; /* the graph's nodes with theirs in place; NULL without sites; owned */
    int *node_at;               /* by node: its index in `nodes`, and the end; owned */
    bool keep_all;              /* not the whole graph: everything in scratch survives */
    bool in_place;              /* writes persistent memory other than by SET_ROWS */
};

/* Works out a plan and teaches core the order. -ENOMEM; -EIO: it touches a broken buffer. */
int mz_plan_create(struct ggml_cgraph *graph, int threads, struct mz_plan **ret);
void mz_plan_destroy(struct mz_plan *plan);
bool mz_plan_is_for(const struct mz_plan *plan, const struct ggml_cgraph *graph, int threads);

/* Whether the node is a MZ_NODE_BY_ROWS. */
bool mz_plan_by_rows(const struct mz_plan *plan, int node);

/* The array with room for one more than the `n` it holds: itself, or a larger one that takes its place, *room elements of `size`
 * bytes. NULL: out of memory; the old one stays as it is. */
void *mz_grow(void *old, uint32_t n, uint32_t *room, size_t size);

/* Whether the CPU can read the tensor where it lies: in scratch, or in somebody's host memory. */
bool mz_is_readable(const struct ggml_tensor *tensor);

/* Units of a byte range of a tensor (its own or a view's), in our persistent memory. Calls for each. */
typedef int (*mz_unit_fn)(void *user, struct mz_unit *unit);
int mz_touch_range(const struct ggml_tensor *tensor, const void *from, uint64_t bytes, mz_unit_fn see,
                   void *user);
int mz_touch_all(const struct ggml_tensor *tensor, mz_unit_fn see, void *user);

/* Index of a unit in plan->pins, or UINT32_MAX. */
uint32_t mz_plan_find(const struct mz_plan *plan, const struct mz_unit *unit);

/* The integer tensor of row indices, read from memory. */
int64_t mz_index_at(const struct ggml_tensor *index, int64_t i);

/* ---- scratch.c */

/* Fills plan->keeps and plan->keep_all: what of the scratch buffers is worth something after the graph.
 * -ENOMEM. */
int mz_scratch_plan(struct mz_plan *plan, struct ggml_cgraph *graph);

/* Before and after the graph ran. */
void mz_scratch_begin(const struct mz_plan *plan);
void mz_scratch_end(const struct mz_plan *plan);

/* ---- graph.c */

#define MZ_PLANS_KEPT 16

/* The state of one ggml backend; belongs to the thread that computes. */
struct mz_backend {
    struct mz_core *core;
    struct mz_engine *stream;
    struct mz_plan *plans[MZ_PLANS_KEPT];
    uint64_t age;
    double ns_per_op[2]; /* measured: generation, prompt */
    ggml_abort_callback abort;
    void *abort_data;
    struct mz_attend *attend; /* attend.c */
    int threads;
};

enum ggml_status mz_graph_compute(struct mz_backend *backend, struct ggml_cgraph *graph);

/* Computes one node that stands in no graph, with sources from this one. As mz_engine_ops.compute. */
int mz_graph_compute_node(struct mz_engine *stream, struct ggml_cgraph *graph, struct ggml_tensor *node);

/* Asks the program's abort callback, if there is one; `user` is the backend. Polled while the gate waits. */
bool mz_abort_wanted(void *user);

/* ---- plans.c */

/* The plan for a graph, kept or new; the backend owns it. Errors of mz_plan_create(). */
int mz_plan_for(struct mz_backend *backend, struct ggml_cgraph *graph, struct mz_plan **ret);
void mz_plans_forget(struct mz_backend *backend);

/* ---- attend.c */

int mz_attend_create(struct mz_core *core, struct mz_backend *backend, struct mz_attend **ret);
void mz_attend_destroy(struct mz_attend *attend);

/* Fills plan->sites, nodes and node_at. -ENOMEM. */
int mz_attend_plan(struct mz_plan *plan, const struct ggml_cgraph *graph);
void mz_attend_forget(struct mz_plan *plan);
bool mz_attend_is_site(const struct mz_plan *plan, int node);

/* Around computing the nodes [from, to) with at most `threads` threads. `late`: the cache chunks of sites are
 * not pinned; they are taken as they come. The first site that failed, if any, is *ret_node. -ENOMEM;
 * mz_gate_pin_late()'s errors. */
int mz_attend_begin(struct mz_attend *attend, const struct mz_plan *plan, struct ggml_cgraph *graph, int from,
                    int to, int threads, bool late);
int mz_attend_end(const struct mz_plan *plan, int from, int to, bool late, int *ret_node);

/* ---- shift.c */

bool mz_shift_applies(const struct ggml_tensor *node);
/* Calls for each unit that the node will change: those that hold something, whole tokens only. */
int mz_shift_units(const struct ggml_tensor *node, mz_unit_fn see, void *user);
/* Computes the node over the same tokens. Its units are pinned. As mz_engine_ops.compute. */
int mz_shift_compute(struct mz_engine *stream, struct ggml_cgraph *graph, int node);

/* ---- rows.c */

/* Whether a product may be computed run by run of its weight's rows, with that many threads; then the bytes of
 * units that it has to hold at once. */
bool mz_rows_apply(const struct ggml_tensor *node, int threads);
uint64_t mz_rows_need(const struct ggml_tensor *node, int threads);
/* Waits for the rows of the weight, run by run, and computes with them; nothing is held before or after. As
 * mz_gate_pin() and mz_engine_ops.compute. */
int mz_rows_compute(struct mz_backend *backend, struct ggml_cgraph *graph, int node);

/* ---- device.c, reg.c */

extern struct ggml_backend_reg mz_reg;
extern struct ggml_backend_device mz_device;
ggml_backend_t mz_backend_init(void);
bool mz_is_backend(ggml_backend_t backend);
void mz_backend_set_n_threads(ggml_backend_t backend, int threads);
void mz_backend_set_abort_callback(ggml_backend_t backend, ggml_abort_callback abort, void *data);

#endif
