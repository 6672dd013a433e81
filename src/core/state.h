/* The records of core, and who may touch them.
 *
 * One lock, core->lock, protects every field below that is not marked otherwise. It is held for bookkeeping only, never
 * during I/O, copying, encoding or a change of memory: whoever does these first moves the unit into a state that
 * keeps everyone else away (evicting, restoring), or pins it. An eviction makes two exceptions, both short: it counts the
 * pages of KV for its plan (2 to 5 us a unit), and gives back scratch while no graph may begin.
 *
 * Lock order: core->evict_turn, core->peek_lock, core->count_lock, core->lock, then the locks inside stack, store and
 * engine (leaves). */
#ifndef MZ_CORE_STATE_H
#define MZ_CORE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/core.h"
#include "core/options.h"
#include "core/profile.h"
#include "core/stack.h"
#include "core/store.h"
#include "os/file.h"
#include "os/transfer.h"

#define MZ_MIB (UINT64_C(1) << 20)

/* Weights are cut at multiples of this in their region: one read request, and two huge pages. */
#define MZ_UNIT_BYTES (4 * MZ_MIB)

/* Workers that bring units back while there is a limit. Two keep eight reads of 4 MiB in flight, and check 7 GB/s; each more
 * would raise the floor of all limits by a unit in motion and a buffer. */
#define MZ_LIMIT_WORKERS 2u

/* Smaller tensors (norms, biases) stay in memory and are counted. */
#define MZ_FIXED_BYTES (UINT64_C(64) << 10)

#define MZ_NO_ORDER UINT32_MAX

/* The states of a unit; unit.c has the diagram and checks it. */
enum mz_state { MZ_EMPTY, MZ_RESIDENT, MZ_EVICTING, MZ_EVICTED, MZ_RESTORING, MZ_LOST };

/* Valid copies of a unit's plain bytes, beside the memory; and of the packed ones, never without the others (packed.c). */
enum { MZ_COPY_FILE = 1, MZ_COPY_STORE = 2, MZ_COPY_STACK = 4, MZ_COPY_PACKED = 8 };

struct mz_unit {
    struct mz_tensor *tensor; /* fixed */
    uint32_t index;           /* fixed: its place in the tensor */
    uint32_t order;           /* rank in core->sequence */
    uint32_t layer;           /* attention nodes before its first reader, as taught */
    uint32_t pins;            /* slices that hold it; > 0: resident or empty, and stays so */
    uint32_t writers;         /* of these pins, those that write */
    uint32_t waited;          /* gates that wait to pin it together with others: making room leaves it alone */
    uint32_t heard;           /* the last pass that read it */
    uint8_t state;            /* enum mz_state */
    uint8_t copies;           /* MZ_COPY_* */
    bool wanted;              /* stands in the queue of what the gate waits for */
    bool cleaning;            /* a copy is being written while it stays in memory: no writer may start */
    bool early;               /* evicted, but its memory was committed with a neighbour's, as one huge page */
    bool aside;               /* restoring, but to elsewhere: its own memory is left as it is */
    bool lossy;               /* its bytes passed through a lossy codec since they were written */
    bool hashed;              /* hash is valid */
    bool adopted;             /* read by the pass that gave the order */
    uint64_t hash;            /* XXH3-64 of the plain bytes */
    uint64_t store_offset;    /* with MZ_COPY_STORE: its extent of mz_unit_stored_bytes() */
    uint64_t image_bytes;     /* with MZ_COPY_STORE: 0: plain bytes, else the size of an encoded image */
    uint64_t packed_offset;   /* with MZ_COPY_PACKED: its extent in the store */
    uint64_t packed_hash;     /* with MZ_COPY_PACKED: XXH3-64 of the bytes there */
    struct mz_slot slot;      /* with MZ_COPY_STACK */
    struct mz_unit *want_next;
};

