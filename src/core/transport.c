/* One unit's bytes between its memory and its copies: the store (plain or as an encoded image), the model file, the stack.
 *
 * Nothing here holds core->lock: the caller moved the unit to evicting or restoring, or marked it cleaning, and that keeps
 * every writer and every other mover away. What is written is hashed from the same bytes; what is read back is verified
 * by that hash before anyone sees it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "codec/codec.h"
#include "core/state.h"
#include "os/fault.h"
#include "os/mem.h"

static struct mz_core *core_of(const struct mz_unit *unit)
{
    return unit->tensor->region->core;
}

int mz_unit_hash(struct mz_unit *unit, const void *plain)
{
    unit->hash = XXH3_64bits(plain, mz_unit_bytes(unit));
    unit->hashed = true;
    return 0;
}

int mz_unit_verify(const struct mz_unit *unit, const void *plain)
{
    return unit->hashed && XXH3_64bits(plain, mz_unit_bytes(unit)) != unit->hash ? -EBADMSG : 0;
}

const char *mz_unit_where(const struct mz_unit *unit)
{
    if (unit->copies & MZ_COPY_STORE)
        return mz_store_folder(core_of(unit)->store);
    return unit->copies & MZ_COPY_FILE ? unit->tensor->source->path : "memory";
}

int mz_unit_verify_packed(const struct mz_unit *unit)
{
    return XXH3_64bits(mz_unit_address(unit), mz_unit_bytes(unit)) != unit->packed_hash ? -EBADMSG : 0;
}

/* ---- the store */

int mz_unit_extent(struct mz_unit *unit, uint64_t image_bytes)
{
    uint64_t offset;
    unit->image_bytes = image_bytes;
    int err = mz_store_alloc(core_of(unit)->store, mz_unit_stored_bytes(unit), &offset);

    if (err)
        unit->image_bytes = 0;
    else
        unit->store_offset = offset;
    return err;
}

static void give_up_extent(struct mz_unit *unit)
{
    mz_store_free(core_of(unit)->store, unit->store_offset, mz_unit_stored_bytes(unit));
    unit->image_bytes = 0;
}

/* An extent and the hash for the bytes in memory. */
static int begin_packed(struct mz_unit *unit)
{
    uint64_t offset;
    int err = mz_store_alloc(core_of(unit)->store, mz_unit_bytes(unit), &offset);

    if (err)
        return err;
    unit->packed_offset = offset;
    unit->packed_hash = XXH3_64bits(mz_unit_address(unit), mz_unit_bytes(unit));
    return 0;
}

static int begin_plain(struct mz_unit *unit)
{
    int err = mz_unit_extent(unit, 0);

    return err ? err : mz_unit_hash(unit, mz_unit_address(unit));
}

/* Whole blocks where the unit has its pages for itself, so that direct I/O fits; what lies behind its end is padding. */
static uint64_t write_bytes(const struct mz_unit *unit)
{
    uint64_t lo, hi, stored = mz_unit_stored_bytes(unit), at = mz_unit_offset(unit);

    mz_unit_span(unit, &lo, &hi);
    return at % 4096 == 0 && at >= lo && at + stored <= hi ? stored : mz_unit_bytes(unit);
}

int mz_unit_write_begin(struct mz_unit *unit, struct mz_request *ret)
{
    bool packed = unit->tensor->form != NULL;
    int err = packed ? begin_packed(unit) : begin_plain(unit);

    if (err)
        return err;
    *ret = (struct mz_request){
        .file = mz_store_file(core_of(unit)->store),
        .memory = mz_unit_address(unit),
        .offset = packed ? unit->packed_offset : unit->store_offset,
        .bytes = write_bytes(unit),
        .write = true,
    };
    return 0;
}

int mz_unit_write_end(struct mz_unit *unit, int err, const struct mz_request *request)
{
    if (request->bytes == 0)
        return err; /* it never had an extent */
    if (err && unit->tensor->form)
        mz_store_free(core_of(unit)->store, unit->packed_offset, mz_unit_bytes(unit));
    else if (err)
        give_up_extent(unit);
    else
        mz_store_note_written(core_of(unit)->store, request->bytes);
    return err;
}

int mz_unit_write_store(struct mz_unit *unit)
{
    struct mz_request request = {0};
    int err = mz_unit_write_begin(unit, &request);

    if (err)
        return err;
    err = mz_file_write(request.file, request.memory, request.bytes, request.offset);
    return mz_unit_write_end(unit, err, &request);
}

void mz_unit_note_written(struct mz_unit *unit)
{
    unit->copies |= unit->tensor->form ? MZ_COPY_PACKED : MZ_COPY_STORE;
}

/* ---- the stack */

static struct mz_chunk_key key_of(const struct mz_unit *unit)
{
    const struct mz_tensor *tensor = unit->tensor;

    return (struct mz_chunk_key){
        .owner = (uint32_t)((uintptr_t)tensor->region >> 4),
        .layer = (uint32_t)tensor->layer,
        .chunk = unit->index,
        .row_elements = tensor->row_bytes / 2,
        .k_or_v = tensor->is_v,
    };
}

bool mz_unit_can_encode(const struct mz_unit *unit)
{
    return unit->tensor->kind == MZ_KIND_KV && unit->tensor->fp16 && mz_unit_bytes(unit) % 2 == 0;
}

