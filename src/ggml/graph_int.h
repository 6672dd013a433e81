/* What the two files of running a graph share. */
#ifndef MZ_GGML_GRAPH_INT_H
#define MZ_GGML_GRAPH_INT_H

#include "ggml/glue.h"

/* One run of one graph. */
struct run {
    struct mz_backend *backend;
    struct ggml_cgraph *graph;
    const struct mz_plan *plan;
    struct mz_pin *pins; /* those of the plan, then those of rows named by indices; owned */
    uint32_t n, room;
    uint32_t *row_refs; /* pins of special nodes, in their order; owned */
    uint32_t n_row_refs, row_refs_room;
    uint32_t *row_end; /* by special */
    uint32_t *mark;    /* by pin: the slice it was last taken for; owned */
    uint32_t slice;
    struct mz_pin *held; /* what is pinned now; owned */
    uint32_t n_held;
    uint32_t special; /* first one not before the current node */
    bool late;        /* attention takes cache chunks while they come in */
    int failed_node;  /* attention node that could not get its chunks */
};

/* ---- graph_pins.c */

/* The pins of the run: those of its plan and those that it names itself. -ENOMEM; mz_run_free() in any case. */
int mz_run_begin(struct run *run);
void mz_run_free(struct run *run);

/* Puts what node i needs and the slice does not hold yet behind what is held; returns how many. Nodes come in order. */
uint32_t mz_run_collect(struct run *run, int i);

#endif
