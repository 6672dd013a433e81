/* Restoring: workers bring units back, those first that computing waits for, the others in order of use.
 *
 * Each worker owns a transfer and a few jobs in flight. A job is one unit, or a run of neighbours of one tensor that lie
 * behind each other in the file too, read in one request. For each job: memory is committed (in parallel over the workers,
 * huge pages where the engine asked for them), the bytes are read straight into place or decoded straight into place,
 * verified there, and the gate is woken. Packed weights and encoded images come through a buffer of the worker.
 *
 * The two paths run side by side: even workers take from storage first, odd ones from the stack first.
 *
 * A unit in a job is in state restoring: nobody releases it, so no read ever lands in memory that was given away. To
 * stop means to take no new jobs and wait for the running ones. Lock: core->lock for picking and finishing. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/state.h"
#include "os/fault.h"
#include "os/log.h"
#include "os/mem.h"
#include "os/os.h"
#include "os/thread.h"
#include "os/transfer.h"

#define JOBS      4u /* in flight per worker: one being read, one being verified, two queued */
#define JOB_UNITS 32u

enum path { PATH_STORAGE, PATH_STACK };

struct job {
    struct mz_unit *units[JOB_UNITS]; /* neighbours, ascending */
    uint32_t n;                       /* 0: free */
    uint64_t lo, hi;                  /* what is committed for it, in the region */
    uint64_t skip;                    /* bytes read before the first unit's first byte, for alignment */
    struct mz_bounce bounce;
    bool bounced;
    struct mz_request request;
};

struct worker {
    struct mz_core *core;
    uint32_t number;
    struct mz_transfer *transfer;
    struct job jobs[JOBS];
    uint32_t depth; /* jobs used: 1 without io_uring, where submitting is reading */
};

/* ---- picking; lock held */

static enum path path_of(const struct mz_unit *unit)
{
    return unit->copies & MZ_COPY_STACK ? PATH_STACK : PATH_STORAGE;
}

/* Where a unit's bytes begin in the file they come from. */
static uint64_t file_offset(const struct mz_unit *unit)
{
    if (unit->copies & MZ_COPY_STORE)
        return unit->store_offset;
    return unit->tensor->source_offset + mz_unit_offset(unit) - unit->tensor->offset;
}

static bool through_bounce(const struct mz_unit *unit)
{
    return unit->tensor->form || unit->image_bytes;
}

static void unqueue(struct mz_core *core, struct mz_unit *unit, struct mz_unit *before)
{
    if (before)
        before->want_next = unit->want_next;
    else
        core->want_head = unit->want_next;
    if (core->want_tail == unit)
        core->want_tail = before;
    unit->want_next = NULL;
    unit->wanted = false;
}

/* The first wanted unit on the path. Units that came back or went elsewhere meanwhile leave the queue. */
static struct mz_unit *pick_wanted(struct mz_core *core, enum path path)
{
    struct mz_unit *before = NULL, *unit = core->want_head;

    while (unit) {
        struct mz_unit *next = unit->want_next;
        if (unit->state != MZ_EVICTED && unit->state != MZ_EVICTING)
            unqueue(core, unit, before);
        else if (unit->state == MZ_EVICTED && path_of(unit) == path && !unit->tensor->reforming)
            return unit;
        else
            before = unit;
        unit = next;
    }
    return NULL;
}

/* The next evicted unit in order of use, for bringing everything back. */
static struct mz_unit *pick_ahead(struct mz_core *core, enum path path)
{
    bool skipped = false;

    if (!core->ahead || core->n_evicted == 0)
        return NULL;
    mz_order_refresh(core);
    for (uint32_t i = core->cursor; i < core->n_units; i++) {
        struct mz_unit *unit = core->sequence[i];
        if (unit->state == MZ_EVICTED && path_of(unit) == path && !unit->tensor->reforming)
            return unit;
        skipped = skipped || unit->state == MZ_EVICTED;
        if (!skipped)
            core->cursor = i + 1;
    }
    return NULL;
}

/* Under a limit the rest of the model cannot come back; reading ahead of the pass, within a window, still hides the
 * storage behind computing. What the pass has behind it makes room. As mz_room_make(). */
