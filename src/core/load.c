/* First content of weights, and their layout in memory.
 *
 * A weight that came from a mapping of its model file needs no copy of ours: the file is its own swap space. Its bytes are
 * hashed while they are copied, so that a file changed under us is an error later and not a wrong answer. The pages of
 * the mapping are given back as they are used up, so that loading does not hold the model twice. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/state.h"
#include "os/log.h"
#include "os/mem.h"

static struct mz_engine *engine_of(const struct mz_tensor *tensor)
{
    return tensor->region->core->engine;
}

/* Whether the unit comes into memory now. A unit whose file is known may begin evicted. */
static bool begins_resident(struct mz_core *core, const struct mz_unit *unit)
{
    pthread_mutex_lock(&core->lock);
    bool resident = !unit->tensor->source || mz_room_make(core, mz_unit_span_bytes(unit), core->n_units) >= 0;
    pthread_mutex_unlock(&core->lock);
    return resident;
}

/* The plain bytes of a packed weight exist nowhere else without an origin: they go to the store once. */
static int spill_plain(struct mz_unit *unit, const void *plain)
{
    struct mz_core *core = unit->tensor->region->core;
    int err = mz_unit_extent(unit, 0);

    if (err)
        return err;
    err = mz_file_write(mz_store_file(core->store), plain, mz_unit_bytes(unit), unit->store_offset);
    if (err)
        mz_store_free(core->store, unit->store_offset, mz_unit_stored_bytes(unit));
    else
        mz_store_note_written(core->store, mz_unit_bytes(unit));
    return err;
}

static int fill_memory(struct mz_unit *unit, const void *plain)
{
    const struct mz_tensor *tensor = unit->tensor;
    struct mz_engine *engine = engine_of(tensor);
    uint64_t lo, hi, offset = mz_unit_offset(unit) - tensor->offset;

    mz_unit_span(unit, &lo, &hi);
    int err = engine->ops->commit(engine, tensor->region->memory, lo, hi - lo);
    if (err)
        return err;
    if (tensor->form)
        return engine->ops->pack(engine, tensor->form, offset, plain, mz_unit_bytes(unit), mz_unit_address(unit));
    memcpy(mz_unit_address(unit), plain, mz_unit_bytes(unit));
    return 0;
}

static int load_unit(struct mz_unit *unit, const void *plain)
{
    const struct mz_tensor *tensor = unit->tensor;
    struct mz_core *core = tensor->region->core;
    uint8_t copies = tensor->source ? MZ_COPY_FILE : 0;
    int err = 0;

    mz_unit_hash(unit, plain);
    if (tensor->form && !copies) {
        err = spill_plain(unit, plain);
        if (err)
            return err;
        copies = MZ_COPY_STORE;
    }
    bool resident = begins_resident(core, unit);
    if (resident)
        err = fill_memory(unit, plain);
    pthread_mutex_lock(&core->lock);
    unit->copies = copies;
    if (!err)
        mz_unit_move(unit, resident ? MZ_RESIDENT : MZ_EVICTED);
    else
        mz_unit_void(unit, copies);
    pthread_mutex_unlock(&core->lock);
    return err;
}

static int attach(struct mz_tensor *tensor, const struct mz_origin *origin, const struct mz_form *form)
{
    struct mz_core *core = tensor->region->core;
    int err = 0;

    pthread_mutex_lock(&core->lock);
    for (uint32_t i = 0; i < tensor->n && !err; i++)
        err = tensor->units[i].state != MZ_EMPTY || tensor->units[i].pins ? -EBUSY : 0;
    if (!err && tensor->source) { /* of a load that failed */
        mz_source_drop(core, tensor->source);
        tensor->source = NULL;
    }
    if (!err && origin) {
        int opened = mz_source_use(core, origin, &tensor->source);
        tensor->source_offset = origin->offset;
        if (opened)
            mz_log_once(MZ_LOG_WARN, "cannot read %s again (%s); its weights will be written to the swap file when evicted",
                        origin->path, mz_log_errno(opened));
    }
    if (!err)
        tensor->form = form;
    pthread_mutex_unlock(&core->lock);
    return err;
}

