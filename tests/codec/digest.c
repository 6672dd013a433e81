/*
 * Prints a hash of the image and of the decoded chunk for every codec, data family and some element counts,
 * for the instruction set named (or the best). What it prints must be the same on every machine: neon.sh
 * compares the output of an aarch64 build with that of this machine's. No test library, so that it
 * cross-compiles anywhere.
 */
#include "codec/codec.h"
#include "codec_data.h"

#include <stdio.h>
#include <stdlib.h>

#define ELEMENTS_MAX 16384u

static uint64_t fnv(const uint8_t *data, uint64_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static int digest(const struct mz_codec *codec, enum codec_family family, uint64_t elements)
{
    static uint16_t plain[ELEMENTS_MAX];
    static uint8_t image[64 + 2 * ELEMENTS_MAX], out[2 * ELEMENTS_MAX];
    const struct mz_chunk_key key = {.owner = 1, .layer = 2, .chunk = 3, .row_elements = 64, .k_or_v = 1};
    uint64_t n = 0;
    codec_fill(family, elements, elements, 64, plain);
    if (mz_codec_encode(codec, &key, plain, 2 * elements, image, sizeof(image), &n) != 0 ||
        mz_codec_decode(&key, image, n, out, 2 * elements) != 0)
        return 1;
    printf("%s %s %llu %016llx %016llx\n", codec->name, codec_family_name(family),
           (unsigned long long)elements, (unsigned long long)fnv(image, n),
           (unsigned long long)fnv(out, 2 * elements));
    return 0;
}

int main(int argc, char **argv)
{
    static const uint64_t counts[] = {1, 7, 31, 32, 33, 63, 64, 65, 500, 1024, 4096 + 17, ELEMENTS_MAX};
    if (mz_codec_isa_select(argc > 1 ? argv[1] : NULL) != 0) {
        fprintf(stderr, "codec_digest: no %s here\n", argv[1]);
        return 1;
    }
    fprintf(stderr, "codec_digest: %s\n", mz_codec_isa());
    for (unsigned c = 0; mz_codec_at(c); c++)
        for (unsigned f = 0; f < FAMILY_COUNT; f++)
            for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
                if (digest(mz_codec_at(c), (enum codec_family)f, counts[i]) != 0) {
                    fprintf(stderr, "codec_digest: failed\n");
                    return 1;
                }
    return 0;
}
