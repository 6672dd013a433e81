/* What users say to the policy: option texts. No state. */
#include "pressure/policy.h"

#include <errno.h>
#include <string.h>

#define YEAR_MS (UINT64_C(366) * 24 * 3600 * 1000)

/* The decimal number at *text, which is moved behind it. -EINVAL: none, -ERANGE: over 15 digits. */
static int take_number(const char **text, uint64_t *ret)
{
    const char *p = *text;
    uint64_t v = 0;

    for (; *p >= '0' && *p <= '9'; p++) {
        if (p - *text >= 15)
            return -ERANGE;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    if (p == *text)
        return -EINVAL;
    *text = p;
    *ret = v;
    return 0;
}

/* A whole percentage of 1..100, "%" optional, up to the end of the text. */
static int parse_percent(const char *text, uint32_t *ret_permyriad)
{
    uint64_t v = 0;
    int r = take_number(&text, &v);

    if (r < 0)
        return -EINVAL;
    if (*text == '%')
        text++;
    if (*text != '\0' || v < 1 || v > 100)
        return -EINVAL;
    *ret_permyriad = (uint32_t)v * 100;
    return 0;
}

int mz_policy_parse_step(const char *text, uint32_t *ret_permyriad)
{
    if (strcmp(text, "own") == 0) {
        *ret_permyriad = 0;
        return 0;
    }
    return parse_percent(text, ret_permyriad);
}

static uint64_t unit_ms(char c)
{
    switch (c) {
    case 's':
        return 1000;
    case 'm':
        return 60 * 1000;
    case 'h':
        return 3600 * 1000;
    default:
        return 0;
    }
}

int mz_policy_parse_idle(const char *text, uint64_t *ret_idle_ms, uint32_t *ret_permyriad)
{
    uint64_t count = 0, scale = 1000;
    uint32_t permyriad = 10000;
    int r;

    if (strcmp(text, "off") == 0) {
        *ret_idle_ms = 0;
        *ret_permyriad = permyriad;
        return 0;
    }
    r = take_number(&text, &count);
    if (r < 0)
        return r;
    if (unit_ms(*text) != 0)
        scale = unit_ms(*text++);
    if (*text == ':') {
        r = parse_percent(text + 1, &permyriad);
        if (r < 0)
            return r;
    } else if (*text != '\0') {
        return -EINVAL;
    }
    if (count == 0)
        return -EINVAL;
    if (count > YEAR_MS / scale)
        return -ERANGE;
    *ret_idle_ms = count * scale;
    *ret_permyriad = permyriad;
    return 0;
}
