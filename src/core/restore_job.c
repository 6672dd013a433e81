/* A job: memory is committed (huge pages where the engine asked for them), the bytes are read straight into
 * place or decoded straight into place, verified there, and the gate is woken. Weights that are to be packed
 * and encoded images come through a buffer of the job. Nothing here holds core->lock but to say what became of a unit. */
#include <errno.h>

#include "core/restore.h"
#include "os/log.h"
#include "os/os.h"

enum mz_path mz_unit_path(const struct mz_unit *unit)
{
    return unit->copies & MZ_COPY_STACK ? MZ_PATH_STACK : MZ_PATH_STORAGE;
}

uint64_t mz_unit_file_offset(const struct mz_unit *unit)
{
    if (unit->copies & MZ_COPY_PACKED)
        return unit->packed_offset;
    if (unit->copies & MZ_COPY_STORE)
        return unit->store_offset;
    return unit->tensor->source_offset + mz_unit_offset(unit) - unit->tensor->offset;
}

/* The file that mz_unit_file_offset() is in, and the blocks that it is read in. */
static const struct mz_file *unit_file(const struct mz_unit *unit)
{
    bool stored = unit->copies & (MZ_COPY_STORE | MZ_COPY_PACKED);

    return stored ? mz_store_file(unit->tensor->region->core->store) : &unit->tensor->source->file;
}

static uint64_t file_align(const struct mz_unit *unit)
{
    uint64_t align = unit_file(unit)->file_align;

    return align ? align : 1;
}

static uint64_t job_bytes(const struct mz_job *job)
{
    const struct mz_unit *last = job->units[job->n - 1];

    return mz_unit_offset(last) + mz_unit_bytes(last) - mz_unit_offset(job->units[0]);
}

int mz_restore_commit(struct mz_region *region, uint64_t lo, uint64_t hi)
{
    struct mz_engine *engine = region->core->engine;

    if (engine->ops->trap)
        engine->ops->trap(engine, region->memory, lo, hi - lo, false);
    return engine->ops->commit(engine, region->memory, lo, hi - lo);
}

static int job_commit(const struct mz_job *job)
{
    return mz_restore_commit(job->units[0]->tensor->region, job->lo, job->hi);
}

/* Direct I/O into place: begins and ends at whole blocks of the file, if these lie within pages of the job's
 * own. */
static void request_in_place(struct mz_job *job, struct mz_request *request)
{
    struct mz_unit *first = job->units[0];
    uint64_t align = file_align(first), lo, hi, hi_last, lo_last;
    uint64_t at = mz_unit_offset(first), from = mz_unit_file_offset(first), bytes = job_bytes(job);
    uint64_t head = from % align, tail = (align - (from + bytes) % align) % align;

    mz_unit_span(first, &lo, &hi);
    mz_unit_span(job->units[job->n - 1], &lo_last, &hi_last);
    job->skip = 0;
    if (at >= lo + head && at + bytes + tail <= hi_last &&
        ((uintptr_t)mz_unit_address(first) - head) % align == 0) {
        job->skip = head;
        bytes += head + tail;
    }
    request->memory = (char *)mz_unit_address(first) - job->skip;
    request->offset = from - job->skip;
    request->bytes = bytes;
}

uint64_t mz_job_buffer_bytes(const struct mz_unit *unit)
{
    uint64_t align = file_align(unit), skip = mz_unit_file_offset(unit) % align;
    uint64_t bytes = unit->copies & MZ_COPY_STORE ? mz_unit_stored_bytes(unit) : mz_unit_bytes(unit);

    return (skip + bytes + align - 1) / align * align;
}

static int request_bounced(struct mz_core *core, struct mz_job *job, struct mz_request *request)
{
    struct mz_unit *unit = job->units[0];

    job->skip = mz_unit_file_offset(unit) % file_align(unit);
    request->bytes = mz_job_buffer_bytes(unit);
    int err = mz_bounce_grow(core, &job->bounce, request->bytes);
    request->memory = job->bounce.memory;
    request->offset = mz_unit_file_offset(unit) - job->skip;
    return err;
}

/* Starts reading. The end of a file may come inside the last block. */
static int job_submit(struct mz_core *core, struct mz_transfer *transfer, struct mz_job *job)
{
    struct mz_unit *unit = job->units[0];
    struct mz_request *request = &job->request;
    int err = 0;

    *request = (struct mz_request){.short_ok = true, .user = job};
    request->file = unit_file(unit);
    if (job->bounced)
        err = request_bounced(core, job, request);
    else
        request_in_place(job, request);
    if (!err)
        mz_transfer_submit(transfer, request);
    return err;
}

/* Brings bytes in a buffer to their place: packs a weight, decodes an image. */
static int unit_place(struct mz_unit *unit, const void *from)
{
    const struct mz_tensor *tensor = unit->tensor;
    struct mz_engine *engine = tensor->region->core->engine;

    if ((unit->copies & MZ_COPY_STORE) && unit->image_bytes)
        return mz_unit_decode_image(unit, from, mz_unit_address(unit));
    int err = mz_unit_verify(unit, from);
    if (err)
        return err;
    return engine->ops->pack(engine, tensor->form, mz_unit_offset(unit) - tensor->offset, from,
                             mz_unit_bytes(unit), mz_unit_address(unit));
}

/* What could not be read well is made again, and written again when it leaves next. */
static void drop_packed(struct mz_unit *unit)
{
    struct mz_core *core = unit->tensor->region->core;

    pthread_mutex_lock(&core->lock);
    mz_unit_void(unit, MZ_COPY_PACKED);
    pthread_mutex_unlock(&core->lock);
}

