/* Buffers: a region of core behind each. Nobody but this file and the computing threads touches their memory,
 * since the type says that it is no host memory; all content goes through set_tensor, get_tensor,
 * memset_tensor, cpy_tensor and clear.
 *
 * What a buffer is for is known only after its tensors are in it: ggml-alloc flags compute buffers after
 * allocating them, llama.cpp flags weights after placing them, a KV cache is told by its tensors' names. So
 * tensors are noted by init_tensor and handed to core ("settled") by the first call that moves bytes.
 * buffer->lock protects the list of records. The calls return void: what goes wrong is logged here, and
 * content that could not be taken breaks the buffer, so that graphs fail instead of computing on zeros. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/process.h"
#include "ggml/glue.h"
#include "os/fault.h"
#include "os/log.h"
#include "os/maps.h"

static void *mz_buffer_get_base(ggml_backend_buffer_t buffer);

atomic_uint mz_buffers_broken;

static void set_broken(struct mz_buffer *buffer, bool broken)
{
    if (atomic_exchange(&buffer->broken, broken) != broken)
        atomic_fetch_add(&mz_buffers_broken, 1);
}

/* ---- records */

struct mz_buffer *mz_buffer_of(const struct ggml_tensor *tensor)
{
    ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;

    return buffer && buffer->iface.get_base == mz_buffer_get_base ? buffer->context : NULL;
}

static const struct ggml_tensor *root_of(const struct ggml_tensor *tensor)
{
    return tensor->view_src ? tensor->view_src : tensor;
}

struct mz_record *mz_record_of(const struct ggml_tensor *tensor)
{
    const struct mz_buffer *buffer = mz_buffer_of(tensor);

    return buffer && !atomic_load(&buffer->scratch) ? root_of(tensor)->extra : NULL;
}

static uint64_t offset_of(const struct mz_buffer *buffer, const struct ggml_tensor *tensor)
{
    return (uint64_t)((char *)tensor->data - buffer->base);
}

static int settle_one(struct mz_buffer *buffer, struct mz_record *record)
{
    struct mz_tensor_desc desc = mz_record_desc(record, buffer->ggml->usage);

    if (buffer->settled == 0)
        mz_region_set_kind(buffer->region, desc.kind);
    return mz_region_add(buffer->region, &desc, &record->handle);
}

int mz_buffer_settle(struct mz_buffer *buffer)
{
    int err = 0;

    pthread_mutex_lock(&buffer->lock);
    if (buffer->settled == 0)
        mz_buffer_gather(buffer);
    for (; buffer->settled < buffer->n && !err; buffer->settled += !err)
        err = settle_one(buffer, buffer->records[buffer->settled]);
    pthread_mutex_unlock(&buffer->lock);
    if (err) {
        set_broken(buffer, true);
        mz_log(MZ_LOG_ERROR, "a buffer of %llu bytes cannot be managed: %s",
               (unsigned long long)mz_region_bytes(buffer->region), mz_log_errno(err));
    }
    return err;
}

/* Scratch is written from outside between graphs: its input tensors. */
void mz_buffer_keep_all(struct mz_buffer *buffer)
{
    if (!atomic_exchange(&buffer->keep_all, true))
        mz_region_keep(buffer->region, NULL, 0, true);
}

static int ready_to_move_bytes(struct mz_buffer *buffer)
{
    if (!atomic_load(&buffer->scratch))
        return mz_buffer_settle(buffer);
    mz_buffer_keep_all(buffer);
    return 0;
}

struct ggml_tensor *mz_record_shadow(const struct mz_record *record)
{
    return record->form && record->loaded && mz_tensor_form(record->handle) == record->form
               ? mz_form_shadow(record->form)
               : NULL;
}

int mz_record_make_plain(struct mz_record *record)
{
    return mz_tensor_set_form(record->handle, NULL);
}

/* ---- loading a weight */