static int room_ahead(struct mz_core *core, const struct mz_unit *unit)
{
    uint64_t bytes = mz_unit_span_bytes(unit);

    if (mz_room_for(core, bytes))
        return 0;
    if (core->graphs == 0 || unit->order <= core->position || !core->limit_bytes)
        return -EAGAIN;
    uint64_t ahead = 0, window = core->limit_bytes / 8;
    for (uint32_t i = core->position + 1; i < unit->order && i < core->n_units; i++)
        ahead += core->sequence[i]->state == MZ_EMPTY ? 0 : mz_unit_span_bytes(core->sequence[i]);
    return ahead <= window ? mz_room_make(core, bytes, true) : -EAGAIN;
}

/* ---- whole huge pages
 *
 * Units end inside of huge pages. Committed one by one they would come back in small pages, which cost twice the time to
 * fill (300 ms a GiB against 145 on one core of a Xeon). While everything is on its way back, a job commits the whole
 * huge pages at its ends, with the memory of the neighbours in them; these are then `early` until their own turn. */

/* The unit that follows in the region, or comes before; NULL at the ends. */
static struct mz_unit *neighbour(const struct mz_unit *unit, int step)
{
    const struct mz_tensor *tensor = unit->tensor;
    const struct mz_region *region = tensor->region;

    if (step < 0 ? unit->index > 0 : unit->index + 1 < tensor->n)
        return &tensor->units[step < 0 ? unit->index - 1 : unit->index + 1];
    uint32_t i = mz_region_index(region, tensor);
    if (step < 0 ? i == 0 : i + 1 == region->n)
        return NULL;
    const struct mz_tensor *next = region->tensors[step < 0 ? i - 1 : i + 1];
    return &next->units[step < 0 ? next->n - 1 : 0];
}

/* How far the commit may reach beyond `unit`, which ends (step 1) or begins (step -1) at `edge`: to the border of the huge page
 * if all units up to it are evicted and meet without gaps, else not at all. With `mark` these become early. Lock held. */
static uint64_t reach(const struct mz_unit *unit, int step, uint64_t edge, bool mark)
{
    uint64_t border = step > 0 ? (edge + MZ_OS_HUGE_BYTES - 1) / MZ_OS_HUGE_BYTES * MZ_OS_HUGE_BYTES
                               : edge / MZ_OS_HUGE_BYTES * MZ_OS_HUGE_BYTES;
    uint64_t at = edge, lo, hi;

    while (step > 0 ? at < border : at > border) {
        struct mz_unit *next = neighbour(unit, step);
        if (!next || next->state != MZ_EVICTED)
            return edge;
        mz_unit_span(next, &lo, &hi);
        if ((step > 0 ? lo : hi) != at)
            return edge;
        if (mark && !next->early)
            mz_unit_early(next, true);
        at = step > 0 ? hi : lo;
        unit = next;
    }
    return border;
}

/* What to commit for the job. Without traps, which are per unit, and without a limit, which counts every page. Lock held. */
static void job_span(struct mz_core *core, struct job *job)
{
    struct mz_unit *first = job->units[0], *last = job->units[job->n - 1];
    uint64_t other;

    mz_unit_span(first, &job->lo, &other);
    mz_unit_span(last, &other, &job->hi);
    if (!core->ahead || core->limit_bytes || core->engine->ops->trap)
        return;
    uint64_t lo = reach(first, -1, job->lo, false), hi = reach(last, 1, job->hi, false);
    if (!mz_room_for(core, job->lo - lo + hi - job->hi))
        return;
    job->lo = reach(first, -1, job->lo, true);
    job->hi = reach(last, 1, job->hi, true);
}

