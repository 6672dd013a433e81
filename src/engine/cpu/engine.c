/* The table of the CPU engine, and the one engine of the process. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "engine/cpu/cpu_int.h"
#include "os/fault.h"
#include "os/mem.h"

#ifdef MZ_TRAP
#define TRAP mz_memory_trap
#else
#define TRAP NULL
#endif

static const struct mz_engine_ops cpu_ops = {
    .name = "cpu",
    .traits = {.granule_bytes = 4096, .cpu_visible = true, .zero_filled = true, .contiguous = true},
    .reserve = mz_memory_reserve,
    .unreserve = mz_memory_unreserve,
    .base = mz_memory_base,
    .claim = mz_memory_claim,
    .commit = mz_memory_commit,
    .release = mz_memory_release,
    .counted = mz_memory_counted,
    .place = mz_memory_place,
    .place_done = mz_memory_place_done,
    .trap = TRAP,
    .pack = mz_form_pack,
    .form_cut_bytes = mz_form_cut_bytes,
    .compute = mz_stream_compute,
    .set_threads = mz_stream_set_threads,
    .set_abort = mz_stream_set_abort,
};

/* Granules are pages; where these are larger than 4 KiB the table says so. */
static const struct mz_engine_ops *ops_of_this_machine(void)
{
    static struct mz_engine_ops ops; /* written before the engine is published */

    ops = cpu_ops;
    ops.traits.granule_bytes = mz_os_page_bytes();
    return &ops;
}

int mz_cpu_engine(struct mz_engine **ret)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct mz_cpu *cpu; /* lock */
    int err = 0;

    pthread_mutex_lock(&lock);
    if (!cpu) {
        struct mz_cpu *fresh = mz_calloc(1, sizeof(*fresh));
        err = fresh ? mz_kernels_create(&fresh->kernels) : -ENOMEM;
        if (err == 0) {
            fresh->engine.ops = ops_of_this_machine();
            cpu = fresh;
        } else {
            free(fresh);
        }
    }
    if (err == 0)
        *ret = &cpu->engine;
    pthread_mutex_unlock(&lock);
    return err;
}