/* The careful way, for a unit whose first try failed: read again by itself, from any copy. */
static int unit_again(struct mz_core *core, struct mz_job *job, struct mz_unit *unit)
{
    if (!unit->tensor->form)
        return mz_unit_read_plain(unit, mz_unit_address(unit));
    int err = mz_bounce_grow(core, &job->bounce, mz_unit_bytes(unit));
    if (!err)
        err = mz_unit_read_plain(unit, job->bounce.memory);
    return err ? err : unit_place(unit, job->bounce.memory);
}

#define LOST_SAID 4u /* lost units that the log names */

static const char *cure(const struct mz_unit *unit, int err)
{
    if (err == -ENOMEM)
        return "free memory and try again: mzcache restore";
    if (unit->copies & MZ_COPY_FILE)
        return "copy the file as it was over it and run mzcache restore, or restart the program";
    return "check the disk of the swap folder; the conversation has to be started anew";
}

/* With name, place and what to do. A file that is overwritten loses hundreds of units, each for the same reason:
 * after the first few the event log has them. */
static void say_lost(const struct mz_unit *unit, const char *name, int err, uint32_t said)
{
    if (said < LOST_SAID)
        mz_log(MZ_LOG_ERROR, "cannot bring back %s from %s (%s); computing with it fails; %s", name,
               mz_unit_where(unit),
               err == -ESTALE    ? "the file was changed"
               : err == -EBADMSG ? "its checksum does not match"
                                 : mz_log_errno(err),
               cure(unit, err));
    else if (said == LOST_SAID)
        mz_log(MZ_LOG_ERROR, "cannot bring back more than that; mzcache log names it");
}

/* restoring -> lost; the memory goes, it holds nothing. Takes the lock. */
static void unit_lost(struct mz_unit *unit, int err)
{
    struct mz_core *core = unit->tensor->region->core;
    uint64_t freed = 0;
    char name[128];

    if ((unit->copies & MZ_COPY_FILE) && mz_file_check(&unit->tensor->source->file) == -ESTALE)
        err = -ESTALE;
    mz_unit_name(unit, name, sizeof(name));
    pthread_mutex_lock(&core->lock);
    uint32_t said = core->lost_said++;
    pthread_mutex_unlock(&core->lock);
    say_lost(unit, name, err, said);
    (void)mz_unit_give_back(unit, &freed);
    pthread_mutex_lock(&core->lock);
    mz_event_add(core, "lost", name, mz_unit_bytes(unit), 0);
    mz_unit_move(unit, MZ_LOST);
    pthread_mutex_unlock(&core->lock);
}

static void unit_arrived(struct mz_unit *unit)
{
    struct mz_core *core = unit->tensor->region->core;

    pthread_mutex_lock(&core->lock);
    core->starved = false;
    if (mz_unit_path(unit) == MZ_PATH_STACK) {
        core->decoded_bytes += mz_unit_bytes(unit);
        core->decoded_last_ns = mz_os_now_ns();
        mz_unit_move(unit, MZ_RESIDENT);
        mz_unit_void(unit, MZ_COPY_STACK); /* memory twice is not what a stack is for */
    } else {
        core->read_bytes += unit->image_bytes ? unit->image_bytes : mz_unit_bytes(unit);
        core->read_last_ns = mz_os_now_ns();
        mz_unit_move(unit, MZ_RESIDENT);
    }
    pthread_mutex_unlock(&core->lock);
}

static void unit_finish(struct mz_core *core, struct mz_job *job, struct mz_unit *unit, int err)
{
    if (!err && mz_unit_path(unit) == MZ_PATH_STACK)
        err = mz_unit_decode(unit, mz_unit_address(unit));
    else if (!err && job->bounced)
        err = unit_place(unit, (char *)job->bounce.memory + job->skip);
    else if (!err && unit->tensor->form)
        err = mz_unit_verify_packed(unit);
    else if (!err)
        err = mz_unit_verify(unit, mz_unit_address(unit));
    if (err) {
        drop_packed(unit);
        err = unit_again(core, job, unit);
    }
    if (err)
        unit_lost(unit, err);
    else
        unit_arrived(unit);
}

void mz_job_finish(struct mz_core *core, struct mz_job *job, int err)
{
    if (!err && mz_unit_path(job->units[0]) == MZ_PATH_STORAGE && !job->bounced &&
        job->request.done < job->skip + job_bytes(job))
        err = -ENODATA;
    for (uint32_t i = 0; i < job->n; i++)
        unit_finish(core, job, job->units[i], err);
    job->n = 0;
}

/* No memory could be committed: the units stay evicted, and whoever waits tries again. */
static void job_undo(struct mz_core *core, struct mz_job *job, int err)
{
    uint64_t freed = 0;

    for (uint32_t i = 0; i < job->n; i++)
        (void)mz_unit_give_back(job->units[i], &freed);
    mz_log_once(MZ_LOG_WARN, "no memory to bring units back into (%s); trying again when there is",
                mz_log_errno(err));
    pthread_mutex_lock(&core->lock);
    for (uint32_t i = 0; i < job->n; i++)
        mz_unit_move(job->units[i], MZ_EVICTED);
    core->starved = true;
    core->ahead_blocked = true;
    core->headroom_ns = 0;
    pthread_mutex_unlock(&core->lock);
    job->n = 0;
}

bool mz_job_start(struct mz_core *core, struct mz_transfer *transfer, struct mz_job *job)
{
    int err = job_commit(job);

    if (err) {
        job_undo(core, job, err);
        return false;
    }
    if (mz_unit_path(job->units[0]) == MZ_PATH_STACK) {
        mz_job_finish(core, job, 0);
        return true;
    }
    err = job_submit(core, transfer, job);
    if (err)
        mz_job_finish(core, job, err);
    return true;
}
