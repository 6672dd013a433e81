/*
 * The header of an image: written, parsed, hashed. Owns no data and takes no lock.
 *
 * The hash is seeded with the hash of everything else in the header, the key among it. So one comparison
 * covers all of the image: a flipped bit in a size or in the name of the codec asked for is found like one in
 * the payload.
 */
#include "codec/codec_int.h"

#include <errno.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "chunks and images are little-endian");

#define HASHED_BYTES 48u

static void put(uint8_t *dst, unsigned at, const void *value, unsigned bytes)
{
    memcpy(dst + at, value, bytes);
}

static uint16_t get16(const uint8_t *src, unsigned at)
{
    uint16_t value;
    memcpy(&value, src + at, sizeof(value));
    return value;
}

static uint32_t get32(const uint8_t *src, unsigned at)
{
    uint32_t value;
    memcpy(&value, src + at, sizeof(value));
    return value;
}

static uint64_t get64(const uint8_t *src, unsigned at)
{
    uint64_t value;
    memcpy(&value, src + at, sizeof(value));
    return value;
}

uint64_t mz_image_hash(const uint8_t *header, const uint8_t *payload, uint64_t payload_bytes)
{
    const struct mz_codec_kernels *kernels = mz_codec_kernels();
    uint64_t seed = kernels->hash(header, HASHED_BYTES, 0);
    return kernels->hash(payload, payload_bytes, seed);
}

void mz_image_write(uint8_t *dst, const struct mz_codec_image *image)
{
    const uint32_t magic = MZ_IMAGE_MAGIC;
    const uint16_t version = MZ_IMAGE_VERSION;
    const uint16_t flags = image->codec->lossy ? MZ_IMAGE_LOSSY : 0;
    memset(dst, 0, MZ_CODEC_HEADER_BYTES);
    put(dst, 0, &magic, 4);
    put(dst, 4, &version, 2);
    put(dst, 6, &image->codec->id, 2);
    put(dst, 8, &image->codec->version, 2);
    put(dst, 10, &image->asked->id, 2);
    put(dst, 12, &flags, 2);
    put(dst, 14, &image->key.k_or_v, 2);
    put(dst, 16, &image->plain_bytes, 8);
    put(dst, 24, &image->payload_bytes, 8);
    put(dst, 32, &image->key.layer, 4);
    put(dst, 36, &image->key.chunk, 4);
    put(dst, 40, &image->key.owner, 4);
    put(dst, 44, &image->key.row_elements, 4);
    const uint64_t hash = mz_image_hash(dst, dst + MZ_CODEC_HEADER_BYTES, image->payload_bytes);
    put(dst, 48, &hash, 8);
}

static void parse(const uint8_t *src, struct mz_codec_image *image)
{
    image->codec = mz_codec_by_id(get16(src, 6));
    image->asked = mz_codec_by_id(get16(src, 10));
    image->key.k_or_v = get16(src, 14);
    image->plain_bytes = get64(src, 16);
    image->payload_bytes = get64(src, 24);
    image->key.layer = get32(src, 32);
    image->key.chunk = get32(src, 36);
    image->key.owner = get32(src, 40);
    image->key.row_elements = get32(src, 44);
    image->hash = get64(src, 48);
}

int mz_codec_image_read(const void *src, uint64_t src_bytes, struct mz_codec_image *ret_image)
{
    const uint8_t *header = src;
    struct mz_codec_image image;
    if (src_bytes < MZ_CODEC_HEADER_BYTES || get32(header, 0) != MZ_IMAGE_MAGIC ||
        get16(header, 4) != MZ_IMAGE_VERSION || get64(header, 56) != 0)
        return -EINVAL;
    parse(header, &image);
    if (!image.codec || !image.asked || get16(header, 8) != image.codec->version ||
        get16(header, 12) != (image.codec->lossy ? MZ_IMAGE_LOSSY : 0u) || image.plain_bytes % 2 != 0 ||
        image.payload_bytes > src_bytes - MZ_CODEC_HEADER_BYTES)
        return -EINVAL;
    *ret_image = image;
    return 0;
}

bool mz_codec_is_lossy_image(const void *src, uint64_t src_bytes)
{
    struct mz_codec_image image;
    return mz_codec_image_read(src, src_bytes, &image) == 0 && image.codec->lossy;
}
