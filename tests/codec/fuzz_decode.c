/*
 * libFuzzer's entry: any bytes as an image, for the decoders with verification and without.
 *   cmake -DCMAKE_C_COMPILER=clang -DMZ_FUZZ=ON ... && tests/fuzz_codec_decode -max_total_time=60
 */
#include "codec/codec.h"
#include "fuzz_decode.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_decode_one(data, bytes);
    return 0;
}
