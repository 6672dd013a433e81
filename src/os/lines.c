/* Lines of a file through one buffer. All state is in the caller's struct. */
#include "os/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/text.h"

int mz_lines_open(struct mz_lines *lines, const char *path, bool rooted)
{
    char buf[4096];
    int r = mz_fault_hit(MZ_FAULT_OPEN);
    if (!r && rooted) {
        r = mz_os_rooted(path, buf, sizeof buf);
        path = buf;
    }
    if (r)
        return r;
    lines->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (lines->fd < 0)
        return -errno;
    lines->error = 0;
    lines->begin = lines->end = 0;
    return 0;
}

/* Reads more text behind what is there; false at the end, after an error, or with a full buffer. */
static bool fill(struct mz_lines *lines)
{
    memmove(lines->buf, lines->buf + lines->begin, lines->end - lines->begin);
    lines->end -= lines->begin;
    lines->begin = 0;
    size_t room = sizeof lines->buf - 1 - lines->end;
    ssize_t n = 0;
    int r = mz_fault_hit(MZ_FAULT_READ);
    if (r == -MZ_FAULT_SHORT)
        room = (room + 1) / 2;
    else if (r) {
        lines->error = r;
        return false;
    }
    while (room && (n = read(lines->fd, lines->buf + lines->end, room)) < 0 && errno == EINTR)
        ;
    if (n < 0)
        lines->error = -errno;
    if (n <= 0)
        return false;
    lines->end += (size_t)n;
    return true;
}

char *mz_lines_next(struct mz_lines *lines)
{
    for (;;) {
        char *start = lines->buf + lines->begin;
        char *newline = memchr(start, '\n', lines->end - lines->begin);
        if (newline) {
            *newline = 0;
            lines->begin = (size_t)(newline + 1 - lines->buf);
            return start;
        }
        if (fill(lines))
            continue;
        if (lines->error || lines->begin == lines->end)
            return NULL;
        lines->buf[lines->end] = 0;
        lines->begin = lines->end;
        return lines->buf;
    }
}

int mz_lines_close(struct mz_lines *lines)
{
    close(lines->fd);
    return lines->error;
}
