/*
 * What is tried with one fuzzed image, by libFuzzer and by the regression test: both must agree on it.
 */
#ifndef MZ_TESTS_CODEC_FUZZ_DECODE_H
#define MZ_TESTS_CODEC_FUZZ_DECODE_H

#include <stdbool.h>
#include <stdint.h>

/* The key that the images of the corpus are made with. */
struct mz_chunk_key fuzz_key(void);

/*
 * Reads the header, decodes with verification and without, both into memory of exactly the size asked for, so
 * that a sanitizer sees each byte too far. Returns whether verification accepted the image. Aborts if a
 * verified decode failed without it, or if an accepted image does not have the key it was asked for.
 */
bool fuzz_decode_one(const uint8_t *data, uint64_t bytes);

#endif