int mz_unit_encode(struct mz_unit *unit, bool *ret_lossy)
{
    struct mz_core *core = core_of(unit);
    const struct mz_codec *codec = mz_codec_by_id(MZ_CODEC_Q8);
    struct mz_chunk_key key = key_of(unit);
    uint64_t bytes = mz_unit_bytes(unit), coded;
    struct mz_slot slot;
    int err = mz_stack_reserve(core->stack, mz_codec_bound(codec, bytes), &slot);

    if (err)
        return err;
    err = mz_codec_encode(codec, &key, mz_unit_address(unit), bytes, mz_stack_at(&slot), slot.bytes, &coded);
    if (err) {
        mz_stack_drop(core->stack, &slot);
        return err;
    }
    *ret_lossy = mz_codec_is_lossy_image(mz_stack_at(&slot), coded);
    mz_stack_trim(core->stack, &slot, coded);
    unit->slot = slot;
    return 0;
}

int mz_unit_decode_image(struct mz_unit *unit, const void *image, void *to)
{
    struct mz_chunk_key key = key_of(unit);
    uint64_t bytes = unit->copies & MZ_COPY_STACK ? unit->slot.bytes : unit->image_bytes;
    int err = mz_codec_decode(&key, image, bytes, to, mz_unit_bytes(unit));

    return err == -EINVAL ? -EBADMSG : err;
}

int mz_unit_decode(struct mz_unit *unit, void *to)
{
    return mz_unit_decode_image(unit, mz_stack_at(&unit->slot), to);
}

/* The image goes as it is: half the bytes to write and to read again. Padding to whole blocks comes from the slot's own
 * segment where it reaches that far. */
int mz_unit_sink(struct mz_unit *unit)
{
    struct mz_core *core = core_of(unit);
    int err = mz_unit_extent(unit, unit->slot.bytes);

    if (err)
        return err;
    err = mz_file_write(mz_store_file(core->store), mz_stack_at(&unit->slot), unit->slot.bytes, unit->store_offset);
    if (err)
        give_up_extent(unit);
    else
        mz_store_note_written(core->store, unit->slot.bytes);
    return err;
}

/* ---- reading elsewhere */

static int read_image(struct mz_unit *unit, void *to)
{
    struct mz_core *core = core_of(unit);
    void *image = mz_alloc(unit->image_bytes);

    if (!image)
        return -ENOMEM;
    int err = mz_file_read(mz_store_file(core->store), image, unit->image_bytes, unit->store_offset);
    if (!err)
        err = mz_unit_decode_image(unit, image, to);
    free(image);
    return err;
}

static int read_once(struct mz_unit *unit, void *to)
{
    const struct mz_tensor *tensor = unit->tensor;
    uint64_t bytes = mz_unit_bytes(unit);
    int err;

    if (unit->copies & MZ_COPY_STACK)
        return mz_unit_decode(unit, to);
    if ((unit->copies & MZ_COPY_STORE) && unit->image_bytes)
        return read_image(unit, to);
    if (unit->copies & MZ_COPY_STORE)
        err = mz_file_read(mz_store_file(core_of(unit)->store), to, bytes, unit->store_offset);
    else
        err = mz_file_read(&tensor->source->file, to, bytes, tensor->source_offset + mz_unit_offset(unit) - tensor->offset);
    return err ? err : mz_unit_verify(unit, to);
}

/* A second try before a unit counts as lost: an interrupted or failing read often succeeds then. */
int mz_unit_read_plain(struct mz_unit *unit, void *to)
{
    int err = read_once(unit, to);

    return err ? read_once(unit, to) : 0;
}

/* ---- buffers */

/* Whole huge pages, which one read fits into without being cut and which are filled in a quarter of the time; a limit counts
 * every page. */
static uint64_t bounce_room(const struct mz_core *core, uint64_t bytes)
{
    uint64_t step = core->limit_bytes ? mz_os_page_bytes() : MZ_OS_HUGE_BYTES;

    return (bytes + step - 1) / step * step;
}

uint64_t mz_bounce_growth(const struct mz_core *core, const struct mz_bounce *bounce, uint64_t bytes)
{
    return bytes > bounce->counted ? bounce_room(core, bytes) - bounce->counted : 0;
}

void mz_bounce_count(struct mz_core *core, struct mz_bounce *bounce, uint64_t bytes)
{
    uint64_t growth = mz_bounce_growth(core, bounce, bytes);

    bounce->counted += growth;
    core->bounce_bytes += growth;
    mz_room_took(core);
}

static void bounce_unmap(struct mz_bounce *bounce)
{
    if (bounce->memory)
        mz_os_unreserve(bounce->memory, bounce->room);
    bounce->memory = NULL;
    bounce->room = 0;
}

static int bounce_map(struct mz_bounce *bounce, uint64_t room)
{
    int err = mz_os_reserve(room, &bounce->memory);

    if (err)
        return err;
    bounce->room = room;
    (void)mz_os_advise_huge(bounce->memory, room, true); /* a hint; what is no multiple stays small */
    err = mz_os_populate(bounce->memory, room);
    if (err)
        bounce_unmap(bounce);
    return err;
}

/* The old buffer goes first, so that there never are both. */
int mz_bounce_grow(struct mz_core *core, struct mz_bounce *bounce, uint64_t bytes)
{
    if (bytes <= bounce->room)
        return 0;
    pthread_mutex_lock(&core->lock);
    mz_bounce_count(core, bounce, bytes);
    uint64_t room = bounce->counted;
    pthread_mutex_unlock(&core->lock);
    bounce_unmap(bounce);
    int err = bounce_map(bounce, room);
    if (err)
        mz_bounce_free(core, bounce);
    return err;
}

void mz_bounce_free(struct mz_core *core, struct mz_bounce *bounce)
{
    bounce_unmap(bounce);
    pthread_mutex_lock(&core->lock);
    core->bounce_bytes -= bounce->counted;
    bounce->counted = 0;
    pthread_mutex_unlock(&core->lock);
}
