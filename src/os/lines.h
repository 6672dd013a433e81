/* Reading a file of /proc line by line, however long the file is. Private to src/os.
 *
 * A struct mz_lines belongs to one thread; it is opened, read to the end or not, and closed. */
#ifndef MZ_OS_LINES_H
#define MZ_OS_LINES_H

#include <stdbool.h>
#include <stddef.h>

struct mz_lines {
    int fd;
    int error;           /* 0, or the negative errno that ended reading */
    size_t begin, end;   /* bytes of buf that hold text not yet returned */
    char buf[24 * 1024]; /* one line: a path of 4096 bytes, each escaped by four, and some fields */
};

/* 0 or negative errno. With `rooted`, MZ_SYSROOT applies (os/text.h). */
int mz_lines_open(struct mz_lines *lines, const char *path, bool rooted);

/* The next line without its newline, valid until the next call; NULL at the end or after an error. A line that does
 * not fit is cut in two. */
char *mz_lines_next(struct mz_lines *lines);

/* Returns the error that ended reading, or 0. */
int mz_lines_close(struct mz_lines *lines);

#endif
