/*
 * Exhaustive proofs about q8 over all of fp16.
 *
 * 1. On the codec itself, with the best instruction set: every group maximum M and every |x| <= M, 504
 * million pairs. Encoded, decoded and encoded again; the payloads must be equal, and the decoded chunk must
 * differ from the plain one by no more than half a step and one rounding.
 * 2. On every instruction set of this machine: every M with every value that a code decodes to, both signs.
 * All that the second pass sees are such values.
 * 3. The rule itself with other numbers of steps C (63, 31, 15, 7, 3, 1), in plain C: every M with the
 * elements at the codes' values and at the borders between them; with --all every pair.
 */
#include "cmocka_all.h"
#include "codec/codec.h"
#include "codec/fp16.h"
#include "codec_data.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAXIMUM_END 0x7c00u /* fp16 bits below this are the finite magnitudes */
#define GROUP       32u
#define BATCH       8192u /* groups in one chunk: half a MiB, in cache */

static bool want_all;

struct chunk {
    uint16_t plain[BATCH * GROUP], decoded[BATCH * GROUP];
    uint8_t image[MZ_CODEC_HEADER_BYTES + BATCH * (2 * GROUP)];
    uint8_t again[MZ_CODEC_HEADER_BYTES + BATCH * (2 * GROUP)];
    unsigned groups;
    uint64_t pairs;
};

static const struct mz_chunk_key key = {.layer = 1, .row_elements = GROUP};

static void check_error(const struct chunk *chunk, unsigned group)
{
    const uint16_t *x = chunk->plain + group * GROUP, *y = chunk->decoded + group * GROUP;
    float maximum = mz_half_to_float(x[0] & 0x7fffu);
    float allowed = maximum / 254.0f + fmaxf(maximum * 0x1p-11f, 0x1p-25f);
    for (unsigned i = 0; i < GROUP; i++)
        if (fabsf(mz_half_to_float(x[i]) - mz_half_to_float(y[i])) > allowed * 1.0001f)
            fail_msg("M %04x, x %04x comes back as %04x", x[0], x[i], y[i]);
}

static void check_chunk(struct chunk *chunk)
{
    const struct mz_codec *q8 = mz_codec_find("q8");
    const uint64_t bytes = (uint64_t)chunk->groups * GROUP * 2;
    uint64_t first = 0, second = 0;
    assert_int_equal(
        mz_codec_encode(q8, &key, chunk->plain, bytes, chunk->image, sizeof(chunk->image), &first), 0);
    assert_int_equal(mz_codec_decode(&key, chunk->image, first, chunk->decoded, bytes), 0);
    assert_int_equal(
        mz_codec_encode(q8, &key, chunk->decoded, bytes, chunk->again, sizeof(chunk->again), &second), 0);
    assert_int_equal(first, second);
    if (memcmp(chunk->image, chunk->again, first) != 0)
        fail_msg("the second pass changes a group (first M %04x, %s)", chunk->plain[0], mz_codec_isa());
    check_error(chunk, 0);
    check_error(chunk, chunk->groups / 2);
    check_error(chunk, chunk->groups - 1);
    chunk->pairs += (uint64_t)chunk->groups * (GROUP - 1);
    chunk->groups = 0;
}

/* One group: M, and the 31 magnitudes from `first` on, every other one negative. */
static void add_group(struct chunk *chunk, unsigned maximum, unsigned first)
{
    uint16_t *x = chunk->plain + chunk->groups * GROUP;
    x[0] = (uint16_t)(maximum | (first & 1u) << 15);
    for (unsigned i = 1; i < GROUP; i++) {
        unsigned magnitude = first + i - 1;
        magnitude = magnitude < maximum ? magnitude : maximum;
        x[i] = (uint16_t)(magnitude | (i & 1u) << 15);
    }
    if (++chunk->groups == BATCH)
        check_chunk(chunk);
}

static void every_pair(void **state)
{
    struct chunk *chunk = calloc(1, sizeof(*chunk));
    (void)state;
    assert_non_null(chunk);
    for (unsigned maximum = 0; maximum < MAXIMUM_END; maximum++)
        for (unsigned first = 0; first <= maximum; first += GROUP - 1)
            add_group(chunk, maximum, first);
    if (chunk->groups)
        check_chunk(chunk);
    print_message("%s: %llu million pairs of a maximum and an element\n", mz_codec_isa(),
                  (unsigned long long)(chunk->pairs / 1000000));
    assert_true(chunk->pairs >= (uint64_t)MAXIMUM_END * (MAXIMUM_END + 1) / 2);
    free(chunk);
}

static uint16_t rule_decode(unsigned steps, uint16_t maximum, int code)
{
    return mz_float_to_half((float)code * (mz_half_to_float(maximum) / (float)steps));
}

static int rule_encode(unsigned steps, uint16_t maximum, uint16_t x)
{
    float inverse = maximum ? (float)steps / mz_half_to_float(maximum) : 0.0f;
    return mz_rint_small(mz_half_to_float(x) * inverse);
}

/* Five groups for each maximum hold what the codes 0 to 127 decode to. */
static void every_code_of_isa(void)
{
    struct chunk *chunk = calloc(1, sizeof(*chunk));
    assert_non_null(chunk);
    for (unsigned maximum = 0; maximum < MAXIMUM_END; maximum++) {
        for (int first = 0; first <= 127; first += (int)GROUP - 1) {
            uint16_t *x = chunk->plain + chunk->groups * GROUP;
            x[0] = (uint16_t)maximum;
            for (int i = 1; i < (int)GROUP; i++) {
                int code = first + i - 1 < 127 ? first + i - 1 : 127;
                x[i] = rule_decode(127, (uint16_t)maximum, (first + i) % 2 ? code : -code);
            }
            if (++chunk->groups == BATCH)
                check_chunk(chunk);
        }
    }
    if (chunk->groups)
        check_chunk(chunk);
    free(chunk);
}

