/* What the tests of this room and of the command share: cmocka's includes, a folder of its own, sockets in
 * it, waiting for something to become true. */
#ifndef MZ_TESTS_CONTROL_TEST_H
#define MZ_TESTS_CONTROL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Waits until the condition holds, for as long as a loaded machine may take. */
#define PATIENCE_MS 60000
#define eventually(condition)                                                                                \
    do {                                                                                                     \
        int waited_ = 0;                                                                                     \
        while (!(condition) && waited_ < PATIENCE_MS)                                                        \
            waited_ += pause_ms(5);                                                                          \
        assert_true(condition);                                                                              \
    } while (0)

static inline int pause_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};

    (void)nanosleep(&t, NULL);
    return ms;
}

/* A new folder of mode 0700, outside of memory. */
static inline void make_folder(char *buf, size_t size)
{
    (void)snprintf(buf, size, "/var/tmp/mz-control-XXXXXX");
    assert_non_null(mkdtemp(buf));
}

/* The same, and what is started from now on has its socket and swap file there and watches no memory. */
static inline void live_in_folder(char *buf, size_t size)
{
    make_folder(buf, size);
    (void)setenv("MZ_RUNTIME_DIR", buf, 1);
    (void)setenv("MZ_SWAP_FOLDER", buf, 1);
    (void)setenv("MZ_PRESSURE", "off", 1);
}

/* Removes a folder of ours and the files that lie directly in it. */
static inline void remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);

    assert_int_equal(strncmp(folder, "/var/tmp/mz-control-", 20), 0);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        (void)closedir(dir);
    (void)rmdir(folder);
}

/* Number of descriptors that this process has open. */
static inline int open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = -1; /* the folder's own */

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

#endif
