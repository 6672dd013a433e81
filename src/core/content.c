/* Reading and writing what is in a region, wherever it is.
 *
 * Writing pins the units it touches; what is covered in part comes back first, what is covered whole does not. Reading takes
 * from memory what is there and goes through to the copies for the rest, without bringing anything back; the unit read last
 * is kept (peek), since callers read a state in thousands of small pieces. Scratch is plain memory: what is written
 * there between graphs is kept until the next one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/state.h"
#include "os/fault.h"
#include "os/log.h"

/* One access: bytes at an offset of the region, and what to do with each piece that lies in one unit or in a gap. */
struct access {
    struct mz_region *region;
    uint64_t offset, bytes;
    const char *from; /* write: the bytes; NULL: fill */
    uint8_t value;    /* fill */
    char *to;         /* read */
    int err;          /* the first error; later pieces are still done */
};

/* ---- writing */

/* A unit that will be overwritten whole needs nothing back. Lock held. */
static void make_empty(struct mz_unit *unit)
{
    struct mz_core *core = unit->tensor->region->core;
    struct mz_engine *engine = core->engine;
    uint64_t lo, hi;

    mz_unit_settle(unit);
    if (unit->state != MZ_EVICTED && unit->state != MZ_LOST)
        return;
    mz_unit_void(unit, unit->copies);
    unit->lossy = unit->hashed = false;
    mz_unit_move(unit, MZ_EMPTY);
    mz_unit_span(unit, &lo, &hi);
    if (engine->ops->trap)
        engine->ops->trap(engine, unit->tensor->region->memory, lo, hi - lo, false);
}

static void put(struct access *access, uint64_t offset, char *to, uint64_t bytes)
{
    if (access->from)
        memcpy(to, access->from + (offset - access->offset), bytes);
    else
        memset(to, access->value, bytes);
}

static void write_unit(struct access *access, struct mz_unit *unit, uint64_t offset, uint64_t bytes)
{
    struct mz_core *core = access->region->core;
    struct mz_pin pin = {.unit = unit, .flags = MZ_PIN_WRITE};
    bool zero = !access->from && access->value == 0;

    pthread_mutex_lock(&core->lock);
    bool packed = unit->tensor->form != NULL;
    if (bytes == mz_unit_bytes(unit))
        make_empty(unit);
    bool done = zero && unit->state == MZ_EMPTY;
    pthread_mutex_unlock(&core->lock);
    if (done)
        return;
    int err = packed ? mz_tensor_set_form(unit->tensor, NULL) : 0;
    if (!err)
        err = mz_gate_pin(core, &pin, 1, NULL, NULL);
    if (!err) {
        put(access, offset, (char *)access->region->base + offset, bytes);
        mz_gate_unpin(core, &pin, 1);
    }
    if (err && !access->err)
        access->err = err;
}

/* ---- reading */

/* The unit's plain bytes in core->peek. peek_lock held; the unit is held by the caller. */
static int peek_fill(struct mz_core *core, struct mz_unit *unit)
{
    uint64_t bytes = mz_unit_bytes(unit);

    core->peek_unit = NULL;
    if (core->peek_room < bytes) {
        void *room = mz_realloc(core->peek, bytes);
        if (!room)
            return -ENOMEM;
        core->peek = room;
        core->peek_room = bytes;
    }
    atomic_store(&core->peek_void, 0);
    int err = mz_unit_read_plain(unit, core->peek);
    if (!err)
        core->peek_unit = unit;
    return err;
}

static void say_unreadable(const struct mz_unit *unit, int err)
{
    char name[128];

    mz_log(MZ_LOG_ERROR, "cannot read %s from %s (%s); it counts as lost", mz_unit_name(unit, name, sizeof(name)),
           mz_unit_where(unit), err == -EBADMSG ? "its checksum does not match" : mz_log_errno(err));
}

/* Makes sure that core->peek holds the unit. It is evicted (then it is put in motion while it is read) or packed in memory
 * (then it is pinned). peek_lock held. 0; -EAGAIN: it is neither any more. */