static void every_code(void **state)
{
    (void)state;
    for (unsigned i = 0; mz_codec_isa_at(i); i++) {
        if (mz_codec_isa_select(mz_codec_isa_at(i)) != 0)
            print_message("%s: not on this CPU\n", mz_codec_isa_at(i));
        else
            every_code_of_isa();
    }
    mz_codec_isa_select(NULL);
}

static void check_pair(unsigned steps, uint16_t maximum, uint16_t x)
{
    int code = rule_encode(steps, maximum, x);
    if (code < 0 || code > (int)steps ||
        rule_encode(steps, maximum, rule_decode(steps, maximum, code)) != code)
        fail_msg("C %u, M %04x, x %04x: code %d", steps, maximum, x, code);
}

/* The elements nearest to each code's value and to the border between it and the next. */
static void check_steps(unsigned steps)
{
    for (unsigned maximum = 0; maximum < MAXIMUM_END; maximum++) {
        uint16_t m = (uint16_t)maximum;
        assert_int_equal(rule_decode(steps, m, rule_encode(steps, m, m)), m);
        for (int twice = 0; twice < 2 * (int)steps; twice++) {
            uint16_t middle = rule_decode(2 * steps, m, twice);
            for (int x = middle - 1; x <= middle + 1; x++)
                if (x >= 0 && x <= (int)maximum)
                    check_pair(steps, m, (uint16_t)x);
        }
    }
}

static void other_steps(void **state)
{
    (void)state;
    for (unsigned steps = 127; steps; steps /= 2)
        check_steps(steps);
}

static void check_pairs(unsigned steps)
{
    for (unsigned maximum = 0; maximum < MAXIMUM_END; maximum++)
        for (unsigned x = 0; x <= maximum; x++)
            check_pair(steps, (uint16_t)maximum, (uint16_t)x);
}

static void other_steps_every_pair(void **state)
{
    (void)state;
    if (!want_all) {
        print_message("left out: every pair for C 63, 31, 15, 7, 3, 1 takes a while; give --all\n");
        skip();
    }
    for (unsigned steps = 63; steps; steps /= 2)
        check_pairs(steps);
}

/* One group: both ends and the 62 elements from `first` on that lie between them. */
static void add_range_group(struct chunk *chunk, int32_t low, int32_t high, int32_t first)
{
    uint16_t *x = chunk->plain + chunk->groups * GROUP;
    x[0] = mz_half_of_order(low);
    x[1] = mz_half_of_order(high);
    for (int32_t i = 2; i < 2 * (int32_t)GROUP; i++)
        x[i] = mz_half_of_order(first + i - 2 < high ? first + i - 2 : high);
    chunk->groups += 2;
}

static void check_ranges(struct chunk *chunk)
{
    const struct mz_codec *flexgen = mz_codec_find("q8_flexgen");
    const uint64_t bytes = (uint64_t)chunk->groups * GROUP * 2;
    uint64_t first = 0, second = 0;
    assert_int_equal(
        mz_codec_encode(flexgen, &key, chunk->plain, bytes, chunk->image, sizeof(chunk->image), &first), 0);
    assert_int_equal(mz_codec_decode(&key, chunk->image, first, chunk->decoded, bytes), 0);
    assert_int_equal(
        mz_codec_encode(flexgen, &key, chunk->decoded, bytes, chunk->again, sizeof(chunk->again), &second),
        0);
    if (first != second || memcmp(chunk->image, chunk->again, first) != 0)
        fail_msg("the second pass changes the range %04x to %04x", chunk->plain[0], chunk->plain[1]);
    assert_memory_equal(chunk->plain, chunk->decoded, 2 * sizeof(chunk->plain[0]));
    chunk->groups = 0;
}

/* Ends as far apart as can be, or close: a step is then about the last bit of an element, where codes could
 * slip. */
static void random_range(uint64_t *random, int32_t *ret_low, int32_t *ret_high)
{
    static const int32_t widths[] = {2 * 0x7bff, 4000, 1024, 700, 256};
    int32_t low = (int32_t)(codec_random(random) % (2 * 0x7c00 - 1)) - 0x7c00;
    int32_t width = (int32_t)(codec_random(random) >> 32) & 0x7fffffff;
    int32_t high = low + width % widths[codec_random(random) % 5];
    *ret_low = low;
    *ret_high = high < 0x7bff ? high : 0x7bff;
}

static void ranges_of_flexgen(void **state)
{
    struct chunk *chunk = calloc(1, sizeof(*chunk));
    uint64_t random = 31;
    (void)state;
    assert_non_null(chunk);
    for (unsigned i = 0; i < (want_all ? 1000000u : 30000u); i++) {
        int32_t low, high;
        random_range(&random, &low, &high);
        for (int32_t first = low; first <= high && chunk->groups < BATCH; first += 2 * (int32_t)GROUP - 2)
            add_range_group(chunk, low, high, first);
        check_ranges(chunk);
    }
    free(chunk);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair),        cmocka_unit_test(every_code),
        cmocka_unit_test(other_steps),       cmocka_unit_test(other_steps_every_pair),
        cmocka_unit_test(ranges_of_flexgen),
    };
    want_all = argc > 1 && strcmp(argv[1], "--all") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
