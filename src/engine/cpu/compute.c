/* Computing by ggml-cpu: an own instance of it per stream, with its threads.
 *
 * Everything is found through the registry, not linked, because ggml-cpu is a module of its own in builds
 * with loadable backends. The number of threads is what the program asked for and never anything else: it
 * decides how FLASH_ATTN_EXT splits one query row, and thus bits.
 *
 * ggml-cpu built with OpenMP makes a pool record per graph and indexes a pool that is given to it beyond its
 * end when more threads are asked for (ggml-cpu.c: ggml_graph_compute); there no pool is set. Without OpenMP
 * a graph without a pool starts threads anew, so one pool is kept, as large as the largest number ever asked
 * for; workers sleep at once when a graph is done, since restoring wants the cores then.
 *
 * A stream belongs to the thread that computes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "ggml.h"

#include "engine/cpu/cpu_int.h"
#include "os/fault.h"

/* ggml's own default until the program sets a number (GGML_DEFAULT_N_THREADS). */
#define THREADS_DEFAULT GGML_DEFAULT_N_THREADS

struct mz_stream {
    struct mz_engine engine; /* first */
    ggml_backend_t inner;
    ggml_backend_set_n_threads_t set_n_threads;
    ggml_backend_set_abort_callback_t set_abort_callback;
    struct ggml_threadpool *(*pool_new)(struct ggml_threadpool_params *params);
    void (*pool_free)(struct ggml_threadpool *pool);
    void (*set_pool)(ggml_backend_t backend, ggml_threadpool_t pool);
    struct ggml_threadpool *pool; /* NULL with OpenMP */
    int threads, pool_threads;
};

static bool has_openmp(ggml_backend_reg_t reg)
{
    ggml_backend_get_features_t get_features = NULL;

    *(void **)&get_features = ggml_backend_reg_get_proc_address(reg, "ggml_backend_get_features");
    if (!get_features)
        return true; /* unknown: no pool is right in both */
    for (struct ggml_backend_feature *f = get_features(reg); f && f->name; f++)
        if (strcmp(f->name, "OPENMP") == 0)
            return true;
    return false;
}

static void find_functions(struct mz_stream *stream, ggml_backend_reg_t reg)
{
    *(void **)&stream->set_n_threads = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    *(void **)&stream->set_abort_callback =
        ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_abort_callback");
    if (has_openmp(reg))
        return;
    *(void **)&stream->pool_new = ggml_backend_reg_get_proc_address(reg, "ggml_threadpool_new");
    *(void **)&stream->pool_free = ggml_backend_reg_get_proc_address(reg, "ggml_threadpool_free");
    *(void **)&stream->set_pool = ggml_backend_reg_get_proc_address(reg, "ggml_backend_cpu_set_threadpool");
    if (!stream->pool_free || !stream->set_pool)
        stream->pool_new = NULL;
}

/* A pool that holds the current number of threads. Without one ggml-cpu starts threads per graph: slower, not
 * wrong. */
static void fit_pool(struct mz_stream *stream)
{
    if (!stream->pool_new || stream->threads <= stream->pool_threads)
        return;
    struct ggml_threadpool_params params = ggml_threadpool_params_default(stream->threads);
    params.poll = 0;
    struct ggml_threadpool *pool = stream->pool_new(&params);
    stream->set_pool(stream->inner, pool);
    if (stream->pool)
        stream->pool_free(stream->pool);
    stream->pool = pool;
    stream->pool_threads = pool ? stream->threads : 0;
}

int mz_cpu_stream_create(struct mz_engine *engine, struct mz_engine **ret)
{
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!device)
        return -ENODEV;
    struct mz_stream *stream = mz_calloc(1, sizeof(*stream));
    if (!stream)
        return -ENOMEM;
    stream->inner = ggml_backend_dev_init(device, NULL);
    if (!stream->inner) {
        free(stream);
        return -ENOMEM;
    }
    stream->engine.ops = engine->ops;
    find_functions(stream, ggml_backend_dev_backend_reg(device));
    mz_stream_set_threads(&stream->engine, THREADS_DEFAULT);
    *ret = &stream->engine;
    return 0;
}

void mz_cpu_stream_destroy(struct mz_engine *engine)
{
    struct mz_stream *stream = (struct mz_stream *)engine;

    if (!stream)
        return;
    ggml_backend_free(stream->inner);
    if (stream->pool)
        stream->pool_free(stream->pool);
    free(stream);
}

void mz_stream_set_threads(struct mz_engine *engine, int threads)
{
    struct mz_stream *stream = (struct mz_stream *)engine;

    stream->threads = threads > 0 ? threads : THREADS_DEFAULT;
    if (stream->set_n_threads)
        stream->set_n_threads(stream->inner, stream->threads);
}

void mz_stream_set_abort(struct mz_engine *engine, bool (*abort)(void *user), void *user)
{
    struct mz_stream *stream = (struct mz_stream *)engine;

    if (stream->set_abort_callback)
        stream->set_abort_callback(stream->inner, abort, user);
}

int mz_stream_compute(struct mz_engine *engine, struct ggml_cgraph *graph, int first, int end)
{
    struct mz_stream *stream = (struct mz_stream *)engine;
    struct ggml_cgraph slice = ggml_graph_view(graph, first, end);

    fit_pool(stream);
    switch (ggml_backend_graph_compute_async(stream->inner, &slice)) {
    case GGML_STATUS_SUCCESS:
        return 0;
    case GGML_STATUS_ABORTED:
        return -ECANCELED;
    case GGML_STATUS_ALLOC_FAILED:
        return -ENOMEM;
    default:
        return -EIO;
    }
}
