/*
 * raw: the bytes as they are. Takes what no other codec takes.
 */
#include "codec/codec_int.h"

#include <errno.h>
#include <string.h>

static uint64_t payload_bytes(uint64_t bytes)
{
    return bytes;
}

static int encode(const struct mz_chunk_key *key, const uint8_t *src, uint64_t bytes, uint8_t *dst,
                  uint64_t cap, uint64_t *ret_bytes)
{
    (void)key;
    if (cap < bytes)
        return -ENOSPC;
    if (bytes)
        memcpy(dst, src, bytes);
    *ret_bytes = bytes;
    return 0;
}

static int decode(const struct mz_chunk_key *key, const uint8_t *src, uint64_t src_bytes, uint8_t *dst,
                  uint64_t bytes)
{
    (void)key;
    if (src_bytes != bytes)
        return -EINVAL;
    if (bytes)
        memcpy(dst, src, bytes);
    return 0;
}

const struct mz_codec mz_codec_raw = {
    .name = "raw",
    .version = 1,
    .id = MZ_CODEC_RAW,
    .lossy = false,
    .idempotent = true,
    .payload_bytes = payload_bytes,
    .encode = encode,
    .decode = decode,
};
