/* Options of core: the table, and text to value and back. Pure but for the environment, which
 * mz_options_from_env() reads, and the log. No state, no locks. */
#include "core/options.h"

#include <errno.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "os/log.h"

enum type { CHOICE, SIZE, COUNT, PATH };

struct row {
    struct mz_option_info info;
    enum type type;
    size_t field;       /* offset in struct mz_options: uint32_t, or the text of a PATH */
    uint32_t low, high; /* SIZE (besides 0) and COUNT */
};

#define FIELD(name) offsetof(struct mz_options, name)

#define CHOICE_OF(field, ...)                                                                                \
    {                                                                                                        \
        {__VA_ARGS__}, CHOICE, FIELD(field), 0, 0                                                            \
    }
#define OTHER_OF(field, type, low, high, ...)                                                                \
    {                                                                                                        \
        {__VA_ARGS__}, type, FIELD(field), low, high                                                         \
    }

/* A choice's values stand in the order of its enum, from 0. */
static const struct row table[] = {
    CHOICE_OF(
        kv, "kv", "MZ_KV", "exact", "exact|q8",
        "how evicted KV is kept: bit by bit (all of it in storage), or 8-bit quantised in memory as well"),
    CHOICE_OF(order, "order", "MZ_ORDER", "backward", "backward|forward|random",
              "which layers leave first; the other two are for comparisons"),
    CHOICE_OF(overlap, "overlap", "MZ_OVERLAP", "full", "full|none|alloc-reload|reload-prefill",
              "what runs at the same time while restoring: all, or less of it for comparisons"),
    CHOICE_OF(paths, "paths", "MZ_PATHS", "parallel", "parallel|sequential",
              "whether storage and the compressed stack restore at once or in turn"),
    CHOICE_OF(rule, "rule", "MZ_RULE", "exact", "exact|published",
              "how evictions are balanced over the two paths: by times, or by counts as in Algorithm 1"),
    OTHER_OF(workers, COUNT, 0, 64, "workers", "MZ_WORKERS", "0", "0..64",
             "restoring threads; 0: as many as CPUs, at least 2, at most 8"),
    OTHER_OF(request_bytes, SIZE, 64u << 10, 16u << 20, "request", "MZ_REQUEST", "0", "SIZE",
             "bytes of one read or write, 64K to 16M; 0: what was measured"),
    CHOICE_OF(uring, "uring", "MZ_URING", "on", "off|on",
              "io_uring where the kernel allows it, or plain calls"),
    CHOICE_OF(clean, "clean", "MZ_CLEAN", "on", "off|on",
              "write copies of what has none to the swap file while idle"),
    OTHER_OF(swap_folder, PATH, 0, 0, "swap-folder", "MZ_SWAP_FOLDER", "", "PATH",
             "where the swap file is made; empty: the cache folder"),
    CHOICE_OF(swap_force, "swap-force", "MZ_SWAP_FORCE", "off", "off|on",
              "allow a swap folder that lies in memory (tmpfs)"),
    CHOICE_OF(
        repacked, "repacked", "MZ_REPACKED", "off", "off|on",
        "keep evicted weights that are packed for the CPU in the swap file, instead of packing them again"),
};

/* What core reads once, when it is made: changing it later would do nothing. */
static const char *const at_start[] = {"workers", "uring", "swap-folder", "swap-force"};

#define ROWS (sizeof table / sizeof table[0])

const struct mz_option_info *mz_options_row(uint32_t index)
{
    return index < ROWS ? &table[index].info : NULL;
}

static const struct row *find(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (!strcmp(table[i].info.name, name))
            return &table[i];
    return NULL;
}

static uint32_t *number_of(struct mz_options *options, const struct row *row)
{
    return (uint32_t *)(void *)((char *)options + row->field);
}

static char *text_of(struct mz_options *options, const struct row *row)
{
    return (char *)options + row->field;
}

/* -------------------------------------------------------------------------------- text to value */

/* The place of `value` among "a|b|c". */
static int parse_choice(const char *values, const char *value, uint32_t *ret)
{
    size_t length = strlen(value);
    uint32_t index = 0;
    for (const char *at = values; at; index++) {
        size_t word = strcspn(at, "|");
        if (word == length && !memcmp(at, value, length)) {
            *ret = index;
            return 0;
        }
        at = at[word] ? at + word + 1 : NULL;
    }
    return -EINVAL;
}

