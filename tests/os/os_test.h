/* What the tests of this room share: cmocka's includes, a folder of their own that is cleared of what they
 * made in it. */
#ifndef MZ_TESTS_OS_TEST_H
#define MZ_TESTS_OS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/fault.h"

/* Everything made through here, in order; removed from the last to the first. */
static char *made_paths[256];
static unsigned made_count;
static char test_folder[64];

static inline void made(const char *path)
{
    assert_true(made_count < sizeof made_paths / sizeof made_paths[0]);
    made_paths[made_count] = strdup(path);
    assert_non_null(made_paths[made_count]);
    made_count++;
}

static inline void remove_made(void)
{
    while (made_count) {
        char *path = made_paths[--made_count];
        (void)remove(path);
        free(path);
    }
}

/* /var/tmp and not /tmp: it lies on a disk on every system. */
static inline const char *make_test_folder(void)
{
    strcpy(test_folder, "/var/tmp/mzcache-test-XXXXXX");
    assert_non_null(mkdtemp(test_folder));
    made(test_folder);
    return test_folder;
}

/* Setups of a test that makes files, and of one to which its folder is the root of the system. */
static inline int set_up_folder(void **state)
{
    (void)state;
    make_test_folder();
    return 0;
}

static inline int set_up_root(void **state)
{
    (void)state;
    setenv("MZ_SYSROOT", make_test_folder(), 1);
    return 0;
}

/* The teardown of both. */
static inline int tear_down_folder(void **state)
{
    (void)state;
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    unsetenv("MZ_SYSROOT");
    remove_made();
    return 0;
}

/* The path of a name in the folder, in one of four buffers that take turns. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder, name);
    return path;
}

/* A file with these bytes, and the folders above it. */
static inline const char *make_file(const char *name, const void *bytes, size_t size)
{
    const char *path = in_folder(name);
    char above[512];
    for (const char *slash = path + strlen(test_folder) + 1; (slash = strchr(slash, '/')); slash++) {
        snprintf(above, sizeof above, "%.*s", (int)(slash - path), path);
        if (!mkdir(above, 0700))
            made(above);
    }
    bool is_new = access(path, F_OK) != 0;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    if (is_new)
        made(path);
    return path;
}

static inline const char *make_text(const char *name, const char *text)
{
    return make_file(name, text, strlen(text));
}

/* Bytes that differ from one place to the next. */
static inline void fill_pattern(unsigned char *to, size_t bytes, unsigned seed)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        to[i] = (unsigned char)x;
    }
}

#endif
