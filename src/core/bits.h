/* Maps of bits: which blocks of a range are taken. Bit i is bit i % 64 of word i / 64. Pure; the caller
 * locks. */
#ifndef MZ_CORE_BITS_H
#define MZ_CORE_BITS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* Words for n bits. */
static inline uint64_t mz_bits_words(uint64_t n)
{
    return (n + 63) / 64;
}

/* The first bit in [from, end) of that value, or `end`. */
static inline uint64_t mz_bits_next(const uint64_t *bits, uint64_t from, uint64_t end, bool value)
{
    while (from < end) {
        uint64_t word = (value ? bits[from / 64] : ~bits[from / 64]) >> (from % 64);
        if (word) {
            from += (uint64_t)__builtin_ctzll(word);
            return from < end ? from : end;
        }
        from = (from / 64 + 1) * 64;
    }
    return end;
}

/* The next bits of a range that lie in one word, as a mask; moves *from behind them. */
static inline uint64_t mz_bits_mask(uint64_t *from, uint64_t end)
{
    uint64_t at = *from % 64, count = 64 - at;
    if (count > end - *from)
        count = end - *from;
    *from += count;
    return (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << at;
}

/* Gives all bits in [from, end) the value. */
static inline void mz_bits_fill(uint64_t *bits, uint64_t from, uint64_t end, bool value)
{
    while (from < end) {
        uint64_t *word = &bits[from / 64], mask = mz_bits_mask(&from, end);
        *word = value ? *word | mask : *word & ~mask;
    }
}

/* How many bits in [from, end) are 1. */
static inline uint64_t mz_bits_count(const uint64_t *bits, uint64_t from, uint64_t end)
{
    uint64_t n = 0;
    while (from < end) {
        uint64_t word = bits[from / 64];
        n += (uint64_t)__builtin_popcountll(word & mz_bits_mask(&from, end));
    }
    return n;
}

#endif
