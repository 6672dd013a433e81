/* Sizes and percentages as people write them. */
#include "control_test.h"

#include "control/size.h"

static const struct {
    const char *text;
    int rc;
    struct mz_amount amount;
} table[] = {
    {"0", 0, {.bytes = 0}},
    {"1", 0, {.bytes = 1}},
    {"1b", 0, {.bytes = 1}},
    {"500M", 0, {.bytes = UINT64_C(500) << 20}},
    {"500m", 0, {.bytes = UINT64_C(500) << 20}},
    {"500 MiB", 0, {.bytes = UINT64_C(500) << 20}},
    {"500MB", 0, {.bytes = 500000000}},
    {"1.5GiB", 0, {.bytes = UINT64_C(3) << 29}},
    {"1.5G", 0, {.bytes = UINT64_C(3) << 29}},
    {"0.001k", 0, {.bytes = 1}},
    {"2T", 0, {.bytes = UINT64_C(2) << 40}},
    {"1kb", 0, {.bytes = 1000}},
    {"0%", 0, {.is_share = true, .permyriad = 0}},
    {"50%", 0, {.is_share = true, .permyriad = 5000}},
    {"33.33%", 0, {.is_share = true, .permyriad = 3333}},
    {"12.345 %", 0, {.is_share = true, .permyriad = 1235}},
    {"100%", 0, {.is_share = true, .permyriad = 10000}},
    {"100.01%", -ERANGE, {0}},
    {"101%", -ERANGE, {0}},
    {"99999999T", -ERANGE, {0}},
    {"99999999999999999999999", -ERANGE, {0}},
    {"", -EINVAL, {0}},
    {"%", -EINVAL, {0}},
    {"-1", -EINVAL, {0}},
    {"+1", -EINVAL, {0}},
    {" 1", -EINVAL, {0}},
    {"1 ", 0, {.bytes = 1}},
    {"1x", -EINVAL, {0}},
    {"1.", -EINVAL, {0}},
    {".5G", -EINVAL, {0}},
    {"1Mi", -EINVAL, {0}},
    {"1MiBs", -EINVAL, {0}},
    {"1,5G", -EINVAL, {0}},
    {"0x10", -EINVAL, {0}},
    {"1e3", -EINVAL, {0}},
    {"50%%", -EINVAL, {0}},
};

static void parses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct mz_amount amount = {.bytes = 77, .permyriad = 77};
        int rc = mz_amount_parse(table[i].text, &amount);
        if (rc != table[i].rc)
            print_error("\"%s\": %d\n", table[i].text, rc);
        assert_int_equal(rc, table[i].rc);
        if (rc < 0) {
            assert_int_equal(amount.bytes, 77); /* written on success only */
            continue;
        }
        assert_int_equal(amount.is_share, table[i].amount.is_share);
        assert_int_equal(amount.bytes, table[i].amount.bytes);
        assert_int_equal(amount.permyriad, table[i].amount.permyriad);
    }
}

static void shares(void **state)
{
    struct mz_amount half = {.is_share = true, .permyriad = 5000},
                     all = {.is_share = true, .permyriad = 10000};

    (void)state;
    assert_int_equal(mz_amount_of(&half, 1001), 501);
    assert_int_equal(mz_amount_of(&all, UINT64_MAX), UINT64_MAX);
    assert_int_equal(mz_amount_of(&half, UINT64_C(1) << 62), UINT64_C(1) << 61);
    assert_int_equal(mz_amount_of(&half, 0), 0);
    assert_int_equal(mz_share_permyriad(0, 0), 10000);
    assert_int_equal(mz_share_permyriad(1, 2), 5000);
    assert_int_equal(mz_share_permyriad(3, 2), 10000);
    assert_int_equal(mz_share_permyriad(0, 2), 0);
}

static void prints(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536, "1.50 KiB"},
        {UINT64_C(10) << 20, "10.0 MiB"},
        {UINT64_C(500) << 20, "500 MiB"},
        {UINT64_C(1023) << 20, "1023 MiB"},
        {UINT64_C(5) << 29, "2.50 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char buf[MZ_SIZE_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        assert_string_equal(mz_size_text(sizes[i].bytes, buf), sizes[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses),
        cmocka_unit_test(shares),
        cmocka_unit_test(prints),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
