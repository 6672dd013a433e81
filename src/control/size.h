/* Amounts as people write them. Pure functions.
 *
 * A size is a whole or decimal number with an optional unit: B, K, M, G, T, with or without "iB" (1024 each),
 * or with "B" alone (KB, MB: 1000 each); without a unit: bytes. "500M" is 500 MiB, as everywhere else where
 * memory is written so. A percentage is a number in 0..100 with "%". Upper or lower case; no sign, no space
 * but between number and unit. */
#ifndef MZ_CONTROL_SIZE_H
#define MZ_CONTROL_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mz_amount {
    bool is_share;
    uint64_t bytes;     /* when it is a size */
    uint32_t permyriad; /* when it is a percentage: 0..10000 */
};

/* -EINVAL: not an amount; -ERANGE: over 2^63 bytes or over 100 %. */
int mz_amount_parse(const char *text, struct mz_amount *ret);

/* Bytes that an amount means of `total`, rounded to the nearest. */
uint64_t mz_amount_of(const struct mz_amount *amount, uint64_t total_bytes);

/* A share of a whole in 1/10000, rounded down; 10000 when the whole is 0. */
uint32_t mz_share_permyriad(uint64_t part, uint64_t whole);

#define MZ_SIZE_TEXT 16

/* "512 B", "1.5 MiB", "12 GiB": three digits that count. Returns buf, which holds MZ_SIZE_TEXT bytes. */
const char *mz_size_text(uint64_t bytes, char *buf);

#endif