/* Makes a job of the unit and the neighbours that fit into one request. */
static void job_fill(struct mz_core *core, struct job *job, struct mz_unit *unit)
{
    const struct mz_tensor *tensor = unit->tensor;
    uint64_t request = core->options.request_bytes ? core->options.request_bytes : core->profile.request_bytes;
    uint64_t bytes = mz_unit_bytes(unit);
    enum path path = path_of(unit);

    job->n = 0;
    job->bounced = through_bounce(unit);
    for (uint32_t i = unit->index;;) {
        struct mz_unit *next = &tensor->units[i];
        mz_unit_move(next, MZ_RESTORING);
        job->units[job->n++] = next;
        if (++i == tensor->n || job->n == JOB_UNITS || path == PATH_STACK || job->bounced)
            break;
        struct mz_unit *after = &tensor->units[i];
        bytes += mz_unit_bytes(after);
        if (after->state != MZ_EVICTED || bytes > request || (!core->ahead && !after->wanted) ||
            after->copies != next->copies || through_bounce(after) ||
            file_offset(after) != file_offset(next) + mz_unit_bytes(next) ||
            !mz_room_for(core, mz_unit_span_bytes(after)))
            break;
    }
    job_span(core, job);
}

static struct mz_unit *pick(struct mz_core *core, enum path path, bool wanted)
{
    return wanted ? pick_wanted(core, path) : pick_ahead(core, path);
}

/* Picks from what is wanted, or from what can come ahead: 1 with a job, 0 when there is none, -EAGAIN without room.
 * Making room may drop the lock, and then the unit may be gone: pick again. */
static int job_pick_from(struct worker *worker, struct job *job, bool wanted)
{
    struct mz_core *core = worker->core;
    enum path first = worker->number % 2 && core->options.paths == MZ_PATHS_PARALLEL ? PATH_STACK : PATH_STORAGE;
    struct mz_unit *unit;
    int made;

    do {
        unit = pick(core, first, wanted);
        if (!unit)
            unit = pick(core, first == PATH_STACK ? PATH_STORAGE : PATH_STACK, wanted);
        if (!unit)
            return 0;
        made = wanted ? mz_room_make(core, mz_unit_span_bytes(unit), false) : room_ahead(core, unit);
        if (made < 0)
            return made;
    } while (made > 0);
    job_fill(core, job, unit);
    return 1;
}

/* A job for this worker, or false when there is nothing to do now. May drop and take the lock. */
static bool job_pick(struct worker *worker, struct job *job)
{
    struct mz_core *core = worker->core;
    int picked = job_pick_from(worker, job, true);

    if (picked < 0 && !core->starved) {
        core->starved = true;
        pthread_cond_broadcast(&core->changed);
    }
    if (picked)
        return picked > 0;
    picked = job_pick_from(worker, job, false);
    if (picked < 0) {
        core->ahead_blocked = true;
        pthread_cond_broadcast(&core->changed);
    }
    return picked > 0;
}

/* ---- running; without the lock */

static uint64_t job_bytes(const struct job *job)
{
    const struct mz_unit *last = job->units[job->n - 1];

    return mz_unit_offset(last) + mz_unit_bytes(last) - mz_unit_offset(job->units[0]);
}

static int commit_span(struct mz_region *region, uint64_t lo, uint64_t hi)
{
    struct mz_engine *engine = region->core->engine;

    if (engine->ops->trap)
        engine->ops->trap(engine, region->memory, lo, hi - lo, false);
    return engine->ops->commit(engine, region->memory, lo, hi - lo);
}

static int job_commit(const struct job *job)
{
    return commit_span(job->units[0]->tensor->region, job->lo, job->hi);
}