/* The file behind a weight's bytes: only a mapping through which nobody can have changed them counts. */
static bool find_origin(const void *data, uint64_t bytes, struct mz_mapping *mapping, struct mz_origin *ret)
{
    if (mz_maps_find(data, mapping) || !mapping->readable || mapping->writable || !mapping->shared ||
        mapping->deleted || !mapping->path[0] || (uintptr_t)data + bytes > mapping->end)
        return false;
    *ret = (struct mz_origin){
        .path = mapping->path,
        .dev = mapping->dev,
        .inode = mapping->inode,
        .offset = mapping->offset + ((uintptr_t)data - mapping->start),
    };
    return true;
}

/* Moves the weight within its page of slack, so that its address and its file offset are congruent. The
 * tensor must not have views yet: at its first set_tensor it has none. */
static void fit_to_file(struct mz_record *record, struct ggml_tensor *tensor, const struct mz_origin *origin)
{
    uint64_t shift = origin->offset % MZ_PAGE_BYTES;

    if (shift == 0 || record->form || mz_record_alloc_bytes(tensor) < record->bytes + MZ_PAGE_BYTES ||
        mz_tensor_shift(record->handle, shift))
        return;
    record->offset += shift;
    tensor->data = (char *)tensor->data + shift;
}

static int load(struct mz_buffer *buffer, struct mz_record *record, struct ggml_tensor *tensor,
                const void *data)
{
    struct mz_mapping *mapping = mz_alloc(sizeof(*mapping)); /* holds a path: too large for small stacks */
    struct mz_origin origin;
    bool known = mapping && find_origin(data, record->bytes, mapping, &origin);

    if (known && record->bytes >= MZ_PAGE_BYTES)
        fit_to_file(record, tensor, &origin);
    if (record->form)
        mz_form_place(record->form, buffer->base + record->offset);
    int err = mz_tensor_load(record->handle, data, known ? &origin : NULL, record->form);
    record->loaded = err == 0;
    free(mapping);
    return err;
}

static bool is_first_whole(const struct mz_record *record, const struct ggml_tensor *tensor, size_t offset,
                           size_t size)
{
    return record && record->kind == MZ_KIND_WEIGHT && !record->loaded && !tensor->view_src && offset == 0 &&
           size == record->bytes;
}

/* Writing on into a packed weight makes it plain first: bytes of rows have no place in it. */
static int make_writable(struct mz_record *record)
{
    return record && mz_record_shadow(record) ? mz_record_make_plain(record) : 0;
}

static void complain(struct mz_buffer *buffer, const char *what, const struct ggml_tensor *tensor, int err,
                     bool broken)
{
    if (!err)
        return;
    if (broken)
        set_broken(buffer, true);
    mz_log(MZ_LOG_ERROR, "cannot %s tensor %s: %s", what, tensor->name, mz_log_errno(err));
}

/* ---- buffer interface */

static void mz_buffer_free(ggml_backend_buffer_t ggml)
{
    struct mz_buffer *buffer = ggml->context;

    if (mz_process_forked())
        return; /* its memory did not come along, and core's lock may have been held at the fork */
    mz_region_destroy(buffer->region);
    for (uint32_t i = 0; i < buffer->n; i++)
        mz_record_free(buffer->records[i]);
    free(buffer->records);
    pthread_mutex_destroy(&buffer->lock);
    free(buffer);
}

static void *mz_buffer_get_base(ggml_backend_buffer_t buffer)
{
    return ((struct mz_buffer *)buffer->context)->base;
}

static int note(struct mz_buffer *buffer, struct ggml_tensor *tensor)
{
    struct mz_record **records = mz_grow(buffer->records, buffer->n, &buffer->room, sizeof(struct mz_record *));
    if (!records)
        return -ENOMEM;
    buffer->records = records;
    struct mz_record *record = mz_record_new(tensor, offset_of(buffer, tensor));
    if (!record)
        return -ENOMEM;
    buffer->records[buffer->n++] = record;
    tensor->extra = record;
    return 0;
}