struct mz_tensor {
    struct mz_region *region; /* fixed */
    char *name;               /* fixed, owned */
    uint64_t offset, bytes;   /* in the region; offset changes once, by mz_tensor_shift(), before any content */
    uint64_t span_lo, span_hi;/* the pages that belong to it alone */
    uint64_t cut_bytes;       /* 0: cut at multiples of MZ_UNIT_BYTES in the region */
    enum mz_kind kind;        /* fixed */
    uint32_t row_bytes;       /* fixed */
    int32_t layer;            /* fixed, from the name */
    bool is_v, fp16;          /* fixed */
    bool fixed;               /* stays in memory */
    uint32_t n;               /* units */
    struct mz_unit *units;    /* owned */
    struct mz_source *source; /* model file, or NULL */
    uint64_t source_offset;   /* of the tensor's first byte in it */
    const struct mz_form *form; /* packed layout of what is in memory; NULL: plain */
    bool reforming;           /* the layout changes: nothing of it comes back meanwhile */
};

struct mz_region {
    struct mz_core *core;     /* fixed */
    struct mz_memory *memory; /* fixed, the engine's */
    void *base;               /* fixed */
    uint64_t bytes;           /* fixed */
    enum mz_kind kind;
    struct mz_tensor **tensors; /* sorted by offset; owned */
    uint32_t n, room;
    uint64_t (*keep)[2];      /* scratch: ranges that must survive; owned */
    uint32_t n_keep;
    bool keep_all;
    struct mz_region *next;   /* core->regions */
};

/* A model file that weights come from. */
struct mz_source {
    char *path;           /* fixed, owned */
    struct mz_file file;  /* fixed after opening */
    uint32_t uses;        /* tensors, and whoever counts its pages now */
    struct mz_source *next;
};

/* Whether the profile is the machine's or a guess. */
enum mz_profile_state { MZ_PROFILE_UNTRIED, MZ_PROFILE_MISSING, MZ_PROFILE_THERE };

#define MZ_EVENTS 256

struct mz_core {
    struct mz_engine *engine; /* fixed */
    pthread_mutex_t lock;
    pthread_cond_t changed;   /* a unit reached a state, pins fell, room was made */
    pthread_cond_t work;      /* workers: something to restore */
    pthread_mutex_t count_lock; /* held while pages are counted: no region goes meanwhile */
    pthread_mutex_t evict_turn; /* one eviction, limit or clearing of the plan's buffers at a time */

    struct mz_options options;
    bool packed_failed;       /* a packed image could not be written; none is until the option is set again */
    struct mz_profile profile;
    uint32_t profile_state;   /* enum mz_profile_state */
    bool profile_started;     /* evict_turn: the thread below runs or has run */
    pthread_t profile_thread; /* measures once */
    struct mz_stack *stack;   /* fixed; own lock */
    struct mz_store *store;   /* fixed; own lock */

    struct mz_region *regions;
    struct mz_source *sources;

    /* Order (order.c). */
    struct mz_unit **sequence; /* all units by rank; rebuilt when stale */
    uint32_t n_units, sequence_room;
    bool sequence_stale;
    struct mz_unit **pass;     /* the pass being listened to; as large as sequence */
    uint32_t n_pass, pass_number;
    uint32_t adopted;          /* units of the pass that gave the order */

    /* Gate. */
    atomic_uint cut_wanted;    /* evictions that wait for pins to fall; read without the lock */
    uint32_t evict_waiting;    /* gates let them through before they pin again */
    bool gate_busy;            /* a graph waits for missing units: one at a time, so that two cannot starve */
    bool starved;              /* what a gate waits for found no room, and nothing has come back since */
    uint32_t graphs;           /* between enter and leave */
    uint32_t held;             /* pins in total */
    uint32_t position;         /* rank of what the pass uses next: behind the unit pinned last */
    bool computed;             /* a graph has ended: what a program loads first is loaded */
    uint64_t last_use_ns;      /* mz_os_now_ns() of the end of a graph or restore; time asleep is no idle time */

