/* Amounts as people write them. No state, no locks; own digits are read, so the locale does not matter. */
#include "control/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A decimal number as units of 1e-6: enough for any size people write by hand, and exact. */
#define MICRO UINT64_C(1000000)

static int read_number(const char **text, uint64_t *ret_whole, uint64_t *ret_micro)
{
    const char *s = *text;
    uint64_t whole = 0, micro = 0, place = MICRO / 10;

    if (!isdigit((unsigned char)*s))
        return -EINVAL;
    for (; isdigit((unsigned char)*s); s++) {
        if (whole > (UINT64_MAX - 9) / 10)
            return -ERANGE;
        whole = whole * 10 + (uint64_t)(*s - '0');
    }
    if (*s == '.') {
        s++;
        if (!isdigit((unsigned char)*s))
            return -EINVAL;
        for (; isdigit((unsigned char)*s); s++, place /= 10)
            micro += place * (uint64_t)(*s - '0');
    }
    *text = s;
    *ret_whole = whole;
    *ret_micro = micro;
    return 0;
}

static int read_unit(const char *text, uint64_t *ret)
{
    static const char letters[] = "kmgt";
    uint64_t binary = 1, decimal = 1;

    if (*text == '\0' || strcasecmp(text, "b") == 0) {
        *ret = 1;
        return 0;
    }
    const char *at = strchr(letters, tolower((unsigned char)*text));
    if (!at)
        return -EINVAL;
    for (const char *l = letters; l <= at; l++) {
        binary *= 1024;
        decimal *= 1000;
    }
    text++;
    if (*text == '\0' || strcasecmp(text, "ib") == 0)
        *ret = binary;
    else if (strcasecmp(text, "b") == 0)
        *ret = decimal;
    else
        return -EINVAL;
    return 0;
}

static int parse_share(uint64_t whole, uint64_t micro, struct mz_amount *ret)
{
    if (whole > 100 || (whole == 100 && micro > 0))
        return -ERANGE;
    uint64_t permyriad = whole * 100 + (micro * 100 + MICRO / 2) / MICRO;
    *ret = (struct mz_amount){.is_share = true, .permyriad = (uint32_t)permyriad};
    return 0;
}

int mz_amount_parse(const char *text, struct mz_amount *ret)
{
    uint64_t whole, micro, unit;
    int rc = read_number(&text, &whole, &micro);

    if (rc < 0)
        return rc;
    if (*text == ' ')
        text++;
    if (strcmp(text, "%") == 0)
        return parse_share(whole, micro, ret);
    rc = read_unit(text, &unit);
    if (rc < 0)
        return rc;
    if (whole > (uint64_t)INT64_MAX / unit - 1)
        return -ERANGE;
    /* unit <= 2^40 and micro < 2^20: the product fits. */
    *ret = (struct mz_amount){.bytes = whole * unit + micro * unit / MICRO};
    return 0;
}

uint64_t mz_amount_of(const struct mz_amount *amount, uint64_t total_bytes)
{
    if (!amount->is_share)
        return amount->bytes;
    uint64_t whole = total_bytes / 10000, rest = total_bytes % 10000;

    return whole * amount->permyriad + (rest * amount->permyriad + 5000) / 10000;
}

uint32_t mz_share_permyriad(uint64_t part, uint64_t whole)
{
    if (whole == 0 || part >= whole)
        return 10000;
    return (uint32_t)((double)part / (double)whole * 10000.0);
}

const char *mz_size_text(uint64_t bytes, char *buf)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 1023.5 && unit + 1 < sizeof(units) / sizeof(*units)) {
        value /= 1024;
        unit++;
    }
    int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    (void)snprintf(buf, MZ_SIZE_TEXT, "%.*f %s", digits, value, units[unit]);
    return buf;
}
