/* A product with a large weight, computed as the rows of the weight come in.
 *
 * The largest weight is mostly the output matrix: a quarter of a small model, and the last thing that a token needs.
 * Waiting for all of it would leave the cores idle while it is read and storage idle while it is multiplied, and a
 * limit would have to hold all of it at once. A row of the weight makes one element of each column of the result, so a
 * run of rows is a product of its own over the same memory.
 *
 * Which rows go together does not change a bit. An element is one sum over the columns, in an order that depends on
 * the kernel alone, and kernels are chosen by what a run has in common with the whole: a number of rows that is a
 * multiple of 16 (llamafile/sgemm.cpp, matmul(): other weights are waited for whole) and of a group of the packed
 * layout, and chunks of an even number of rows for each thread (ggml-cpu.c, num_rows_per_vec_dot), which 256 rows for
 * each thread give. */
#include <errno.h>
#include <stdlib.h>

#include "ggml/glue.h"
#include "os/fault.h"

/* A run waits for this much. */
#define RUN_BYTES (UINT64_C(8) << 20)

/* Weights of fewer runs are waited for whole. */
#define RUNS_LEAST 4

#define ROWS_STEP       64
#define ROWS_WHOLE      16 /* what the weight's own number of rows has to be a multiple of */
#define ROWS_PER_THREAD 256

/* ---- which products */

static bool is_plain_product(const struct ggml_tensor *node)
{
    const struct ggml_tensor *weight = node->src[0], *in = node->src[1];

    return node->op == GGML_OP_MUL_MAT && ggml_get_op_params_i32(node, 1) == 0 && !weight->view_src &&
           mz_record_of(weight) && !mz_record_of(in) && !mz_record_of(node) && ggml_is_contiguous(weight) &&
           ggml_is_contiguous(node) && weight->ne[1] % ROWS_WHOLE == 0 && weight->ne[2] == 1 &&
           weight->ne[3] == 1 && in->ne[2] == 1 && in->ne[3] == 1;
}

/* Whether a run of whole steps is whole groups of the packed layout. */
static bool form_allows(const struct mz_record *record, size_t row_bytes)
{
    struct mz_engine *engine = mz_glue_engine();

    return !record->form || ROWS_STEP * row_bytes % engine->ops->form_cut_bytes(engine, record->form) == 0;
}

/* Rows of a run; 0: this node is computed in one. */
static int64_t run_rows(const struct ggml_tensor *node, int threads)
{
    if (!is_plain_product(node) || !form_allows(mz_record_of(node->src[0]), node->src[0]->nb[1]))
        return 0;
    int64_t rows = (int64_t)(RUN_BYTES / node->src[0]->nb[1]), least = (int64_t)ROWS_PER_THREAD * threads;

    rows = (int64_t)mz_round_up((uint64_t)(rows > least ? rows : least), ROWS_STEP);
    return RUNS_LEAST * rows <= node->src[0]->ne[1] ? rows : 0;
}

bool mz_rows_apply(const struct ggml_tensor *node, int threads)
{
    return run_rows(node, threads) > 0;
}

uint64_t mz_rows_need(const struct ggml_tensor *node, int threads)
{
    const struct mz_record *record = mz_record_of(node->src[0]);
    uint64_t bytes = 2 * (uint64_t)run_rows(node, threads) * node->src[0]->nb[1], most = 0;
    uint32_t n = mz_tensor_units(record->handle);

    /* A run may begin and end in a unit that it has a row of. */
    for (uint32_t i = 0; i < n; i++) {
        uint64_t unit = mz_unit_span_bytes(mz_tensor_unit(record->handle, i));
        most = unit > most ? unit : most;
    }
    return bytes + 2 * most;
}

/* ---- one product */

/* Pins for the units of the rows [from, to); returns how many. */
static uint32_t pins_of(const struct ggml_tensor *weight, int64_t from, int64_t to, struct mz_pin *pins)
{
    struct mz_tensor *handle = mz_record_of(weight)->handle;
    uint32_t first, end;

    mz_tensor_range(handle, (uint64_t)from * weight->nb[1], (uint64_t)(to - from) * weight->nb[1], &first, &end);
    for (uint32_t i = first; i < end; i++)
        pins[i - first] = (struct mz_pin){.unit = mz_tensor_unit(handle, i)};
    return end - first;
}

/* Units of the rows are held; the packed layout is asked for here, since it may change while nothing is. */
static int compute_run(struct mz_engine *stream, struct ggml_cgraph *graph, const struct ggml_tensor *node,
                       int64_t from, int64_t to)
{
    struct ggml_tensor *shadow = mz_record_shadow(mz_record_of(node->src[0]));
    struct ggml_tensor run = *node, weight = shadow ? *shadow : *node->src[0];

    run.ne[0] = weight.ne[1] = to - from;
    run.data = (char *)node->data + (size_t)from * node->nb[0];
    weight.data = (char *)weight.data + (size_t)from * weight.nb[1];
    run.src[0] = &weight;
    return mz_graph_compute_node(stream, graph, &run);
}

int mz_rows_compute(struct mz_backend *backend, struct ggml_cgraph *graph, int i)
{
    const struct ggml_tensor *node = graph->nodes[i], *weight = node->src[0];
    int64_t rows = run_rows(node, backend->threads), n = weight->ne[1], from, to;
    struct mz_pin *pins = mz_alloc(mz_tensor_units(mz_record_of(weight)->handle) * sizeof(*pins));
    int err = pins ? 0 : -ENOMEM;

    for (from = 0; from < n && !err; from = to) {
        to = from + 2 * rows > n ? n : from + rows; /* the last one takes what is too few for a run */
        uint32_t held = pins_of(weight, from, to, pins);
        err = mz_gate_pin(backend->core, pins, held, mz_abort_wanted, backend);
        if (err)
            break;
        err = compute_run(backend->stream, graph, node, from, to);
        mz_gate_unpin(backend->core, pins, held);
    }
    free(pins);
    return err;
}
