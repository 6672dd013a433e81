/* The folders of the control sockets. No state: every call opens what it needs; the caller owns descriptors.
 */
#include "control/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static size_t add(char (*list)[MZ_RUNTIME_PATH], size_t n, const char *format, const char *a)
{
    if (n >= MZ_RUNTIME_FOLDERS)
        return n;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int length = snprintf(list[n], MZ_RUNTIME_PATH, format, a);
#pragma GCC diagnostic pop
    if (length < 0 || length >= MZ_RUNTIME_PATH)
        return n;
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], list[n]) == 0)
            return n;
    return n + 1;
}

/* Entries of a folder that begin with a prefix, each put into the format. */
static size_t add_all(char (*list)[MZ_RUNTIME_PATH], size_t n, const char *parent, const char *prefix,
                      const char *format)
{
    DIR *dir = opendir(parent);

    if (!dir)
        return n;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            n = add(list, n, format, entry->d_name);
    (void)closedir(dir);
    return n;
}

size_t mz_runtime_own_folders(char (*ret)[MZ_RUNTIME_PATH])
{
    const char *own = getenv("MZ_RUNTIME_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");
    char uid[24];
    size_t n = 0;

    if (own && *own)
        return add(ret, 0, "%s", own);
    if (xdg && *xdg == '/')
        n = add(ret, n, "%s/mzcache", xdg);
    (void)snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
    return add(ret, n, "/tmp/mzcache-%s", uid);
}

size_t mz_runtime_folders(char (*ret)[MZ_RUNTIME_PATH])
{
    const char *own = getenv("MZ_RUNTIME_DIR");
    size_t n = mz_runtime_own_folders(ret);

    if (geteuid() == 0 && !(own && *own)) {
        n = add_all(ret, n, "/run/user", "", "/run/user/%s/mzcache");
        n = add_all(ret, n, "/tmp", "mzcache-", "/tmp/%s");
    }
    return n;
}

int mz_runtime_open(const char *folder, uid_t owner)
{
    struct stat st;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        /* With O_DIRECTORY the kernel calls a symbolic link "not a directory"; say what it is. */
        int err = errno;
        if (err == ENOTDIR && lstat(folder, &st) == 0 && S_ISLNK(st.st_mode))
            err = ELOOP;
        return -err;
    }
    if (fstat(fd, &st) < 0 || (owner != (uid_t)-1 && st.st_uid != owner) || (st.st_mode & 0077) != 0) {
        (void)close(fd);
        return -EPERM;
    }
    return fd;
}

int mz_runtime_make(const char *folder)
{
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return -errno;
    return mz_runtime_open(folder, geteuid());
}

static int address(int folder_fd, const char *name, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", folder_fd, name);

    return length < 0 || (size_t)length >= sizeof(ret->sun_path) ? -ENAMETOOLONG : 0;
}

/* Only a socket is replaced: what a dead process with our number left. */
static int publish(int folder_fd, const char *hidden, const char *name)
{
    struct stat st;

    if (fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISSOCK(st.st_mode))
        return -EADDRINUSE;
    return renameat(folder_fd, hidden, folder_fd, name) < 0 ? -errno : 0;
}

int mz_runtime_listen(int folder_fd, pid_t pid)
{
    struct sockaddr_un to;
    char hidden[32], name[32];

    /* Clients remove sockets that refuse them, so the name appears only once somebody listens. */
    (void)snprintf(hidden, sizeof(hidden), ".%ld.new", (long)pid);
    (void)snprintf(name, sizeof(name), "%ld.sock", (long)pid);
    int rc = address(folder_fd, hidden, &to);
    if (rc < 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    (void)unlinkat(folder_fd, hidden, 0);
    if (bind(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 || listen(fd, SOMAXCONN) < 0)
        rc = -errno;
    if (rc == 0)
        rc = publish(folder_fd, hidden, name);
    if (rc < 0) {
        (void)unlinkat(folder_fd, hidden, 0);
        (void)close(fd);
        return rc;
    }
    return fd;
}

int mz_runtime_peer(int fd, uid_t *ret)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -errno;
    *ret = peer.uid;
    return 0;
}

int mz_runtime_connect(int folder_fd, pid_t pid)
{
    struct sockaddr_un to;
    uid_t uid = (uid_t)-1;
    char name[32];

    (void)snprintf(name, sizeof(name), "%ld.sock", (long)pid);
    int rc = address(folder_fd, name, &to);
    if (rc < 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    /* A full queue must not block: a stopped process would hang its clients. */
    struct timeval patience = {.tv_sec = 5};
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
        rc = -errno;
    else
        rc = mz_runtime_peer(fd, &uid);
    if (rc == 0 && geteuid() != 0 && uid != geteuid() && uid != 0)
        rc = -EPERM;
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    return fd;
}
