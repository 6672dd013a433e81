/*
 * The table of codecs, and encoding and decoding of whole images. Owns no data and takes no lock.
 */
#include "codec/codec_int.h"

#include <errno.h>
#include <fenv.h>
#include <stddef.h>
#include <string.h>

static const struct mz_codec *const table[] = {
    &mz_codec_raw,
    &mz_codec_q8,
    &mz_codec_q8_flexgen,
};

#define TABLE_LENGTH (sizeof(table) / sizeof(table[0]))

const struct mz_codec *mz_codec_at(unsigned i)
{
    return i < TABLE_LENGTH ? table[i] : NULL;
}

const struct mz_codec *mz_codec_find(const char *name)
{
    for (size_t i = 0; name && i < TABLE_LENGTH; i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

const struct mz_codec *mz_codec_by_id(uint16_t id)
{
    for (size_t i = 0; i < TABLE_LENGTH; i++)
        if (table[i]->id == id)
            return table[i];
    return NULL;
}

/* Room for what the codecs add to the plain bytes: at most one byte in two, and a header. */
static bool is_too_large(uint64_t bytes)
{
    return bytes > UINT64_MAX / 4;
}

uint64_t mz_codec_image_bytes(const struct mz_codec *codec, uint64_t bytes)
{
    if (is_too_large(bytes))
        return UINT64_MAX;
    return MZ_CODEC_HEADER_BYTES + codec->payload_bytes(bytes);
}

uint64_t mz_codec_bound(const struct mz_codec *codec, uint64_t bytes)
{
    uint64_t own = mz_codec_image_bytes(codec, bytes);
    uint64_t raw = mz_codec_image_bytes(&mz_codec_raw, bytes);
    return own > raw ? own : raw;
}

/*
 * The arithmetic depends on the thread's rounding mode, and on x86 on its flushing of subnormals, both of
 * which a program may have changed. Calls through function pointers stand between these two and the
 * arithmetic, so that no compiler moves the one past the other.
 */
static void default_arithmetic(fenv_t *ret_saved)
{
    fegetenv(ret_saved);
    fesetenv(FE_DFL_ENV);
}

static int encode_payload(struct mz_codec_image *image, const uint8_t *src, uint8_t *dst, uint64_t cap)
{
    fenv_t saved;
    default_arithmetic(&saved);
    image->codec = image->asked;
    int rc = image->codec->encode(&image->key, src, image->plain_bytes, dst, cap, &image->payload_bytes);
    if (rc == -EDOM) {
        image->codec = &mz_codec_raw;
        rc = image->codec->encode(&image->key, src, image->plain_bytes, dst, cap, &image->payload_bytes);
    }
    fesetenv(&saved);
    return rc;
}

int mz_codec_encode(const struct mz_codec *codec, const struct mz_chunk_key *key, const void *src,
                    uint64_t bytes, void *dst, uint64_t cap, uint64_t *ret_bytes)
{
    struct mz_codec_image image = {.asked = codec, .key = *key, .plain_bytes = bytes};
    uint8_t *out = dst;
    if (bytes % 2 != 0 || is_too_large(bytes))
        return -EINVAL;
    if (cap < MZ_CODEC_HEADER_BYTES)
        return -ENOSPC;
    int rc = encode_payload(&image, src, out + MZ_CODEC_HEADER_BYTES, cap - MZ_CODEC_HEADER_BYTES);
    if (rc)
        return rc;
    mz_image_write(out, &image);
    *ret_bytes = MZ_CODEC_HEADER_BYTES + image.payload_bytes;
    return 0;
}

static int decode_payload(const struct mz_codec_image *image, const uint8_t *src, uint8_t *dst)
{
    fenv_t saved;
    default_arithmetic(&saved);
    int rc = image->codec->decode(&image->key, src + MZ_CODEC_HEADER_BYTES, image->payload_bytes, dst,
                                  image->plain_bytes);
    fesetenv(&saved);
    return rc;
}

static bool is_same_key(const struct mz_chunk_key *a, const struct mz_chunk_key *b)
{
    return a->owner == b->owner && a->layer == b->layer && a->chunk == b->chunk &&
           a->row_elements == b->row_elements && a->k_or_v == b->k_or_v;
}

static int read_image_of(const void *src, uint64_t src_bytes, uint64_t bytes,
                         struct mz_codec_image *ret_image)
{
    struct mz_codec_image image;
    int rc = mz_codec_image_read(src, src_bytes, &image);
    if (rc)
        return rc;
    if (image.plain_bytes != bytes || is_too_large(bytes))
        return -EINVAL;
    *ret_image = image;
    return 0;
}

int mz_codec_decode(const struct mz_chunk_key *key, const void *src, uint64_t src_bytes, void *dst,
                    uint64_t bytes)
{
    const uint8_t *in = src;
    struct mz_codec_image image;
    int rc = read_image_of(src, src_bytes, bytes, &image);
    if (rc)
        return rc;
    if (!is_same_key(key, &image.key))
        return -EBADMSG;
    if (mz_image_hash(in, in + MZ_CODEC_HEADER_BYTES, image.payload_bytes) != image.hash)
        return -EBADMSG;
    return decode_payload(&image, src, dst);
}

int mz_codec_decode_unverified(const void *src, uint64_t src_bytes, void *dst, uint64_t bytes)
{
    struct mz_codec_image image;
    int rc = read_image_of(src, src_bytes, bytes, &image);
    return rc ? rc : decode_payload(&image, src, dst);
}
