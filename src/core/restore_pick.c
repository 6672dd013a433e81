/* Which units come back next: those first that computing waits for, the others in order of use; and how much
 * of what lies beside them comes along. Lock: core->lock throughout, dropped only while room is made. */
#include <errno.h>

#include "core/restore.h"
#include "os/mem.h"

/* ---- the queue of what computing waits for */

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

void mz_restore_unwant(struct mz_unit *unit)
{
    struct mz_core *core = unit->tensor->region->core;
    struct mz_unit *before = NULL;

    if (!unit->wanted)
        return;
    for (struct mz_unit *at = core->want_head; at != unit; at = at->want_next)
        before = at;
    unqueue(core, unit, before);
}

/* The first wanted unit on the path. Units that came back or went elsewhere meanwhile leave the queue. */
static struct mz_unit *pick_wanted(struct mz_core *core, enum mz_path path)
{
    struct mz_unit *before = NULL, *unit = core->want_head;

    while (unit) {
        struct mz_unit *next = unit->want_next;
        if (unit->state != MZ_EVICTED && unit->state != MZ_EVICTING)
            unqueue(core, unit, before);
        else if (unit->state == MZ_EVICTED && mz_unit_path(unit) == path && !unit->tensor->reforming)
            return unit;
        else
            before = unit;
        unit = next;
    }
    return NULL;
}

/* ---- buffers */

static bool through_bounce(const struct mz_unit *unit)
{
    return (unit->tensor->form && !(unit->copies & MZ_COPY_PACKED)) || unit->image_bytes;
}

/* Not in one read with its neighbours. */
static bool comes_alone(const struct mz_unit *unit)
{
    return mz_unit_path(unit) == MZ_PATH_STACK || through_bounce(unit);
}

/* What the job's buffer has to hold for the unit; 0: it comes without one. */
static uint64_t buffer_bytes(const struct mz_unit *unit)
{
    return mz_unit_path(unit) == MZ_PATH_STORAGE && through_bounce(unit) ? mz_job_buffer_bytes(unit) : 0;
}

/* ---- what is brought back ahead of use */

/* How far a pass over more than the limit reads ahead, as a share of the limit: enough to keep storage busy while it
 * computes on what is there; more would push out what could stay. */
#define WINDOW_SHARE 16

/* The first unit with a rank in [from, to) that comes back on the path. */
static struct mz_unit *evicted_in(struct mz_core *core, enum mz_path path, uint32_t from, uint32_t to)
{
    for (uint32_t i = from > core->cursor ? from : core->cursor; i < to; i++) {
        struct mz_unit *unit = core->sequence[i];
        if (unit->state == MZ_EVICTED && mz_unit_path(unit) == path && !unit->tensor->reforming)
            return unit;
        if (i == core->cursor && unit->state != MZ_EVICTED)
            core->cursor++;
    }
    return NULL;
}

/* The next evicted unit in the order of use, for bringing everything back. */
static struct mz_unit *pick_ahead(struct mz_core *core, enum mz_path path)
{
    if (!core->ahead || core->n_evicted == 0)
        return NULL;
    mz_order_refresh(core);
    uint32_t here = mz_order_here(core);
    struct mz_unit *unit = evicted_in(core, path, here, core->adopted);
    if (!unit)
        unit = evicted_in(core, path, 0, here);
    return unit ? unit : evicted_in(core, path, core->adopted, core->n_units);
}

/* What one read may take. A whole unit is one whatever the profile says, so several small ones may be as
 * much. */
static uint64_t request_bytes(const struct mz_core *core)
{
    uint64_t asked = core->options.request_bytes, measured = core->profile.request_bytes;

    return asked ? asked : measured > MZ_UNIT_BYTES ? measured : MZ_UNIT_BYTES;
}

/* What one read of the unit and those behind it can take, so that room is made for all of them at once. What comes through a
 * buffer or from the stack comes alone. */
static uint64_t run_bytes(const struct mz_core *core, const struct mz_unit *unit)
{
    const struct mz_tensor *tensor = unit->tensor;
    uint64_t request = request_bytes(core), bytes = mz_unit_span_bytes(unit);

    if (comes_alone(unit))
        return bytes;
    for (uint32_t i = unit->index + 1; i < tensor->n && tensor->units[i].state == MZ_EVICTED; i++) {
        if (bytes + mz_unit_span_bytes(&tensor->units[i]) > request)
            break;
        bytes += mz_unit_span_bytes(&tensor->units[i]);
    }
    return bytes;
}

/* Under a limit not all can come back; reading ahead of the pass, within a window, still hides the storage behind
 * computing. What is used later than the unit makes room for it, and for the growth of a buffer. As mz_room_make(). */
static int room_ahead(struct mz_core *core, const struct mz_unit *unit, uint64_t growth)
{
    uint64_t bytes = run_bytes(core, unit) + growth, ahead = 0, window = core->limit_bytes / WINDOW_SHARE;

    if (mz_room_for(core, bytes))
        return 0;
    if (core->graphs == 0 || !unit->adopted || !core->limit_bytes)
        return -EAGAIN;
    uint32_t place = mz_order_place(core, unit);
    for (uint32_t k = 0; k < place && ahead <= window; k++) {
        const struct mz_unit *before = mz_order_next(core, k);
        ahead += before->state == MZ_EMPTY ? 0 : mz_unit_span_bytes(before);
    }
    return ahead <= window ? mz_room_make(core, bytes, place + 1) : -EAGAIN;
}

