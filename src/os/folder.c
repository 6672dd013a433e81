/* Folders and small files of our own. No state, no locks. */
#include "os/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/text.h"

#define PATH_BYTES 4096

static const char *absolute_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

int mz_folder_cache(char *buf, size_t size)
{
    const char *base = absolute_variable("XDG_CACHE_HOME");
    const char *below = "/mzcache";
    if (!base) {
        base = absolute_variable("HOME");
        below = "/.cache/mzcache";
    }
    if (!base)
        return -ENOENT;
    int length = snprintf(buf, size, "%s%s", base, below);
    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

static int make_one(const char *path)
{
    int r = mz_fault_hit(MZ_FAULT_OPEN);
    if (r)
        return r;
    return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

static int is_folder(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int mz_folder_make(const char *path)
{
    char part[PATH_BYTES];
    size_t length = strlen(path);
    if (length == 0)
        return -ENOENT;
    if (length >= sizeof part)
        return -ENAMETOOLONG;
    memcpy(part, path, length + 1);
    /* From the top down: what is there says EEXIST, or EROFS and the like, which the last step tells apart.
     */
    int r = 0;
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != 0)
            continue;
        part[i] = 0;
        r = make_one(part);
        part[i] = path[i];
    }
    int there = is_folder(path);
    if (there == 0)
        return 0;
    return r ? r : there;
}

/* A device or pipe would block or never end. */
static int check_regular(int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        return -errno;
    return S_ISREG(st.st_mode) ? 0 : S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
}

int64_t mz_folder_get_file(const char *path, char *buf, size_t size)
{
    if (size == 0)
        return -EINVAL;
    int r = mz_fault_hit(MZ_FAULT_OPEN);
    if (r)
        return r;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    r = check_regular(fd);
    int64_t n = r ? r : mz_os_read_all(fd, buf, size);
    close(fd);
    if (n < 0)
        return n;
    if ((size_t)n == size)
        return -EFBIG;
    buf[n] = 0;
    return n;
}

static int write_all(int fd, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        int r = mz_fault_hit(MZ_FAULT_WRITE);
        ssize_t n = r == 0                 ? write(fd, text, left)
                    : r == -MZ_FAULT_SHORT ? write(fd, text, (left + 1) / 2)
                                           : -1;
        if (n < 0 && r == 0 && errno == EINTR)
            continue;
        if (n < 0)
            return r ? r : -errno;
        text += n;
        left -= (size_t)n;
    }
    return 0;
}

int mz_folder_put_file(const char *path, const char *text)
{
    char beside[PATH_BYTES];
    int length = snprintf(beside, sizeof beside, "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof beside)
        return -ENAMETOOLONG;
    int r = mz_fault_hit(MZ_FAULT_OPEN);
    if (r)
        return r;
    int fd = mkostemp(beside, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = write_all(fd, text);
    if (close(fd) && !r)
        r = -errno;
    if (!r && rename(beside, path))
        r = -errno;
    if (r)
        unlink(beside);
    return r;
}