static int peek(struct mz_core *core, struct mz_unit *unit)
{
    int err = 0;

    if (core->peek_unit == unit && !atomic_load(&core->peek_void))
        return 0;
    pthread_mutex_lock(&core->lock);
    bool evicted = unit->state == MZ_EVICTED, packed = unit->state == MZ_RESIDENT && unit->tensor->form;
    if (evicted)
        mz_unit_take_aside(unit);
    unit->pins += packed;
    core->held += packed;
    pthread_mutex_unlock(&core->lock);
    if (!evicted && !packed)
        return -EAGAIN;
    err = peek_fill(core, unit);
    bool lost = evicted && err && err != -ENOMEM;
    if (lost)
        say_unreadable(unit, err);
    pthread_mutex_lock(&core->lock);
    if (evicted)
        mz_unit_put_back(unit, lost ? MZ_LOST : MZ_EVICTED);
    unit->pins -= packed;
    core->held -= packed;
    pthread_cond_broadcast(&core->changed);
    pthread_mutex_unlock(&core->lock);
    return lost ? -EIO : err;
}

static int read_through(struct access *access, struct mz_unit *unit, uint64_t offset, uint64_t bytes)
{
    struct mz_core *core = access->region->core;

    pthread_mutex_lock(&core->peek_lock);
    int err = peek(core, unit);
    if (!err)
        memcpy(access->to + (offset - access->offset), (char *)core->peek + (offset - mz_unit_offset(unit)), bytes);
    pthread_mutex_unlock(&core->peek_lock);
    return err;
}

static void fail_read(struct access *access, uint64_t offset, uint64_t bytes, int err)
{
    memset(access->to + (offset - access->offset), 0xFF, bytes); /* NaN in every float type: never plausible */
    if (!access->err)
        access->err = err;
}

/* Reads from memory what is there. -EAGAIN: it has to be read through; -EIO: lost. */
static int read_resident(struct access *access, struct mz_unit *unit, uint64_t offset, uint64_t bytes)
{
    struct mz_core *core = access->region->core;
    char *to = access->to + (offset - access->offset);

    pthread_mutex_lock(&core->lock);
    while (unit->state == MZ_EVICTING || unit->state == MZ_RESTORING)
        pthread_cond_wait(&core->changed, &core->lock);
    unsigned state = unit->state;
    bool held = state == MZ_RESIDENT && !unit->tensor->form;
    unit->pins += held;
    core->held += held;
    pthread_mutex_unlock(&core->lock);
    if (state == MZ_EMPTY)
        memset(to, 0, bytes);
    if (!held)
        return state == MZ_EMPTY ? 0 : state == MZ_LOST ? -EIO : -EAGAIN;
    memcpy(to, (char *)access->region->base + offset, bytes);
    pthread_mutex_lock(&core->lock);
    unit->pins--;
    core->held--;
    pthread_cond_broadcast(&core->changed);
    pthread_mutex_unlock(&core->lock);
    return 0;
}

static void read_unit(struct access *access, struct mz_unit *unit, uint64_t offset, uint64_t bytes)
{
    int err;

    do {
        err = read_resident(access, unit, offset, bytes);
        if (err == -EAGAIN)
            err = read_through(access, unit, offset, bytes);
    } while (err == -EAGAIN); /* it moved in between */
    if (err)
        fail_read(access, offset, bytes, err);
}

/* ---- walking */

/* Bytes of plain memory: between tensors, or scratch. Padding in a tensor's own pages goes with them: it holds nothing,
 * whether they are there or not. */
static void touch_gap(struct access *access, uint64_t offset, uint64_t bytes, bool padding)
{
    char *memory = (char *)access->region->base + offset;

    if (padding && access->to)
        memset(access->to + (offset - access->offset), 0, bytes);
    else if (padding)
        return;
    else if (access->to)
        memcpy(access->to + (offset - access->offset), memory, bytes);
    else
        put(access, offset, memory, bytes);
}

/* Where what begins at `offset`, behind tensor i - 1 and before tensor i, ends, and whether it is padding. Lock held. */
static void gap_at(const struct mz_region *region, uint32_t i, uint64_t offset, uint64_t *ret_end, bool *ret_padding)
{
    uint64_t from = i > 0 ? region->tensors[i - 1]->span_hi : 0;
    uint64_t to = i < region->n ? region->tensors[i]->span_lo : region->bytes;
    uint64_t end = offset < from ? from : offset < to ? to : *ret_end;

    *ret_padding = offset < from || offset >= to;
    *ret_end = end < *ret_end ? end : *ret_end;
}