int mz_tensor_load(struct mz_tensor *tensor, const void *plain, const struct mz_origin *origin,
                   const struct mz_form *form)
{
    int err = attach(tensor, origin, form);

    for (uint32_t i = 0; i < tensor->n && !err; i++) {
        struct mz_unit *unit = &tensor->units[i];
        uint64_t offset = mz_unit_offset(unit) - tensor->offset;
        const char *from = (const char *)plain + offset;
        err = load_unit(unit, from);
        if (tensor->source)
            mz_os_forget_file_pages(from, mz_unit_bytes(unit), tensor->source->file.fd, tensor->source_offset + offset);
    }
    return err;
}

/* ---- layout */

const struct mz_form *mz_tensor_form(const struct mz_tensor *tensor)
{
    struct mz_core *core = tensor->region->core;

    pthread_mutex_lock(&core->lock);
    const struct mz_form *form = tensor->form;
    pthread_mutex_unlock(&core->lock);
    return form;
}

/* Until nobody holds or moves any unit. Lock held, dropped while waiting. */
static void settle_all(struct mz_tensor *tensor)
{
    struct mz_core *core = tensor->region->core;

    for (uint32_t i = 0; i < tensor->n;) {
        struct mz_unit *unit = &tensor->units[i];
        bool moving = unit->state == MZ_EVICTING || unit->state == MZ_RESTORING;
        bool rest = !unit->pins && !unit->cleaning && !moving && !tensor->reforming;
        if (!rest)
            pthread_cond_wait(&core->changed, &core->lock);
        i = rest ? i + 1 : 0; /* the lock was dropped: look at all again */
    }
}

/* Copies and gives back what was put in motion, as far as it goes: units before *ret_end have no memory any more. Lock
 * held, dropped meanwhile. */
static int leave_all(struct mz_tensor *tensor, uint32_t *ret_end)
{
    struct mz_core *core = tensor->region->core;
    uint64_t freed = 0;
    int err = 0;

    for (uint32_t i = 0; i < tensor->n && !err; i++) {
        struct mz_unit *unit = &tensor->units[i];
        if (unit->state == MZ_EVICTING) {
            bool copied = unit->copies != 0;
            pthread_mutex_unlock(&core->lock);
            err = copied ? 0 : mz_unit_write_store(unit);
            bool written = !copied && !err;
            if (!err)
                err = mz_unit_give_back(unit, &freed);
            pthread_mutex_lock(&core->lock);
            unit->copies |= written ? MZ_COPY_STORE : 0;
        }
        *ret_end = err ? i : i + 1;
    }
    return err;
}

/* All that is in memory leaves first, in one step, so that nobody takes one layout for the other; nothing comes back before the
 * form is set. Plain bytes are in the copies, or, where there is none, in memory that is plain. */
int mz_tensor_set_form(struct mz_tensor *tensor, const struct mz_form *form)
{
    struct mz_core *core = tensor->region->core;
    uint32_t end = 0;
    int err = 0;

    pthread_mutex_lock(&core->lock);
    settle_all(tensor);
    if (tensor->form != form) {
        tensor->reforming = true;
        for (uint32_t i = 0; i < tensor->n; i++)
            mz_unit_void(&tensor->units[i], MZ_COPY_PACKED);
        for (uint32_t i = 0; i < tensor->n; i++)
            if (tensor->units[i].state == MZ_RESIDENT)
                mz_unit_move(&tensor->units[i], MZ_EVICTING);
        err = leave_all(tensor, &end);
        if (!err)
            tensor->form = form;
        for (uint32_t i = 0; i < tensor->n; i++)
            if (tensor->units[i].state == MZ_EVICTING)
                mz_unit_move(&tensor->units[i], i < end ? MZ_EVICTED : MZ_RESIDENT);
        tensor->reforming = false;
        mz_restore_kick(core);
    }
    pthread_mutex_unlock(&core->lock);
    return err;
}
