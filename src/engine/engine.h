/* The engine seam: where memory lives and who computes.
 *
 * Three kinds of memory have to fit behind it: CPU-visible ranges with page granule (cpu), device memory at a fixed
 * address with 2 MiB granule that the CPU cannot see (CUDA virtual memory), and one allocation per piece without a
 * contiguous range (OpenCL SVM). So core never dereferences region memory on its own: it asks for the place where a
 * piece's bytes are to be written and says when they are there.
 *
 * The memory half is called by core from any thread, never twice at once for overlapping ranges (claims aside). The compute half is
 * called by the ggml glue only, from the thread that computes. Offsets are bytes from the start of the memory.
 * Errors are negative errno. */
#ifndef MZ_ENGINE_H
#define MZ_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

struct ggml_cgraph;
struct mz_engine;
struct mz_memory; /* the engine's own record of one region */

/* Says how bytes of one tensor are laid out in memory where that differs from the file (repacked weights).
 * Owned by whoever made it (the compute half of an engine); core only hands it back. */
struct mz_form;

struct mz_engine_traits {
    uint64_t granule_bytes;  /* commit and release work on multiples of this */
    bool cpu_visible;        /* place() is the memory itself: what was written there needs no place_done() */
    bool zero_filled;        /* committed memory reads as zeros */
    bool contiguous;         /* a region is one address range */
};

struct mz_engine_ops {
    const char *name;
    struct mz_engine_traits traits;

    /* Memory. `reserve` takes addresses only and gives nothing to count; `base` may be fictitious where the memory
     * is not CPU-visible. `persistent`: worth huge pages. -ENOMEM. */
    int (*reserve)(struct mz_engine *engine, uint64_t bytes, bool persistent, struct mz_memory **ret);
    void (*unreserve)(struct mz_engine *engine, struct mz_memory *memory);
    void *(*base)(struct mz_memory *memory);

    /* Says that a range (rounded outward to granules) is about to be committed, in pieces: what they share is then backed
     * as one. Takes no memory and makes no system call; release undoes it. May be NULL. */
    void (*claim)(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes);

    /* Backs a range with memory (rounded outward to granules); what is there already stays. -ENOMEM. */
    int (*commit)(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes);

    /* Takes the memory of all granules that lie wholly in the range, also of huge pages that reach beyond it.
     * -EINVAL when memory is locked. */
    int (*release)(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes);

    /* Bytes of the granules touched by the range that are in memory, and in the system's swap. */
    int (*counted)(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                   uint64_t *ret_resident, uint64_t *ret_swapped);

    /* Where the bytes of a committed range are written to or read from: the memory itself when CPU-visible,
     * else staging that place_done() (write = true: copied to the device) gives back. NULL: out of staging. */
    void *(*place)(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes);
    int (*place_done)(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                      void *place, bool write);

    /* Debug builds: makes any touch of the range a fault (`none`), or allows it again. May be NULL. */
    void (*trap)(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes, bool none);

    /* Writes `bytes` plain bytes, which start at `offset` in their tensor, to their place in packed form. Offset and
     * size are multiples of form_cut_bytes() or reach to the end. -ENOMEM, -EIO. */
    int (*pack)(struct mz_engine *engine, const struct mz_form *form, uint64_t offset, const void *plain,
                uint64_t bytes, void *place);
    uint64_t (*form_cut_bytes)(struct mz_engine *engine, const struct mz_form *form);

    /* Compute: runs the nodes [first, end) of the graph and waits for them. 0; -ECANCELED when the abort callback
     * said so; -EIO. Cutting a graph anywhere does not change a bit (CPU). */
    int (*compute)(struct mz_engine *engine, struct ggml_cgraph *graph, int first, int end);
    void (*set_threads)(struct mz_engine *engine, int threads);
    void (*set_abort)(struct mz_engine *engine, bool (*abort)(void *user), void *user);
};

/* An engine's record begins with this. */
struct mz_engine {
    const struct mz_engine_ops *ops;
};

#endif