static uint64_t suffix_bytes(const char *suffix)
{
    static const char *const names[][3] = {
        {"", "B", "B"}, {"K", "KiB", "k"}, {"M", "MiB", "m"}, {"G", "GiB", "g"}};
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < 3; j++)
            if (!strcmp(names[i][j], suffix))
                return UINT64_C(1) << (10 * i);
    return 0;
}

/* Digits, and for sizes a suffix. At most 32 bits. */
static int parse_number(const struct row *row, const char *value, uint32_t *ret)
{
    size_t digits = strspn(value, "0123456789");
    if (digits == 0 || digits > 10)
        return -EINVAL;
    uint64_t unit = row->type == SIZE ? suffix_bytes(value + digits) : value[digits] == 0;
    uint64_t number = strtoull(value, NULL, 10) * unit; /* below 10^10 * 2^30 */
    bool allowed =
        unit && ((number >= row->low && number <= row->high) || (row->type == SIZE && number == 0));
    if (!allowed)
        return -EINVAL;
    *ret = (uint32_t)number;
    return 0;
}

static int set_row(struct mz_options *options, const struct row *row, const char *value)
{
    if (row->type == PATH) {
        size_t length = strlen(value);
        if (length >= sizeof options->swap_folder)
            return -ENAMETOOLONG;
        memmove(text_of(options, row), value, length + 1);
        return 0;
    }
    uint32_t number;
    int r = row->type == CHOICE ? parse_choice(row->info.values, value, &number)
                                : parse_number(row, value, &number);
    if (!r)
        *number_of(options, row) = number;
    return r;
}

bool mz_options_at_start(const char *name)
{
    for (size_t i = 0; i < sizeof at_start / sizeof at_start[0]; i++)
        if (!strcmp(at_start[i], name))
            return true;
    return false;
}

int mz_options_set(struct mz_options *options, const char *name, const char *value)
{
    const struct row *row = find(name);
    return row ? set_row(options, row, value) : -ENOENT;
}

void mz_options_init(struct mz_options *options)
{
    memset(options, 0, sizeof *options);
    for (size_t i = 0; i < ROWS; i++)
        (void)set_row(options, &table[i], table[i].info.initial); /* defaults are allowed: a test says so */
}

int mz_options_from_env(struct mz_options *options)
{
    int first = 0;
    mz_options_init(options);
    for (size_t i = 0; i < ROWS; i++) {
        const struct mz_option_info *info = &table[i].info;
        const char *value = getenv(info->env);
        int r = value ? set_row(options, &table[i], value) : 0;
        if (!r)
            continue;
        mz_log(MZ_LOG_WARN, "%s=%s is not allowed (%s), using %s", info->env, value, info->values,
               *info->initial ? info->initial : "the default");
        if (!first)
            first = r;
    }
    return first;
}

/* -------------------------------------------------------------------------------- value to text */

static int print_choice(const char *values, uint32_t index, char *buf, size_t size)
{
    for (; index > 0; index--)
        values += strcspn(values, "|") + 1;
    return snprintf(buf, size, "%.*s", (int)strcspn(values, "|"), values);
}

static int print_row(const struct mz_options *options, const struct row *row, char *buf, size_t size)
{
    const void *field = (const char *)options + row->field;
    if (row->type == PATH)
        return snprintf(buf, size, "%s", (const char *)field);
    uint32_t number;
    memcpy(&number, field, sizeof number);
    return row->type == CHOICE ? print_choice(row->info.values, number, buf, size)
                               : snprintf(buf, size, "%u", number);
}

int mz_options_get(const struct mz_options *options, const char *name, char *buf, size_t size)
{
    const struct row *row = find(name);
    char text[sizeof options->swap_folder];
    if (!row)
        return -ENOENT;
    int length = print_row(options, row, text, sizeof text);
    if (length < 0 || (size_t)length >= size)
        return -ENOSPC;
    memcpy(buf, text, (size_t)length + 1);
    return 0;
}

void mz_options_log(const struct mz_options *options)
{
    for (size_t i = 0; i < ROWS; i++) {
        char text[sizeof options->swap_folder];
        (void)print_row(options, &table[i], text, sizeof text);
        bool same = !strcmp(text, table[i].info.initial);
        mz_log(MZ_LOG_DEBUG, "option %s = %s%s", table[i].info.name, *text ? text : "(default)",
               same ? "" : " (changed)");
    }
}
