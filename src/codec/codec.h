/*
 * Codecs: how a chunk of the KV cache is kept while it is not in its place.
 *
 * A *chunk* is a contiguous range of rows of one K or V tensor; its elements are little-endian fp16. A codec
 * turns it into an *image*: a header of 64 bytes and a payload. The image lies in the compressed stack or in
 * the swap file; decoding writes straight into the chunk's place, which needs no alignment.
 *
 *   name         id  lossy  idempotent  size of the payload for n elements
 *   raw           0  no     yes         2 n
 *   q8            1  yes    yes         n + 2 ceil(n / 32)    53.1 % of the plain bytes
 *   q8_flexgen    2  yes    yes         n + 4 ceil(n / 64)    53.1 %
 *
 * Idempotent means that what was decoded once encodes to the same payload again, byte for byte: a chunk may
 * go out and come back any number of times and differs from the original exactly as much as after the first.
 *
 * q8: of each group of 32 elements M = max |x| is kept as fp16. In fp32, each operation rounded to nearest
 * even: code = rint(x * (127 / M)), y = fp16(code * (M / 127)). Keeping M, not the step, is what makes it
 * idempotent: the element of magnitude M decodes to exactly M. Proven for every finite M and every |x| <= M
 * by test_codec_proof.
 *
 * q8_flexgen: minimum and maximum of each group of 64, as FlexGen (Sheng et al., 2023) and after it the
 * mzCache paper (5, "Compression and kernels") do. As published, minimum and scale are kept as fp16 and all
 * arithmetic is fp16; that changes bytes at every pass, divides by zero where all elements are equal, and
 * overflows the scale for ranges below 255 / 65504. Here both ends are kept, arithmetic is fp32, and code 255
 * decodes to the maximum itself: y = code == 255 ? max : fp16(min + code * ((max - min) / 255)). -0 as an end
 * becomes +0.
 *
 * A chunk with a NaN or an infinity anywhere is stored raw, whatever codec was asked for; the header says so.
 *
 * Threads: all functions may be called by any thread at any time, except mz_codec_isa_select. None blocks,
 * allocates or makes system calls. Buffers stay the caller's; source and destination must not overlap.
 */
#ifndef MZ_CODEC_CODEC_H
#define MZ_CODEC_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#define MZ_CODEC_HEADER_BYTES 64u

/* Ids are written into images: never reused. */
#define MZ_CODEC_RAW        0u
#define MZ_CODEC_Q8         1u
#define MZ_CODEC_Q8_FLEXGEN 2u

/*
 * Whose bytes an image holds. The whole key goes into the header and seeds the hash, so that an image read
 * from the wrong place is not taken for the right one.
 */
struct mz_chunk_key {
    uint32_t
        owner; /* tells the caller's tensors of equal layer apart (several contexts); 0 if there is one */
    uint32_t layer;
    uint32_t chunk;        /* number of the chunk within its tensor */
    uint32_t row_elements; /* elements of one token's row */
    uint16_t k_or_v;       /* 0: K, 1: V */
};

/*
 * One codec. The callers of this room use the first five fields only; the functions are the payload's half
 * and are called by mz_codec_encode and mz_codec_decode. A codec added to the table in codec.c needs nothing
 * else.
 */
struct mz_codec {
    const char *name;
    uint16_t version; /* of the payload's format, written into images */
    uint16_t id;
    bool lossy;
    bool idempotent;
    /* Largest payload for `bytes` plain bytes; for a codec of fixed rate the exact one. */
    uint64_t (*payload_bytes)(uint64_t bytes);
    /* 0; -EDOM: NaN or infinity, to be stored raw; -ENOSPC: does not fit into cap. dst is scratch on errors.
     */
    int (*encode)(const struct mz_chunk_key *key, const uint8_t *src, uint64_t bytes, uint8_t *dst,
                  uint64_t cap, uint64_t *ret_bytes);
    /* 0, or -EINVAL before anything is written: the payload cannot be of `bytes` plain bytes. Any content of
     * the payload is safe; it decodes to something. */
    int (*decode)(const struct mz_chunk_key *key, const uint8_t *src, uint64_t src_bytes, uint8_t *dst,
                  uint64_t bytes);
};

/* What a header says. */
struct mz_codec_image {
    const struct mz_codec *codec; /* how the payload is stored */
    const struct mz_codec
        *asked; /* the codec asked for; another one than `codec` if that could not take the chunk */
    struct mz_chunk_key key;
    uint64_t plain_bytes;
    uint64_t payload_bytes;
    uint64_t hash; /* XXH3-64 of the payload, seeded with the key and the rest of the header */
};

/* The codec of that name or id; NULL if there is none. The table is constant. */
const struct mz_codec *mz_codec_find(const char *name);
const struct mz_codec *mz_codec_by_id(uint16_t id);

/* The i-th codec of the table; NULL behind the last one. */
const struct mz_codec *mz_codec_at(unsigned i);

/*
 * Bytes, header included, that any image of `bytes` plain bytes fits into, the raw one of a chunk with NaN
 * among them. UINT64_MAX if that overflows. mz_codec_image_bytes is the size without that case, so of nearly
 * all images: what the plan counts with.
 */
uint64_t mz_codec_bound(const struct mz_codec *codec, uint64_t bytes);
uint64_t mz_codec_image_bytes(const struct mz_codec *codec, uint64_t bytes);

/*
 * Encodes the chunk at src, `bytes` long (a multiple of 2; 0 is allowed), into dst, and writes the image's
 * size to *ret_bytes. A capacity of mz_codec_bound always suffices. 0; -EINVAL: odd number of bytes; -ENOSPC:
 * the image does not fit into cap (at least that many bytes of dst are then undefined). Never reads or writes
 * outside of [src, src + bytes) and [dst, dst + cap). The same input gives the same image on every machine.
 */
int mz_codec_encode(const struct mz_codec *codec, const struct mz_chunk_key *key, const void *src,
                    uint64_t bytes, void *dst, uint64_t cap, uint64_t *ret_bytes);

/*
 * Verifies the image at src and decodes it into dst, `bytes` long. src_bytes may exceed the image (padding of
 * direct I/O): what is behind it is ignored.
 * 0; -EINVAL: no header of this version, an unknown codec, sizes that contradict each other, `bytes` or
 * src_bytes; -EBADMSG: image of another chunk, or the hash does not match. dst is untouched on errors.
 */
int mz_codec_decode(const struct mz_chunk_key *key, const void *src, uint64_t src_bytes, void *dst,
                    uint64_t bytes);

/* Reads the header only. 0 or -EINVAL as mz_codec_decode; neither key nor hash is compared. */
int mz_codec_image_read(const void *src, uint64_t src_bytes, struct mz_codec_image *ret_image);

/* Whether the image's bytes have been through a lossy codec. False for what is no image. */
bool mz_codec_is_lossy_image(const void *src, uint64_t src_bytes);

/*
 * The instruction set in use: "avx512", "avx2", "neon" or "portable", by default the best one that this CPU
 * and this build have. mz_codec_isa_select (NULL: the best) is for tests and benchmarks and must not run
 * beside other calls' expectations of speed; every variant gives the same bytes. 0; -ENOENT: no such name in
 * this build; -ENOTSUP: this CPU cannot run it. mz_codec_isa_at lists the names of the build, best first;
 * NULL behind the last.
 */
int mz_codec_isa_select(const char *name);
const char *mz_codec_isa(void);
const char *mz_codec_isa_at(unsigned i);

#endif