/* ---- whole huge pages
 *
 * Units end inside of huge pages. Committed one by one they would come back in small pages, which cost twice
 * the time to fill (300 ms a GiB against 145 on one core of a Xeon). While everything is on its way back, a
 * job commits the whole huge pages at its ends, with the memory of the neighbours in them; these are then
 * `early` until their own turn. */

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

/* How far the commit may reach beyond `unit`, which ends (step 1) or begins (step -1) at `edge`: to the
 * border of the huge page if all units up to it are evicted and meet without gaps, else not at all. With
 * `mark` these become early. Lock held. */
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

/* What to commit for the job: its own pages, and those up to the borders of huge ones. Without traps, which
 * are per unit, and without a limit, which counts every page. Lock held. */
static void reach_out(struct mz_core *core, struct mz_job *job)
{
    const struct mz_unit *first = job->units[0], *last = job->units[job->n - 1];

    if (!core->ahead || core->limit_bytes || core->engine->ops->trap)
        return;
    uint64_t lo = reach(first, -1, job->lo, false), hi = reach(last, 1, job->hi, false);
    if (!mz_room_for(core, job->lo - lo + hi - job->hi))
        return;
    job->lo = reach(first, -1, job->lo, true);
    job->hi = reach(last, 1, job->hi, true);
}

/* The next job may have its pages in the same huge one, and be committed sooner: the engine has to know of
 * both. */
static void job_span(struct mz_core *core, struct mz_job *job)
{
    struct mz_engine *engine = core->engine;
    uint64_t other;

    mz_unit_span(job->units[0], &job->lo, &other);
    mz_unit_span(job->units[job->n - 1], &other, &job->hi);
    reach_out(core, job);
    if (engine->ops->claim)
        engine->ops->claim(engine, job->units[0]->tensor->region->memory, job->lo, job->hi - job->lo);
}

/* ---- jobs */

/* Makes a job of the unit and the neighbours that fit into one request. */
static void job_fill(struct mz_core *core, struct mz_job *job, struct mz_unit *unit)
{
    const struct mz_tensor *tensor = unit->tensor;
    uint64_t request = request_bytes(core), bytes = mz_unit_bytes(unit);

    job->n = 0;
    job->bounced = through_bounce(unit);
    mz_bounce_count(core, &job->bounce, buffer_bytes(unit));
    for (uint32_t i = unit->index;;) {
        struct mz_unit *next = &tensor->units[i];
        mz_unit_move(next, MZ_RESTORING);
        job->units[job->n++] = next;
        if (++i == tensor->n || job->n == MZ_JOB_UNITS || comes_alone(unit))
            break;
        struct mz_unit *after = &tensor->units[i];
        bytes += mz_unit_bytes(after);
        if (after->state != MZ_EVICTED || bytes > request || (!core->ahead && !after->wanted) ||
            after->copies != next->copies || through_bounce(after) ||
            mz_unit_file_offset(after) != mz_unit_file_offset(next) + mz_unit_bytes(next) ||
            !mz_room_for(core, mz_unit_span_bytes(after)))
            break;
    }
    job_span(core, job);
}

static struct mz_unit *pick(struct mz_core *core, enum mz_path path, bool wanted)
{
    return wanted ? pick_wanted(core, path) : pick_ahead(core, path);
}

/* Picks from what is wanted, or from what can come ahead: 1 with a job, 0 when there is none, -EAGAIN without
 * room. Making room may drop the lock, and then the unit may be gone: pick again. */
static int job_pick_from(struct mz_core *core, enum mz_path first, struct mz_job *job, bool wanted)
{
    struct mz_unit *unit;
    int made;

    do {
        unit = pick(core, first, wanted);
        if (!unit)
            unit = pick(core, first == MZ_PATH_STACK ? MZ_PATH_STORAGE : MZ_PATH_STACK, wanted);
        if (!unit)
            return 0;
        uint64_t growth = mz_bounce_growth(core, &job->bounce, buffer_bytes(unit));
        made = wanted ? mz_room_make(core, mz_unit_span_bytes(unit) + growth, 0) : room_ahead(core, unit, growth);
        if (made < 0)
            return made;
    } while (made > 0);
    job_fill(core, job, unit);
    return 1;
}

bool mz_job_pick(struct mz_core *core, enum mz_path first, struct mz_job *job)
{
    int picked = job_pick_from(core, first, job, true);

    if (picked < 0 && !core->starved) {
        core->starved = true;
        pthread_cond_broadcast(&core->changed);
    }
    if (picked)
        return picked > 0;
    picked = job_pick_from(core, first, job, false);
    if (picked < 0) {
        core->ahead_blocked = true;
        pthread_cond_broadcast(&core->changed);
    }
    return picked > 0;
}