    /* Restoring. */
    struct mz_unit *want_head, *want_tail;
    bool ahead;                /* bring everything back, not only what is wanted */
    bool ahead_blocked;        /* ... but limit or headroom allow no more */
    uint32_t cursor;           /* nothing before this rank is evicted */
    uint32_t n_early;          /* units with that flag */
    uint32_t n_evicted, n_moving; /* units in those states (moving: evicting, restoring, cleaning) */
    uint32_t lost_said;        /* lost units that the log named since the last restore that was asked for */
    uint32_t n_workers;
    pthread_t workers[8];
    bool stop;

    /* Room (room.c): bytes counted as taken, always at least what the page tables say. */
    uint64_t unit_bytes;       /* spans of units in memory or in motion */
    uint64_t other_bytes;      /* scratch and fixed tensors */
    uint64_t bounce_bytes;     /* buffers of workers, and what measuring the machine takes */
    uint64_t limit_bytes;      /* 0: none */
    uint64_t ledger_peak_bytes;
    uint64_t need_bytes;       /* the largest pin seen: the floor of a limit */
    uint64_t keep_bytes;       /* of the machine's available memory, left alone while anything of ours can go */
    uint64_t headroom_bytes;   /* last reading, less what was taken since: what could be taken at all */
    uint64_t spare_bytes;      /* ... and what leaves keep_bytes alone */
    uint64_t headroom_ns;      /* when it was read; 0: read again */

    /* Eviction's buffers, grown with the units so that pressure finds them there. */
    struct mz_plan_unit *plan_units;
    struct mz_plan_step *plan_steps;
    struct mz_unit **plan_from, **plan_out;
    uint32_t plan_room;

    /* Reading through (content.c): plain bytes of the unit read last. */
    pthread_mutex_t peek_lock; /* protects the four below */
    struct mz_unit *peek_unit;
    void *peek;
    uint64_t peek_room;
    atomic_uint peek_void;     /* set with the lock held when any unit's copies are voided */

    /* Counters and events. */
    uint64_t read_bytes, decoded_bytes;   /* restored, by path */
    uint64_t read_last_ns, decoded_last_ns; /* mz_os_now_ns() of each path's last arrival */
    uint64_t evictions, restores, gate_waits, gate_wait_ns;
    uint64_t event_number;
    struct mz_event events[MZ_EVENTS];
};

/* ---- unit.c: geometry and the state machine; lock held unless said otherwise */

/* First byte in the region, size in bytes; need no lock once the tensor has content. */
uint64_t mz_unit_offset(const struct mz_unit *unit);
uint64_t mz_unit_bytes(const struct mz_unit *unit);
/* The pages that evicting it gives back: [lo, hi) in the region. */
void mz_unit_span(const struct mz_unit *unit, uint64_t *ret_lo, uint64_t *ret_hi);
/* Size of its extent in the store. */
uint64_t mz_unit_stored_bytes(const struct mz_unit *unit);
void *mz_unit_address(const struct mz_unit *unit);
/* Whether the unit counts as memory: resident, or in motion and not aside. */
bool mz_unit_holds_memory(const struct mz_unit *unit);
/* Moves it to another state, keeping the counts of core; asserts that the diagram has this arrow. */
void mz_unit_move(struct mz_unit *unit, enum mz_state to);
/* Puts an evicted unit in motion while its copies are read to elsewhere, and ends that: evicted again, or lost. */
void mz_unit_take_aside(struct mz_unit *unit);
void mz_unit_put_back(struct mz_unit *unit, enum mz_state to);
/* Notes that an evicted unit's memory is, or is no longer, committed early; the ledger counts it meanwhile. */
void mz_unit_early(struct mz_unit *unit, bool early);
/* Forgets copies and frees what they took. */
void mz_unit_void(struct mz_unit *unit, unsigned copies);
/* "blk.3.ffn_up.weight[2]" in a buffer of the caller. */
const char *mz_unit_name(const struct mz_unit *unit, char *buf, size_t size);
/* Cuts a tensor; all its units are empty. -ENOMEM. */
int mz_tensor_cut(struct mz_tensor *tensor);
void mz_tensor_free(struct mz_tensor *tensor);