/* Direct I/O into place: begins and ends at whole blocks of the file, if these lie within pages of the job's own. */
static void request_in_place(struct job *job, struct mz_request *request)
{
    struct mz_unit *first = job->units[0];
    uint64_t align = request->file->file_align ? request->file->file_align : 1, lo, hi, hi_last, lo_last;
    uint64_t at = mz_unit_offset(first), from = file_offset(first), bytes = job_bytes(job);
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

static int request_bounced(struct mz_core *core, struct job *job, struct mz_request *request)
{
    struct mz_unit *unit = job->units[0];
    uint64_t align = request->file->file_align ? request->file->file_align : 1;
    uint64_t bytes = unit->copies & MZ_COPY_STORE ? mz_unit_stored_bytes(unit) : mz_unit_bytes(unit);

    job->skip = file_offset(unit) % align;
    bytes = (job->skip + bytes + align - 1) / align * align;
    int err = mz_bounce_grow(core, &job->bounce, bytes);
    request->memory = job->bounce.memory;
    request->offset = file_offset(unit) - job->skip;
    request->bytes = bytes;
    return err;
}

/* Starts reading. The end of a file may come inside the last block. */
static int job_submit(struct worker *worker, struct job *job)
{
    struct mz_core *core = worker->core;
    struct mz_unit *unit = job->units[0];
    struct mz_request *request = &job->request;
    int err = 0;

    *request = (struct mz_request){.short_ok = true, .user = job};
    request->file =
        unit->copies & MZ_COPY_STORE ? mz_store_file(core->store) : &unit->tensor->source->file;
    if (job->bounced)
        err = request_bounced(core, job, request);
    else
        request_in_place(job, request);
    if (!err)
        mz_transfer_submit(worker->transfer, request);
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
    return engine->ops->pack(engine, tensor->form, mz_unit_offset(unit) - tensor->offset, from, mz_unit_bytes(unit),
                             mz_unit_address(unit));
}

/* The careful way, for a unit whose first try failed: read again by itself, from any copy. */
static int unit_again(struct mz_core *core, struct job *job, struct mz_unit *unit)
{
    if (!unit->tensor->form)
        return mz_unit_read_plain(unit, mz_unit_address(unit));
    int err = mz_bounce_grow(core, &job->bounce, mz_unit_bytes(unit));
    if (!err)
        err = mz_unit_read_plain(unit, job->bounce.memory);
    return err ? err : unit_place(unit, job->bounce.memory);
}

static const char *cure(const struct mz_unit *unit, int err)
{
    if (err == -ENOMEM)
        return "free memory and try again: mzcache restore";
    if (unit->copies & MZ_COPY_FILE)
        return "put the model file back as it was and restart the program";
    return "check the disk of the swap folder; the conversation has to be started anew";
}

/* restoring -> lost, said once with name, place and what to do; the memory goes, it holds nothing. Takes the lock. */
static void unit_lost(struct mz_unit *unit, int err)
{
    struct mz_core *core = unit->tensor->region->core;
    uint64_t freed = 0;
    char name[128];

    if ((unit->copies & MZ_COPY_FILE) && mz_file_check(&unit->tensor->source->file) == -ESTALE)
        err = -ESTALE;
    mz_unit_name(unit, name, sizeof(name));
    mz_log(MZ_LOG_ERROR, "cannot bring back %s from %s (%s); computing with it fails; %s", name, mz_unit_where(unit),
           err == -ESTALE    ? "the file was changed"
           : err == -EBADMSG ? "its checksum does not match"
                             : mz_log_errno(err),
           cure(unit, err));
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
    if (path_of(unit) == PATH_STACK) {
        core->decoded_bytes += mz_unit_bytes(unit);
        mz_unit_move(unit, MZ_RESIDENT);
        mz_unit_void(unit, MZ_COPY_STACK); /* memory twice is not what a stack is for */
    } else {
        core->read_bytes += unit->image_bytes ? unit->image_bytes : mz_unit_bytes(unit);
        mz_unit_move(unit, MZ_RESIDENT);
    }
    pthread_mutex_unlock(&core->lock);
}

static void unit_finish(struct mz_core *core, struct job *job, struct mz_unit *unit, int err)
{
    if (!err && path_of(unit) == PATH_STACK)
        err = mz_unit_decode(unit, mz_unit_address(unit));
    else if (!err && job->bounced)
        err = unit_place(unit, (char *)job->bounce.memory + job->skip);
    else if (!err)
        err = mz_unit_verify(unit, mz_unit_address(unit));
    if (err)
        err = unit_again(core, job, unit);
    if (err)
        unit_lost(unit, err);
    else
        unit_arrived(unit);
}

/* The bytes are there, or `err` says why not. */
static void job_finish(struct mz_core *core, struct job *job, int err)
{
    if (!err && path_of(job->units[0]) == PATH_STORAGE && !job->bounced &&
        job->request.done < job->skip + job_bytes(job))
        err = -ENODATA;
    for (uint32_t i = 0; i < job->n; i++)
        unit_finish(core, job, job->units[i], err);
    job->n = 0;
}

/* No memory could be committed: the units stay evicted, and whoever waits tries again. */
static void job_undo(struct mz_core *core, struct job *job, int err)
{
    uint64_t freed = 0;

    for (uint32_t i = 0; i < job->n; i++)
        (void)mz_unit_give_back(job->units[i], &freed);
    mz_log_once(MZ_LOG_WARN, "no memory to bring units back into (%s); trying again when there is", mz_log_errno(err));
    pthread_mutex_lock(&core->lock);
    for (uint32_t i = 0; i < job->n; i++)
        mz_unit_move(job->units[i], MZ_EVICTED);
    core->starved = true;
    core->ahead_blocked = true;
    core->headroom_ns = 0;
    pthread_mutex_unlock(&core->lock);
    job->n = 0;
}

/* False when there was no memory for it. */
static bool job_start(struct worker *worker, struct job *job)
{
    int err = job_commit(job);

    if (err) {
        job_undo(worker->core, job, err);
        return false;
    }
    if (path_of(job->units[0]) == PATH_STACK) {
        job_finish(worker->core, job, 0);
        return true;
    }
    err = job_submit(worker, job);
    if (err)
        job_finish(worker->core, job, err);
    return true;
}

/* ---- the workers */

static struct job *free_job(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->depth; i++)
        if (worker->jobs[i].n == 0)
            return &worker->jobs[i];
    return NULL;
}

