/*
 * q8_flexgen: the payload. All ends (minimum, maximum) come first, then all codes. A last group of fewer than
 * 64 elements is encoded as if its last element were repeated, which changes neither end.
 *
 * Why it is idempotent. The two ends decode to themselves: code 0 to min + 0, code 255 by definition. What
 * lies between stays between, since rounding is monotone, so min and max are found again. Let u be the last
 * bit of an element in fp16 and s the step. If s > u, what was decoded is less than s / 2 from min + code *
 * s: same code. If s < u, it is less than u / 2 from the element, which therefore decodes to itself. s = u
 * happens only if max - min = 255 u; s is then a power of two, all is exact, and ties go to the even code
 * twice. s and u closer to each other than the error of fp32, but unequal, do not exist: max - min is a
 * multiple of u / 2 where s is near u.
 */
#include "codec/codec_int.h"

#include <errno.h>
#include <string.h>

static uint64_t group_count(uint64_t elements)
{
    return elements / MZ_FLEX_GROUP + (elements % MZ_FLEX_GROUP != 0);
}

static uint64_t payload_bytes(uint64_t bytes)
{
    return 4 * group_count(bytes / 2) + bytes / 2;
}

static uint16_t encode_tail(const struct mz_codec_kernels *kernels, const uint8_t *src, uint64_t elements,
                            uint8_t *ends, uint8_t *codes)
{
    uint8_t padded[2 * MZ_FLEX_GROUP];
    uint8_t padded_codes[MZ_FLEX_GROUP];
    memcpy(padded, src, 2 * elements);
    for (uint64_t i = elements; i < MZ_FLEX_GROUP; i++)
        memcpy(padded + 2 * i, src + 2 * (elements - 1), 2);
    uint16_t largest = kernels->flex_encode(padded, 1, ends, padded_codes);
    memcpy(codes, padded_codes, elements);
    return largest;
}

static int encode(const struct mz_chunk_key *key, const uint8_t *src, uint64_t bytes, uint8_t *dst,
                  uint64_t cap, uint64_t *ret_bytes)
{
    const struct mz_codec_kernels *kernels = mz_codec_kernels();
    const uint64_t elements = bytes / 2, whole = elements / MZ_FLEX_GROUP, tail = elements % MZ_FLEX_GROUP;
    (void)key;
    if (cap < payload_bytes(bytes))
        return -ENOSPC;
    uint8_t *codes = dst + 4 * group_count(elements);
    if (whole && kernels->flex_encode(src, whole, dst, codes) >= MZ_HALF_INF)
        return -EDOM;
    if (tail && encode_tail(kernels, src + whole * 2 * MZ_FLEX_GROUP, tail, dst + 4 * whole,
                            codes + whole * MZ_FLEX_GROUP) >= MZ_HALF_INF)
        return -EDOM;
    *ret_bytes = payload_bytes(bytes);
    return 0;
}

static void decode_tail(const struct mz_codec_kernels *kernels, const uint8_t *ends, const uint8_t *codes,
                        uint64_t elements, uint8_t *dst)
{
    uint8_t padded[2 * MZ_FLEX_GROUP];
    uint8_t padded_codes[MZ_FLEX_GROUP] = {0};
    memcpy(padded_codes, codes, elements);
    kernels->flex_decode(ends, padded_codes, 1, padded);
    memcpy(dst, padded, 2 * elements);
}

static int decode(const struct mz_chunk_key *key, const uint8_t *src, uint64_t src_bytes, uint8_t *dst,
                  uint64_t bytes)
{
    const struct mz_codec_kernels *kernels = mz_codec_kernels();
    const uint64_t elements = bytes / 2, whole = elements / MZ_FLEX_GROUP, tail = elements % MZ_FLEX_GROUP;
    (void)key;
    if (src_bytes != payload_bytes(bytes))
        return -EINVAL;
    const uint8_t *codes = src + 4 * group_count(elements);
    if (whole)
        kernels->flex_decode(src, codes, whole, dst);
    if (tail)
        decode_tail(kernels, src + 4 * whole, codes + whole * MZ_FLEX_GROUP, tail,
                    dst + whole * 2 * MZ_FLEX_GROUP);
    return 0;
}

const struct mz_codec mz_codec_q8_flexgen = {
    .name = "q8_flexgen",
    .version = 1,
    .id = MZ_CODEC_Q8_FLEXGEN,
    .lossy = true,
    .idempotent = true,
    .payload_bytes = payload_bytes,
    .encode = encode,
    .decode = decode,
};
