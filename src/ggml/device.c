/* The device MZ0 and its backends, in the order of ggml's own small backends. */
#include <stdlib.h>
#include <string.h>

#include "ggml/glue.h"
#include "os/fault.h"
#include "os/log.h"
#include "os/machine.h"

// backend interface

static const char *mz_backend_get_name(ggml_backend_t backend)
{
    (void)backend;
    return MZ_DEVICE_NAME;
}

static void mz_backend_free(ggml_backend_t ggml)
{
    struct mz_backend *backend = ggml->context;

    mz_plans_forget(backend);
    mz_attend_destroy(backend->attend);
    mz_cpu_stream_destroy(backend->stream);
    free(backend);
    free(ggml);
}

static enum ggml_status mz_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    return mz_graph_compute(backend->context, graph);
}

// clang-format off
static const struct ggml_backend_i mz_backend_i = {
    .get_name            = mz_backend_get_name,
    .free                = mz_backend_free,
    .set_tensor_async    = NULL,
    .get_tensor_async    = NULL,
    .set_tensor_2d_async = NULL,
    .get_tensor_2d_async = NULL,
    .cpy_tensor_async    = NULL,
    .synchronize         = NULL,
    .graph_plan_create   = NULL,
    .graph_plan_free     = NULL,
    .graph_plan_update   = NULL,
    .graph_plan_compute  = NULL,
    .graph_compute       = mz_backend_graph_compute,
    .event_record        = NULL,
    .event_wait          = NULL,
    .graph_optimize      = NULL,
};
// clang-format on

static ggml_guid_t mz_backend_guid(void)
{
    static ggml_guid guid = {0x6d, 0x7a, 0x43, 0x61, 0x63, 0x68, 0x65, 0x1f,
                             0x8e, 0x52, 0x4b, 0xd0, 0x21, 0x9a, 0x77, 0x05};
    return &guid;
}

ggml_backend_t mz_backend_init(void)
{
    struct mz_engine *engine = mz_glue_engine();
    struct mz_core *core = mz_glue_core();
    struct mz_backend *backend = mz_calloc(1, sizeof(*backend));
    ggml_backend_t ggml = mz_calloc(1, sizeof(*ggml));

    if (!engine || !core || !backend || !ggml || mz_attend_create(core, backend, &backend->attend) ||
        mz_cpu_stream_create(engine, &backend->stream)) {
        mz_log(MZ_LOG_ERROR, "cannot make a backend");
        if (backend)
            mz_attend_destroy(backend->attend);
        free(backend);
        free(ggml);
        return NULL;
    }
    backend->core = core;
    backend->threads = GGML_DEFAULT_N_THREADS;
    *ggml = (struct ggml_backend){
        .guid = mz_backend_guid(),
        .iface = mz_backend_i,
        .device = &mz_device,
        .context = backend,
    };
    return ggml;
}

bool mz_is_backend(ggml_backend_t backend)
{
    return backend && ggml_guid_matches(backend->guid, mz_backend_guid());
}

void mz_backend_set_n_threads(ggml_backend_t ggml, int threads)
{
    if (!mz_is_backend(ggml))
        return;
    struct mz_backend *backend = ggml->context;
    backend->threads = threads > 0 ? threads : GGML_DEFAULT_N_THREADS;
    backend->stream->ops->set_threads(backend->stream, threads);
}

void mz_backend_set_abort_callback(ggml_backend_t ggml, ggml_abort_callback abort, void *data)
{
    if (!mz_is_backend(ggml))
        return;
    struct mz_backend *backend = ggml->context;
    backend->abort = abort;
    backend->abort_data = data;
    backend->stream->ops->set_abort(backend->stream, abort, data);
}

// device interface

static const char *mz_device_get_name(ggml_backend_dev_t dev)
{
    (void)dev;
    return MZ_DEVICE_NAME;
}

static const char *mz_device_get_description(ggml_backend_dev_t dev)
{
    (void)dev;
    return "mzCache on the CPU";
}

/* All of the machine's memory, as the CPU device says: what is free now is made small by the page cache of
 * the model file, and llama.cpp would then move layers away. */
static void mz_device_get_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total_bytes)
{
    (void)dev;
    struct mz_machine_memory memory = {0};

    if (mz_machine_memory(&memory))
        mz_log_once(MZ_LOG_WARN, "cannot tell the size of memory");
    *free_bytes = *total_bytes = memory.total_bytes;
}

/* GPU would share the layers with a graphics card when no device is named; an integrated one is used only
 * without. */
static enum ggml_backend_dev_type mz_device_get_type(ggml_backend_dev_t dev)
{
    (void)dev;
    return GGML_BACKEND_DEVICE_TYPE_IGPU;
}

static void mz_device_get_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props)
{
    memset(props, 0, sizeof(*props));
    props->name = mz_device_get_name(dev);
    props->description = mz_device_get_description(dev);
    props->type = mz_device_get_type(dev);
    mz_device_get_memory(dev, &props->memory_free, &props->memory_total);
    props->caps.mmap_support = true; /* without it the loader reads weights into buffers of its own */
}

static ggml_backend_t mz_device_init_backend(ggml_backend_dev_t dev, const char *params)
{
    (void)dev;
    (void)params;
    return mz_backend_init();
}

static ggml_backend_buffer_type_t mz_device_get_buffer_type(ggml_backend_dev_t dev)
{
    (void)dev;
    return &mz_buft;
}

/* What ggml-cpu can, since it computes. */
static bool mz_device_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
    (void)dev;
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);

    if (!cpu || !ggml_backend_dev_supports_op(cpu, op))
        return false;
    mz_learn_op(op);
    return true;
}

/* Host memory too: then inputs and the token embedding need no split and no copies. */
static bool mz_device_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft)
{
    (void)dev;
    return buft == &mz_buft || ggml_backend_buft_is_host(buft);
}

// clang-format off
struct ggml_backend_device mz_device = {
    .reg   = &mz_reg,
    .iface = {
        .get_name             = mz_device_get_name,
        .get_description      = mz_device_get_description,
        .get_memory           = mz_device_get_memory,
        .get_type             = mz_device_get_type,
        .get_props            = mz_device_get_props,
        .init_backend         = mz_device_init_backend,
        .get_buffer_type      = mz_device_get_buffer_type,
        .get_host_buffer_type = NULL,
        .buffer_from_host_ptr = NULL,
        .supports_op          = mz_device_supports_op,
        .supports_buft        = mz_device_supports_buft,
        .offload_op           = NULL,
        .event_new            = NULL,
        .event_free           = NULL,
        .event_synchronize    = NULL,
    },
};
// clang-format on