/* Starts one job if there is one, room for it in flight, and memory. Lock held, dropped meanwhile. */
static bool worker_start_one(struct worker *worker)
{
    struct mz_core *core = worker->core;
    struct job *job = free_job(worker);

    if (!job || core->stop || !job_pick(worker, job))
        return false;
    pthread_mutex_unlock(&core->lock);
    bool started = job_start(worker, job);
    pthread_mutex_lock(&core->lock);
    return started;
}

/* Buffers are given back when nothing is left to do: an idle process holds none. Lock held, dropped meanwhile. */
static void worker_rest(struct worker *worker)
{
    struct mz_core *core = worker->core;
    bool any = false;

    for (uint32_t i = 0; i < JOBS; i++)
        any = any || worker->jobs[i].bounce.memory;
    if (any) {
        pthread_mutex_unlock(&core->lock);
        for (uint32_t i = 0; i < JOBS; i++)
            mz_bounce_free(core, &worker->jobs[i].bounce);
        pthread_mutex_lock(&core->lock);
        return;
    }
    /* Without room there is something to do but no way to do it: look again soon. So too when more was asked for while
     * this worker found no memory, or while a layout changes. */
    bool stuck = core->want_head || (core->ahead && core->n_evicted && (core->graphs || !core->ahead_blocked));
    if (stuck)
        (void)mz_cond_wait_ms(&core->work, &core->lock, 10);
    else
        pthread_cond_wait(&core->work, &core->lock);
}

static void *worker_run(void *arg)
{
    struct worker *worker = arg;
    struct mz_core *core = worker->core;

    mz_os_thread_yields(5, false);
    pthread_mutex_lock(&core->lock);
    while (!core->stop || mz_transfer_pending(worker->transfer) > 0) {
        if (worker_start_one(worker))
            continue;
        if (mz_transfer_pending(worker->transfer) > 0) {
            pthread_mutex_unlock(&core->lock);
            struct mz_request *request = mz_transfer_wait(worker->transfer);
            job_finish(core, request->user, request->result);
            pthread_mutex_lock(&core->lock);
        } else if (!core->stop) {
            worker_rest(worker);
        }
    }
    pthread_mutex_unlock(&core->lock);
    for (uint32_t i = 0; i < JOBS; i++)
        mz_bounce_free(core, &worker->jobs[i].bounce);
    mz_transfer_close(worker->transfer);
    free(worker);
    return NULL;
}

static int worker_new(struct mz_core *core, uint32_t number)
{
    const char *why = NULL;
    bool uring = core->options.uring && mz_transfer_uring(&why);
    struct worker *worker = mz_calloc(1, sizeof(*worker));

    if (!worker)
        return -ENOMEM;
    if (core->options.uring && !uring)
        mz_log_once(MZ_LOG_INFO, "io_uring is not available (%s); reading with plain calls", why ? why : "refused");
    worker->core = core;
    worker->number = number;
    worker->depth = uring ? JOBS : 1;
    int err = mz_transfer_open(worker->depth, uring, &worker->transfer);
    if (err) {
        free(worker);
        return err;
    }
    err = mz_thread_start(&core->workers[number], "mz-restore", worker_run, worker);
    if (err) {
        mz_transfer_close(worker->transfer);
        free(worker);
    }
    return err;
}

