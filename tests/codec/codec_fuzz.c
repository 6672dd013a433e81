#include "codec/codec.h"
#include "codec/codec_int.h"
#include "fuzz_decode.h"

#include <stdlib.h>
#include <string.h>

/* No chunk of the fuzzers is larger: a header that claims more is tried with this size. */
#define PLAIN_MAX (1u << 16)

struct mz_chunk_key fuzz_key(void)
{
    struct mz_chunk_key key = {.owner = 1, .layer = 2, .chunk = 3, .row_elements = 64, .k_or_v = 1};
    return key;
}

static uint64_t plain_bytes_of(const uint8_t *data, uint64_t bytes)
{
    struct mz_codec_image image;
    if (mz_codec_image_read(data, bytes, &image) != 0 || image.plain_bytes > PLAIN_MAX)
        return PLAIN_MAX;
    return image.plain_bytes;
}

bool fuzz_decode_one(const uint8_t *data, uint64_t bytes)
{
    const struct mz_chunk_key key = fuzz_key();
    const uint64_t plain_bytes = plain_bytes_of(data, bytes);
    uint8_t *src = malloc(bytes ? bytes : 1), *out = malloc(plain_bytes ? plain_bytes : 1);
    if (!src || !out)
        abort();
    if (bytes)
        memcpy(src, data, bytes);
    bool accepted = mz_codec_decode(&key, src, bytes, out, plain_bytes) == 0;
    bool decoded = mz_codec_decode_unverified(src, bytes, out, plain_bytes) == 0;
    (void)mz_codec_is_lossy_image(src, bytes);
    if (accepted && !decoded)
        abort();
    free(src);
    free(out);
    return accepted;
}