/* The unit at the offset, and where it ends; NULL and where the gap ends. */
static struct mz_unit *unit_at(struct mz_region *region, uint64_t offset, uint64_t *ret_end, bool *ret_padding)
{
    struct mz_unit *unit = NULL;
    uint32_t first, end, next;

    pthread_mutex_lock(&region->core->lock);
    struct mz_tensor *tensor = mz_region_at(region, offset, &next);
    if (tensor) {
        mz_tensor_range(tensor, offset - tensor->offset, 1, &first, &end);
        unit = &tensor->units[first];
        *ret_end = mz_unit_offset(unit) + mz_unit_bytes(unit);
    } else {
        *ret_end = next < region->n ? region->tensors[next]->offset : region->bytes;
        gap_at(region, next, offset, ret_end, ret_padding);
    }
    pthread_mutex_unlock(&region->core->lock);
    return unit;
}

static int walk(struct access *access)
{
    uint64_t at = access->offset, stop = access->offset + access->bytes, end;
    bool padding = false;

    if (access->offset > access->region->bytes || access->bytes > access->region->bytes - access->offset)
        return -ERANGE;
    for (; at < stop; at = end) {
        struct mz_unit *unit = unit_at(access->region, at, &end, &padding);
        if (end > stop)
            end = stop;
        if (!unit)
            touch_gap(access, at, end - at, padding);
        else if (access->to)
            read_unit(access, unit, at, end - at);
        else
            write_unit(access, unit, at, end - at);
    }
    return access->err;
}

/* What is written into scratch between graphs must outlive an eviction. Says so before the bytes are written. */
static void keep_written(struct mz_region *region, uint64_t offset, uint64_t bytes)
{
    struct mz_core *core = region->core;

    pthread_mutex_lock(&core->lock);
    if (region->kind == MZ_KIND_SCRATCH && !region->keep_all && bytes) {
        uint32_t i = region->n_keep;
        uint64_t(*keep)[2] = mz_realloc(region->keep, (i + 1) * sizeof(*keep));
        if (keep) {
            region->keep = keep;
            for (; i > 0 && keep[i - 1][0] > offset; i--)
                memcpy(keep[i], keep[i - 1], sizeof(*keep));
            keep[i][0] = offset;
            keep[i][1] = offset + bytes;
            region->n_keep++;
        } else {
            region->keep_all = true;
        }
    }
    pthread_mutex_unlock(&core->lock);
}

int mz_region_write(struct mz_region *region, uint64_t offset, const void *from, uint64_t bytes)
{
    struct access access = {.region = region, .offset = offset, .bytes = bytes, .from = from};

    keep_written(region, offset, bytes);
    return walk(&access);
}

int mz_region_fill(struct mz_region *region, uint64_t offset, uint8_t value, uint64_t bytes)
{
    struct access access = {.region = region, .offset = offset, .bytes = bytes, .value = value};

    keep_written(region, offset, bytes);
    return walk(&access);
}

int mz_region_read(struct mz_region *region, uint64_t offset, void *to, uint64_t bytes)
{
    struct access access = {.region = region, .offset = offset, .bytes = bytes, .to = to};

    return walk(&access);
}

/* ---- copying between regions */

static bool piece_is_empty(struct mz_unit *unit)
{
    return unit && mz_unit_is_empty(unit);
}

int mz_region_copy(struct mz_region *to, uint64_t to_offset, struct mz_region *from, uint64_t from_offset,
                   uint64_t bytes)
{
    if (from_offset > from->bytes || bytes > from->bytes - from_offset)
        return -ERANGE;
    char *buffer = mz_alloc(MZ_MIB);
    int err = buffer ? 0 : -ENOMEM;
    bool padding;

    for (uint64_t done = 0, end; done < bytes && !err;) {
        struct mz_unit *unit = unit_at(from, from_offset + done, &end, &padding);
        uint64_t piece = end - (from_offset + done);
        piece = piece > bytes - done ? bytes - done : piece;
        if (piece_is_empty(unit)) {
            err = mz_region_fill(to, to_offset + done, 0, piece);
        } else {
            piece = piece > MZ_MIB ? MZ_MIB : piece;
            err = mz_region_read(from, from_offset + done, buffer, piece);
            if (!err)
                err = mz_region_write(to, to_offset + done, buffer, piece);
        }
        done += piece;
    }
    free(buffer);
    return err;
}