int mz_restore_start(struct mz_core *core, uint32_t workers)
{
    int err = 0;

    for (uint32_t i = 0; i < workers && !err; i++) {
        err = worker_new(core, i);
        core->n_workers += !err;
    }
    return core->n_workers ? 0 : err; /* fewer than asked still work */
}

void mz_restore_stop(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    core->stop = true;
    pthread_cond_broadcast(&core->work);
    pthread_mutex_unlock(&core->lock);
    for (uint32_t i = 0; i < core->n_workers; i++)
        pthread_join(core->workers[i], NULL);
    core->n_workers = 0;
}

void mz_restore_kick(struct mz_core *core)
{
    core->ahead_blocked = false;
    pthread_cond_broadcast(&core->work);
}

void mz_restore_want(struct mz_unit *unit)
{
    struct mz_core *core = unit->tensor->region->core;

    if (unit->wanted)
        return;
    unit->wanted = true;
    unit->want_next = NULL;
    if (core->want_tail)
        core->want_tail->want_next = unit;
    else
        core->want_head = unit;
    core->want_tail = unit;
    pthread_cond_broadcast(&core->work);
}

/* ---- on demand */

static bool settled(const struct mz_core *core)
{
    return !core->ahead || (core->n_moving == 0 && (core->n_evicted == 0 || core->ahead_blocked));
}

int mz_core_restore(struct mz_core *core, bool wait)
{
    uint64_t start = mz_os_now_ns();

    pthread_mutex_lock(&core->lock);
    uint64_t read = core->read_bytes, decoded = core->decoded_bytes;
    bool alone = core->graphs == 0;
    bool any = core->n_evicted > 0, lost = false;
    for (struct mz_region *region = core->regions; region; region = region->next)
        for (uint32_t i = 0; i < region->n; i++)
            for (uint32_t u = 0; u < region->tensors[i]->n; u++)
                if (region->tensors[i]->units[u].state == MZ_LOST && region->tensors[i]->units[u].copies) {
                    mz_unit_move(&region->tensors[i]->units[u], MZ_EVICTED); /* perhaps it can be read now */
                    any = true;
                }
    if (any) {
        core->ahead = true;
        core->restores++;
        mz_restore_kick(core);
    }
    while (wait && any && !settled(core))
        (void)mz_cond_wait_ms(&core->changed, &core->lock, 100);
    for (struct mz_region *region = core->regions; wait && any && region; region = region->next)
        for (uint32_t i = 0; i < region->n; i++)
            for (uint32_t u = 0; u < region->tensors[i]->n; u++)
                lost = lost || region->tensors[i]->units[u].state == MZ_LOST;
    read = core->read_bytes - read;
    decoded = core->decoded_bytes - decoded;
    uint64_t ns = mz_os_now_ns() - start;
    if (wait && alone && core->graphs == 0 && !lost)
        mz_profile_heard(core, read, decoded, ns);
    if (wait && any)
        mz_event_add(core, "restore", "asked", read + decoded, (double)ns / 1e6);
    pthread_mutex_unlock(&core->lock);
    return lost ? -EIO : 0;
}

void mz_core_restore_stop(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    core->ahead = false;
    pthread_cond_broadcast(&core->changed);
    pthread_mutex_unlock(&core->lock);
}

/* Memory for everything that is evicted, at once, before any byte is read: what a system without overlap of allocation
 * and reload does. */
void mz_restore_commit_all(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    mz_order_refresh(core);
    for (uint32_t i = 0; i < core->n_units; i++) {
        struct mz_unit *unit = core->sequence[i];
        uint64_t lo, hi;
        if (unit->state != MZ_EVICTED || !mz_room_for(core, mz_unit_span_bytes(unit)))
            continue;
        mz_unit_span(unit, &lo, &hi);
        (void)commit_span(unit->tensor->region, lo, hi);
    }
    pthread_mutex_unlock(&core->lock);
}