/* ---- region.c; lock held */
uint32_t mz_region_index(const struct mz_region *region, const struct mz_tensor *tensor); /* its place among the tensors */
/* The tensor that holds the byte at `offset`, or NULL; the place of the first that begins behind it. */
struct mz_tensor *mz_region_at(const struct mz_region *region, uint64_t offset, uint32_t *ret_next);

/* ---- order.c; lock held */
void mz_order_changed(struct mz_core *core);          /* units came or went */
int mz_order_refresh(struct mz_core *core);           /* makes core->sequence true. -ENOMEM */
/* The four below want a true sequence. The rank that the pass uses next; of the first, when it is through. */
uint32_t mz_order_here(const struct mz_core *core);
/* The first place, in that order, of what the pass has used already: 0 when it is through, `adopted` before it begins. */
uint32_t mz_order_behind(const struct mz_core *core);
/* The k-th of the n_units units in the order of their next use: what the pass has ahead, then what it has behind, with which the
 * next one begins, then what passes do not read. And the place of a unit in that order. */
struct mz_unit *mz_order_next(const struct mz_core *core, uint32_t k);
uint32_t mz_order_place(const struct mz_core *core, const struct mz_unit *unit);
void mz_order_forget(struct mz_core *core, struct mz_tensor *tensor); /* its units leave */

/* ---- room.c; lock held */
uint64_t mz_room_ledger(const struct mz_core *core);
void mz_room_took(struct mz_core *core);              /* notes the peak after a sum grew */
bool mz_room_for(struct mz_core *core, uint64_t bytes); /* may this much be brought into memory now? */
uint64_t mz_room_floor(const struct mz_core *core);
/* Evicts what is used last, counted from now, until `bytes` fit: 0: they do; 1: they do now, and the lock was dropped
 * meanwhile; -EAGAIN: nothing can go. `keep`: the next so many units in the order of use stay; with that, only what needs
 * no writing goes. */
int mz_room_make(struct mz_core *core, uint64_t bytes, uint32_t keep);

/* ---- transport.c: one unit's bytes between memory and its copies. Without the lock; the unit is in motion (or being
 * cleaned), so nobody else touches its record. */
struct mz_bounce {
    void *memory;     /* owned by the job */
    uint64_t room;    /* bytes of it */
    uint64_t counted; /* of it or promised to it, in the ledger; core->lock */
};
int mz_unit_hash(struct mz_unit *unit, const void *plain);   /* remembers the hash; 0 */
int mz_unit_verify(const struct mz_unit *unit, const void *plain); /* 0 or -EBADMSG */
int mz_unit_verify_packed(const struct mz_unit *unit); /* what was read into its place from the packed copy; the same */
int mz_unit_extent(struct mz_unit *unit, uint64_t image_bytes); /* its place in the store. -ENOSPC ... */
/* Its bytes as they are in memory, plain or packed, into the store: extent, hash, write. The caller notes the copy. */
int mz_unit_write_store(struct mz_unit *unit);
/* The same in two halves, for several in flight: extent and hash, and a request to submit; then its result. The second
 * frees the extent when the write failed, and returns that error. */
int mz_unit_write_begin(struct mz_unit *unit, struct mz_request *ret);
int mz_unit_write_end(struct mz_unit *unit, int err, const struct mz_request *request);
void mz_unit_note_written(struct mz_unit *unit); /* lock held: it has that copy */
int mz_unit_encode(struct mz_unit *unit, bool *ret_lossy); /* onto the stack. -ENOMEM; the caller notes the copy */
int mz_unit_decode(struct mz_unit *unit, void *to); /* from the stack, checked by the image's own hash */
int mz_unit_decode_image(struct mz_unit *unit, const void *image, void *to);
int mz_unit_sink(struct mz_unit *unit);        /* the stack's image into an extent of the store; the caller notes it */
int mz_unit_read_plain(struct mz_unit *unit, void *to); /* any copy, verified, to memory elsewhere */
bool mz_unit_can_encode(const struct mz_unit *unit);
/* Lock held: bytes by which the ledger grows when the buffer is to hold `bytes`, and counting them, before it does. */
uint64_t mz_bounce_growth(const struct mz_core *core, const struct mz_bounce *bounce, uint64_t bytes);
void mz_bounce_count(struct mz_core *core, struct mz_bounce *bounce, uint64_t bytes);
int mz_bounce_grow(struct mz_core *core, struct mz_bounce *bounce, uint64_t bytes); /* counts what is not; -ENOMEM */
void mz_bounce_free(struct mz_core *core, struct mz_bounce *bounce);
const char *mz_unit_where(const struct mz_unit *unit); /* the file or folder of its copy, for messages */

