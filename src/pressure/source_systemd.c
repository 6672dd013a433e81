/* systemd's memory pressure protocol ("Memory Pressure Handling in systemd", the page MEMORY_PRESSURE):
 * whoever started us names in $MEMORY_PRESSURE_WATCH a file, FIFO or socket that becomes ready when we should
 * give memory back, and in $MEMORY_PRESSURE_WRITE (base64) what to write to it first. "/dev/null" means: do
 * not watch for pressure at all.
 *
 *   regular file  poll for POLLPRI, never read
 *   FIFO          poll for POLLIN, read all; opened again when its last writer is gone, so that `echo > fifo` can come
 *                 more than once
 *   socket        poll for POLLIN, read all; gone when the peer closes */
#include "pressure/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/pressure_fd.h"

#define WATCH           "MEMORY_PRESSURE_WATCH"
#define WRITE           "MEMORY_PRESSURE_WRITE"
#define WRITE_MAX_BYTES 4096

bool mz_pressure_source_switched_off(void)
{
    const char *watch = getenv(WATCH);

    return watch != NULL && strcmp(watch, "/dev/null") == 0;
}

static int digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c == '\0' ? NULL : strchr(digits, c);

    return p == NULL ? -1 : (int)(p - digits);
}

/* Four characters to up to three bytes; returns their number or -EBADMSG. */
static int decode_group(const char *text, unsigned char ret[3])
{
    int padding = text[3] != '=' ? 0 : text[2] != '=' ? 1 : 2;
    uint32_t v = 0;

    for (int i = 0; i < 4; i++) {
        int d = i >= 4 - padding ? 0 : digit(text[i]);

        if (d < 0)
            return -EBADMSG;
        v = v << 6 | (uint32_t)d;
    }
    for (int i = 0; i < 3; i++)
        ret[i] = (unsigned char)(v >> (16 - 8 * i));
    return 3 - padding;
}

int mz_base64_decode(const char *text, void *buf, size_t size, size_t *ret_bytes)
{
    size_t length = strlen(text), bytes = 0;

    if (length % 4 != 0)
        return -EBADMSG;
    for (size_t i = 0; i < length; i += 4) {
        unsigned char group[3];
        int n = decode_group(text + i, group);

        if (n < 0 || (n < 3 && i + 4 != length))
            return -EBADMSG;
        if ((size_t)n > size - bytes)
            return -ENOBUFS;
        memcpy((char *)buf + bytes, group, (size_t)n);
        bytes += (size_t)n;
    }
    *ret_bytes = bytes;
    return 0;
}

static int refuse(struct mz_pressure_source *s, int err, const char *why)
{
    snprintf(s->detail, sizeof(s->detail), "%s", why);
    return err;
}

static int systemd_open(struct mz_pressure_source *s)
{
    const char *watch = getenv(WATCH), *write = getenv(WRITE);
    unsigned char data[WRITE_MAX_BYTES];
    enum mz_pressure_fd_kind kind;
    size_t bytes = 0;
    int r;

    if (watch == NULL || watch[0] == '\0')
        return refuse(s, -ENOENT, "$" WATCH " is not set");
    if (watch[0] != '/')
        return refuse(s, -EINVAL, "$" WATCH " is not an absolute path");
    if (strlen(watch) >= sizeof(s->path))
        return -ENAMETOOLONG;
    if (write != NULL && mz_base64_decode(write, data, sizeof(data), &bytes) < 0)
        return refuse(s, -EBADMSG, "$" WRITE " is not base64 of at most 4096 bytes");
    r = mz_pressure_fd_systemd(watch, data, bytes, &kind, &s->fd);
    if (r < 0)
        return r;
    snprintf(s->path, sizeof(s->path), "%s", watch);
    s->fifo = kind == MZ_PRESSURE_FD_FIFO;
    s->events = kind == MZ_PRESSURE_FD_FILE ? POLLPRI : POLLIN;
    snprintf(s->detail, sizeof(s->detail), "%s %.90s",
             kind == MZ_PRESSURE_FD_FILE ? "file"
             : s->fifo                   ? "FIFO"
                                         : "socket",
             watch);
    return 0;
}

static void tell(struct mz_policy_sample *sample)
{
    if (sample->told < MZ_LEVEL_MEDIUM)
        sample->told = MZ_LEVEL_MEDIUM;
}

/* The last writer closed it. Only for reading: without a writer that never was there is no POLLHUP. */
static int reopen_fifo(struct mz_pressure_source *s)
{
    enum mz_pressure_fd_kind kind;

    mz_pressure_fd_close(&s->fd);
    return mz_pressure_fd_systemd(s->path, NULL, 0, &kind, &s->fd);
}

static int systemd_event(struct mz_pressure_source *s, short revents, struct mz_policy_sample *sample)
{
    int64_t n;

    if (s->events == POLLPRI) {
        if (revents & (POLLERR | POLLHUP | POLLNVAL))
            return -ENODEV;
        if (revents & POLLPRI)
            tell(sample);
        return 0;
    }
    if (revents & POLLNVAL)
        return -EBADF;
    n = mz_pressure_fd_drain(s->fd);
    if (n > 0)
        tell(sample);
    else if (n < 0 && n != -EAGAIN)
        return (int)n;
    if ((revents & (POLLHUP | POLLERR)) == 0 && n != 0)
        return 0;
    return s->fifo ? reopen_fifo(s) : -ECONNRESET;
}

const struct mz_pressure_source_ops mz_pressure_source_systemd = {
    .name = "systemd",
    .open = systemd_open,
    .event = systemd_event,
    .once = true,
};
