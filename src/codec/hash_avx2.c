/*
 * XXH3-64, compiled for CPUs with AVX2. xxhash.h inlines itself and picks its loops
 * by the compiler's flags; a packaged libxxhash has the slowest loops of its architecture only.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/codec_int.h"

uint64_t mz_hash_avx2(const void *data, uint64_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}