static enum ggml_status mz_buffer_init_tensor(ggml_backend_buffer_t ggml, struct ggml_tensor *tensor)
{
    struct mz_buffer *buffer = ggml->context;

    if (ggml->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE) {
        if (!atomic_exchange(&buffer->scratch, true))
            mz_region_set_kind(buffer->region, MZ_KIND_SCRATCH);
        return GGML_STATUS_SUCCESS;
    }
    if (ggml_nbytes(tensor) == 0)
        return GGML_STATUS_SUCCESS;
    pthread_mutex_lock(&buffer->lock);
    struct mz_record *viewed = tensor->view_src ? mz_record_of(tensor) : NULL;
    int err = tensor->view_src ? 0 : note(buffer, tensor);
    if (viewed)
        viewed->viewed = true;
    pthread_mutex_unlock(&buffer->lock);
    return err ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_SUCCESS;
}

static void mz_buffer_memset_tensor(ggml_backend_buffer_t ggml, struct ggml_tensor *tensor, uint8_t value,
                                    size_t offset, size_t size)
{
    struct mz_buffer *buffer = ggml->context;
    int err = ready_to_move_bytes(buffer);

    if (!err)
        err = make_writable(mz_record_of(tensor));
    if (!err)
        err = mz_region_fill(buffer->region, offset_of(buffer, tensor) + offset, value, size);
    complain(buffer, "fill", tensor, err, true);
}

/* A weight's first and whole content is loaded. What has content already, perhaps in part, is written over. */
static int put(struct mz_buffer *buffer, struct mz_record *record, struct ggml_tensor *tensor, const void *data,
               size_t offset, size_t size)
{
    int err = is_first_whole(record, tensor, offset, size) ? load(buffer, record, tensor, data) : -EBUSY;

    if (err != -EBUSY)
        return err;
    err = make_writable(record);
    return err ? err : mz_region_write(buffer->region, offset_of(buffer, tensor) + offset, data, size);
}

static void mz_buffer_set_tensor(ggml_backend_buffer_t ggml, struct ggml_tensor *tensor, const void *data,
                                 size_t offset, size_t size)
{
    struct mz_buffer *buffer = ggml->context;
    int err = ready_to_move_bytes(buffer);
    struct mz_record *record = mz_record_of(tensor);

    if (!err)
        err = put(buffer, record, tensor, data, offset, size);
    complain(buffer, "write", tensor, err, true);
}

static void mz_buffer_get_tensor(ggml_backend_buffer_t ggml, const struct ggml_tensor *tensor, void *data,
                                 size_t offset, size_t size)
{
    struct mz_buffer *buffer = ggml->context;
    int err = atomic_load(&buffer->scratch) ? 0 : mz_buffer_settle(buffer);

    if (!err)
        err = mz_region_read(buffer->region, offset_of(buffer, tensor) + offset, data, size);
    if (err)
        memset(data, 0xff, size); /* not a number in every floating type */
    complain(buffer, "read", tensor, err, false);
}

static int copy_between(struct mz_buffer *to, struct ggml_tensor *dst, struct mz_buffer *from,
                        const struct ggml_tensor *src)
{
    uint64_t bytes = ggml_nbytes(src), at = offset_of(to, dst);

    if (!atomic_load(&from->scratch) && !atomic_load(&to->scratch))
        return mz_region_copy(to->region, at, from->region, offset_of(from, src), bytes);
    if (atomic_load(&from->scratch))
        return mz_region_write(to->region, at, src->data, bytes);
    return mz_region_read(from->region, offset_of(from, src), dst->data, bytes);
}

static bool mz_buffer_cpy_tensor(ggml_backend_buffer_t ggml, const struct ggml_tensor *src,
                                 struct ggml_tensor *dst)
{
    struct mz_buffer *buffer = ggml->context, *from = mz_buffer_of(src);
    ggml_backend_buffer_t src_ggml = root_of(src)->buffer;

