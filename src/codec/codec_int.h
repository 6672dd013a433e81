/*
 * Inside of the codec room: the kernels that exist once per instruction set, the header's layout, and
 * decoding without verification, which the fuzzers need.
 */
#ifndef MZ_CODEC_CODEC_INT_H
#define MZ_CODEC_CODEC_INT_H

#include "codec/codec.h"

#define MZ_Q8_GROUP   32u
#define MZ_FLEX_GROUP 64u

/* fp16: everything of at least this magnitude is an infinity or a NaN. */
#define MZ_HALF_INF 0x7c00u

/*
 * Kernels take whole groups and no alignment, and expect the default floating-point environment (round to
 * nearest even, no flushing to zero), which mz_codec_encode and _decode set.
 *
 * q8:   maxima: 2 bytes a group; codes: 32 bytes a group.
 * flex: ends: 4 bytes a group (minimum, maximum); codes: 64 bytes a group.
 * The encoders return the largest magnitude seen, as fp16 bits: at least MZ_HALF_INF if there was a NaN or an
 * infinity, and then what they wrote is worthless.
 */
struct mz_codec_kernels {
    const char *isa;
    uint16_t (*q8_encode)(const uint8_t *src, uint64_t groups, uint8_t *maxima, uint8_t *codes);
    void (*q8_decode)(const uint8_t *maxima, const uint8_t *codes, uint64_t groups, uint8_t *dst);
    uint16_t (*flex_encode)(const uint8_t *src, uint64_t groups, uint8_t *ends, uint8_t *codes);
    void (*flex_decode)(const uint8_t *ends, const uint8_t *codes, uint64_t groups, uint8_t *dst);
    uint64_t (*hash)(const void *data, uint64_t bytes, uint64_t seed); /* XXH3-64 */
};

/* The kernels in use. */
const struct mz_codec_kernels *mz_codec_kernels(void);

uint16_t mz_q8_encode_portable(const uint8_t *src, uint64_t groups, uint8_t *maxima, uint8_t *codes);
void mz_q8_decode_portable(const uint8_t *maxima, const uint8_t *codes, uint64_t groups, uint8_t *dst);
uint16_t mz_flex_encode_portable(const uint8_t *src, uint64_t groups, uint8_t *ends, uint8_t *codes);
void mz_flex_decode_portable(const uint8_t *ends, const uint8_t *codes, uint64_t groups, uint8_t *dst);

uint16_t mz_q8_encode_avx2(const uint8_t *src, uint64_t groups, uint8_t *maxima, uint8_t *codes);
void mz_q8_decode_avx2(const uint8_t *maxima, const uint8_t *codes, uint64_t groups, uint8_t *dst);
uint16_t mz_flex_encode_avx2(const uint8_t *src, uint64_t groups, uint8_t *ends, uint8_t *codes);
void mz_flex_decode_avx2(const uint8_t *ends, const uint8_t *codes, uint64_t groups, uint8_t *dst);

uint16_t mz_q8_encode_avx512(const uint8_t *src, uint64_t groups, uint8_t *maxima, uint8_t *codes);
void mz_q8_decode_avx512(const uint8_t *maxima, const uint8_t *codes, uint64_t groups, uint8_t *dst);
uint16_t mz_flex_encode_avx512(const uint8_t *src, uint64_t groups, uint8_t *ends, uint8_t *codes);
void mz_flex_decode_avx512(const uint8_t *ends, const uint8_t *codes, uint64_t groups, uint8_t *dst);

uint16_t mz_q8_encode_neon(const uint8_t *src, uint64_t groups, uint8_t *maxima, uint8_t *codes);
void mz_q8_decode_neon(const uint8_t *maxima, const uint8_t *codes, uint64_t groups, uint8_t *dst);
uint16_t mz_flex_encode_neon(const uint8_t *src, uint64_t groups, uint8_t *ends, uint8_t *codes);
void mz_flex_decode_neon(const uint8_t *ends, const uint8_t *codes, uint64_t groups, uint8_t *dst);

uint64_t mz_hash_baseline(const void *data, uint64_t bytes, uint64_t seed);
uint64_t mz_hash_avx2(const void *data, uint64_t bytes, uint64_t seed);
uint64_t mz_hash_avx512(const void *data, uint64_t bytes, uint64_t seed);

extern const struct mz_codec mz_codec_raw;
extern const struct mz_codec mz_codec_q8;
extern const struct mz_codec mz_codec_q8_flexgen;

/*
 * The header, all fields little-endian:
 *    0  u32 magic "MZKV"      16  u64 plain bytes       48  u64 hash
 *    4  u16 header version    24  u64 payload bytes     56  u64 zero
 *    6  u16 codec             32  u32 layer
 *    8  u16 codec's version   36  u32 chunk
 *   10  u16 codec asked for   40  u32 owner
 *   12  u16 flags             44  u32 row elements
 *   14  u16 K or V
 * flags: bit 0: the payload has been through a lossy codec. No other bit is defined.
 * There is no time stamp: equal chunks have equal images.
 */
#define MZ_IMAGE_MAGIC   0x564b5a4du
#define MZ_IMAGE_VERSION 1u
#define MZ_IMAGE_LOSSY   1u

/* Writes the header at dst, the hash of the payload behind it included. */
void mz_image_write(uint8_t *dst, const struct mz_codec_image *image);

/* The hash that a header of these 48 leading bytes must carry for this payload. */
uint64_t mz_image_hash(const uint8_t *header, const uint8_t *payload, uint64_t payload_bytes);

/* mz_codec_decode without comparing key and hash: for fuzzing the decoders behind them. */
int mz_codec_decode_unverified(const void *src, uint64_t src_bytes, void *dst, uint64_t bytes);

#endif
