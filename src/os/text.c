/* Small text files and the numbers in them. No state but the environment variable MZ_SYSROOT, read at each
 * call so that a test can change it. */
#include "os/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/fault.h"

static bool below(const char *path, const char *root)
{
    size_t length = strlen(root);
    return !strncmp(path, root, length) && (path[length] == '/' || path[length] == 0);
}

int mz_os_rooted(const char *path, char *buf, size_t size)
{
    const char *root = getenv("MZ_SYSROOT");
    if (!root || path[0] != '/' || below(path, root))
        root = "";
    int length = snprintf(buf, size, "%s%s", root, path);
    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

static int open_rooted(const char *path, int flags)
{
    char rooted[4096];
    int r = mz_os_rooted(path, rooted, sizeof rooted);
    if (!r)
        r = mz_fault_hit(MZ_FAULT_OPEN);
    if (r)
        return r;
    int fd = open(rooted, flags | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

int64_t mz_os_read_all(int fd, char *buf, size_t room)
{
    size_t have = 0;
    while (have < room) {
        int r = mz_fault_hit(MZ_FAULT_READ);
        ssize_t n = r == 0                 ? read(fd, buf + have, room - have)
                    : r == -MZ_FAULT_SHORT ? read(fd, buf + have, (room - have + 1) / 2)
                                           : -1;
        if (n < 0 && r == 0 && errno == EINTR)
            continue;
        if (n < 0)
            return r ? r : -errno;
        if (n == 0)
            break;
        have += (size_t)n;
    }
    return (int64_t)have;
}

int64_t mz_os_read_text(const char *path, char *buf, size_t size)
{
    if (size == 0)
        return -EINVAL;
    int fd = open_rooted(path, O_RDONLY);
    if (fd < 0)
        return fd;
    int64_t n = mz_os_read_all(fd, buf, size - 1);
    close(fd);
    if (n >= 0)
        buf[n] = 0;
    return n;
}

int mz_os_write_text(const char *path, const char *text)
{
    int fd = open_rooted(path, O_WRONLY);
    if (fd < 0)
        return fd;
    size_t length = strlen(text);
    int r = mz_fault_hit(MZ_FAULT_WRITE);
    if (r == -MZ_FAULT_SHORT)
        r = -EIO;
    while (!r) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno == EINTR)
            continue;
        r = n < 0 ? -errno : (size_t)n < length ? -EIO : 0;
        break;
    }
    close(fd);
    return r;
}

/* The digits at *at, which moves behind them. */
static int scan_digits(const char **at, uint64_t *ret)
{
    const char *c = *at;
    uint64_t value = 0;
    if (*c < '0' || *c > '9')
        return -EBADMSG;
    for (; *c >= '0' && *c <= '9'; c++) {
        uint64_t digit = (uint64_t)(*c - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return -EBADMSG;
        value = value * 10 + digit;
    }
    *at = c;
    *ret = value;
    return 0;
}

static const char *skip_blanks(const char *c)
{
    return c + strspn(c, " \t");
}

static const char *find_key(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, key, length) && (line[length] == ' ' || line[length] == '\t'))
            return line + length;
    }
    return NULL;
}

int mz_os_find_number(const char *text, const char *key, uint64_t *ret)
{
    const char *at = find_key(text, key);
    if (!at)
        return -ENOENT;
    at = skip_blanks(at);
    uint64_t value;
    int r = scan_digits(&at, &value);
    if (r)
        return r;
    at = skip_blanks(at);
    if (!strncmp(at, "kB", 2)) {
        if (value > UINT64_MAX / 1024)
            return -EBADMSG;
        value *= 1024;
        at += 2;
    }
    if (*at != '\n' && *at != 0)
        return -EBADMSG;
    *ret = value;
    return 0;
}

int mz_os_parse_number(const char *text, uint64_t *ret)
{
    const char *at = skip_blanks(text);
    uint64_t value = UINT64_MAX;
    if (!strncmp(at, "max", 3))
        at += 3;
    else if (scan_digits(&at, &value))
        return -EBADMSG;
    if (at[strspn(at, " \t\n")] != 0)
        return -EBADMSG;
    *ret = value;
    return 0;
}