    if (!from && !ggml_backend_buffer_is_host(src_ggml))
        return false;
    int err = ready_to_move_bytes(buffer);
    if (!err && from && !atomic_load(&from->scratch))
        err = mz_buffer_settle(from);
    if (!err)
        err = make_writable(mz_record_of(dst));
    if (!err)
        err = from ? copy_between(buffer, dst, from, src)
                   : mz_region_write(buffer->region, offset_of(buffer, dst), src->data, ggml_nbytes(src));
    complain(buffer, "copy into", dst, err, true);
    return true;
}

static void mz_buffer_clear(ggml_backend_buffer_t ggml, uint8_t value)
{
    struct mz_buffer *buffer = ggml->context;
    int err = ready_to_move_bytes(buffer);

    if (!err)
        err = mz_region_clear(buffer->region, value);
    if (!err)
        set_broken(buffer, false);
    else
        mz_log(MZ_LOG_ERROR, "cannot clear a buffer: %s", mz_log_errno(err));
}

// clang-format off
static const struct ggml_backend_buffer_i mz_buffer_i = {
    .free_buffer   = mz_buffer_free,
    .get_base      = mz_buffer_get_base,
    .init_tensor   = mz_buffer_init_tensor,
    .memset_tensor = mz_buffer_memset_tensor,
    .set_tensor    = mz_buffer_set_tensor,
    .get_tensor    = mz_buffer_get_tensor,
    .set_tensor_2d = NULL,
    .get_tensor_2d = NULL,
    .cpy_tensor    = mz_buffer_cpy_tensor,
    .clear         = mz_buffer_clear,
    .reset         = NULL,
};
// clang-format on

/* ---- buffer type interface */

static const char *mz_buffer_type_get_name(ggml_backend_buffer_type_t buft)
{
    (void)buft;
    return "MZ";
}

static ggml_backend_buffer_t mz_buffer_type_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size)
{
    struct mz_core *core = mz_glue_core();
    struct mz_buffer *buffer = core ? mz_calloc(1, sizeof(*buffer)) : NULL;

    if (!buffer)
        return NULL;
    int err = mz_region_create(core, mz_round_up(size, MZ_PAGE_BYTES), MZ_KIND_OTHER, &buffer->region);
    if (err) {
        mz_log(MZ_LOG_ERROR, "cannot reserve a buffer of %zu bytes: %s", size, mz_log_errno(err));
        free(buffer);
        return NULL;
    }
    buffer->base = mz_region_base(buffer->region);
    pthread_mutex_init(&buffer->lock, NULL);
    buffer->ggml = ggml_backend_buffer_init(buft, mz_buffer_i, buffer, size);
    return buffer->ggml;
}

/* That of a cache line is enough: leaves are padded to whole pages (mz_record_alloc_bytes), so those of
 * weights and caches start on pages, while scratch does not spread its small tensors over pages that alias in
 * the first-level cache. */
static size_t mz_buffer_type_get_alignment(ggml_backend_buffer_type_t buft)
{
    (void)buft;
    return 64;
}

static size_t mz_buffer_type_get_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor)
{
    (void)buft;
    return mz_record_alloc_bytes(tensor);
}

static bool mz_buffer_type_is_host(ggml_backend_buffer_type_t buft)
{
    (void)buft;
    return false;
}

// clang-format off
struct ggml_backend_buffer_type mz_buft = {
    .device = &mz_device,
    .iface = {
        .get_name       = mz_buffer_type_get_name,
        .alloc_buffer   = mz_buffer_type_alloc_buffer,
        .get_alignment  = mz_buffer_type_get_alignment,
        .get_max_size   = NULL,
        .get_alloc_size = mz_buffer_type_get_alloc_size,
        .is_host        = mz_buffer_type_is_host,
    },
};
// clang-format on
