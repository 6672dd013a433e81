/*
 * q8: the payload. All maxima come first, then all codes, so that the kernels divide once for many groups and
 * read the codes in one stream. Groups are runs of 32 elements of the chunk; with rows of a multiple of 32
 * elements none crosses a token. A last group that is shorter is encoded as if zeros followed, which are not
 * stored.
 */
#include "codec/codec_int.h"

#include <errno.h>
#include <string.h>

static uint64_t group_count(uint64_t elements)
{
    return elements / MZ_Q8_GROUP + (elements % MZ_Q8_GROUP != 0);
}

static uint64_t payload_bytes(uint64_t bytes)
{
    return 2 * group_count(bytes / 2) + bytes / 2;
}

static uint16_t encode_tail(const struct mz_codec_kernels *kernels, const uint8_t *src, uint64_t elements,
                            uint8_t *maximum, uint8_t *codes)
{
    uint8_t padded[2 * MZ_Q8_GROUP] = {0};
    uint8_t padded_codes[MZ_Q8_GROUP];
    memcpy(padded, src, 2 * elements);
    uint16_t largest = kernels->q8_encode(padded, 1, maximum, padded_codes);
    memcpy(codes, padded_codes, elements);
    return largest;
}

static int encode(const struct mz_chunk_key *key, const uint8_t *src, uint64_t bytes, uint8_t *dst,
                  uint64_t cap, uint64_t *ret_bytes)
{
    const struct mz_codec_kernels *kernels = mz_codec_kernels();
    const uint64_t elements = bytes / 2, whole = elements / MZ_Q8_GROUP, tail = elements % MZ_Q8_GROUP;
    (void)key;
    if (cap < payload_bytes(bytes))
        return -ENOSPC;
    uint8_t *codes = dst + 2 * group_count(elements);
    if (whole && kernels->q8_encode(src, whole, dst, codes) >= MZ_HALF_INF)
        return -EDOM;
    if (tail && encode_tail(kernels, src + whole * 2 * MZ_Q8_GROUP, tail, dst + 2 * whole,
                            codes + whole * MZ_Q8_GROUP) >= MZ_HALF_INF)
        return -EDOM;
    *ret_bytes = payload_bytes(bytes);
    return 0;
}

static void decode_tail(const struct mz_codec_kernels *kernels, const uint8_t *maximum, const uint8_t *codes,
                        uint64_t elements, uint8_t *dst)
{
    uint8_t padded[2 * MZ_Q8_GROUP];
    uint8_t padded_codes[MZ_Q8_GROUP] = {0};
    memcpy(padded_codes, codes, elements);
    kernels->q8_decode(maximum, padded_codes, 1, padded);
    memcpy(dst, padded, 2 * elements);
}

static int decode(const struct mz_chunk_key *key, const uint8_t *src, uint64_t src_bytes, uint8_t *dst,
                  uint64_t bytes)
{
    const struct mz_codec_kernels *kernels = mz_codec_kernels();
    const uint64_t elements = bytes / 2, whole = elements / MZ_Q8_GROUP, tail = elements % MZ_Q8_GROUP;
    (void)key;
    if (src_bytes != payload_bytes(bytes))
        return -EINVAL;
    const uint8_t *codes = src + 2 * group_count(elements);
    if (whole)
        kernels->q8_decode(src, codes, whole, dst);
    if (tail)
        decode_tail(kernels, src + 2 * whole, codes + whole * MZ_Q8_GROUP, tail,
                    dst + whole * 2 * MZ_Q8_GROUP);
    return 0;
}

const struct mz_codec mz_codec_q8 = {
    .name = "q8",
    .version = 1,
    .id = MZ_CODEC_Q8,
    .lossy = true,
    .idempotent = true,
    .payload_bytes = payload_bytes,
    .encode = encode,
    .decode = decode,
};