/* ---- evict_input.c */
/* Buffers of a plan over all units, before pressure comes. evict_turn and lock held. -ENOMEM. */
int mz_evict_reserve(struct mz_core *core);

/* ---- evict_release.c */
/* Gives back the memory of scratch that no graph needs, at most `bytes`; what the page tables lost. Lock held. */
uint64_t mz_evict_scratch(struct mz_core *core, uint64_t bytes);
/* Releases the memory of n neighbours of a tensor, in state evicting and with copies, in one piece; they end evicted, or resident
 * on failure. Drops and takes the lock. Adds what the page tables lost to *freed. */
int mz_units_release(struct mz_unit *first, uint32_t n, uint64_t *freed);
/* Gives back the memory of a unit in motion that is not worth anything. Without the lock. Adds what the page tables lost. */
int mz_unit_give_back(const struct mz_unit *unit, uint64_t *freed);
/* Waits until the unit is at rest (not in motion, not pinned). Lock held, dropped while waiting. */
void mz_unit_settle(struct mz_unit *unit);
/* Settled unit in memory: makes a copy if it has none, then releases. Drops and takes the lock. */
int mz_unit_evict(struct mz_unit *unit, uint64_t *freed);

/* ---- restore_work.c */
int mz_restore_start(struct mz_core *core, uint32_t workers);
void mz_restore_stop(struct mz_core *core);
void mz_restore_kick(struct mz_core *core);           /* lock held: something to do for workers */

/* ---- restore_pick.c */
void mz_restore_want(struct mz_unit *unit);           /* lock held: the gate waits for it */
void mz_restore_unwant(struct mz_unit *unit);         /* lock held: no longer; nothing when it was not wanted */

/* ---- restore.c */
void mz_restore_commit_all(struct mz_core *core);     /* backs all that is evicted with memory, for the ablations */

/* ---- packed.c; lock held */
/* Whether releasing a unit in memory writes nothing first: it has every copy that it is to have. */
bool mz_unit_is_clean(const struct mz_unit *unit);
/* Whether the unit can do without the copy whose writing failed with `err`: a packed one, given up then and said once. */
bool mz_packed_give_up(struct mz_unit *unit, int err);
/* The option was set: tries again, or frees what the images take, but for those in use now. */
void mz_packed_apply(struct mz_core *core);

/* ---- profile_use.c */
void mz_profile_use(struct mz_core *core);   /* evict_turn held: reads it if the stack may be used now */
void mz_profile_fill(struct mz_core *core);  /* evict_turn held: starts measuring if there is none, and room for it */
void mz_profile_stop(struct mz_core *core);  /* waits for the measurement */
/* Lock held: restoring these bytes took so long on each path, both at once, with nothing else going on. */
void mz_profile_heard(struct mz_core *core, uint64_t read_bytes, uint64_t read_ns, uint64_t decoded_bytes,
                      uint64_t decode_ns);

/* ---- status.c; lock held */
/* Bytes that exist, those in memory (stack included), and those that nothing can take out of it. */
void mz_core_totals(const struct mz_core *core, uint64_t *ret_total, uint64_t *ret_remaining, uint64_t *ret_floor);

/* ---- source.c; lock held */
int mz_source_use(struct mz_core *core, const struct mz_origin *origin, struct mz_source **ret);
void mz_source_drop(struct mz_core *core, struct mz_source *source);

/* ---- event.c; lock held */
void mz_event_add(struct mz_core *core, const char *what, const char *why, uint64_t bytes, double ms);

#endif
