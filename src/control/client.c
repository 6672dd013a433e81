/* The client's end of the control socket. A client owns its descriptor, buffer and greeting; no locks. */
#include "control/client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/runtime.h"
#include "os/os.h"

static uid_t folder_owner(void)
{
    return geteuid() == 0 ? (uid_t)-1 : geteuid();
}

/* ---- finding */

struct pids {
    pid_t *items;
    size_t used, size;
};

static int pids_add(struct pids *pids, pid_t pid)
{
    for (size_t i = 0; i < pids->used; i++)
        if (pids->items[i] == pid)
            return 0;
    if (pids->used == pids->size) {
        size_t size = pids->size ? pids->size * 2 : 16;
        pid_t *items = realloc(pids->items, size * sizeof(*items));
        if (!items)
            return -ENOMEM;
        pids->items = items;
        pids->size = size;
    }
    pids->items[pids->used++] = pid;
    return 0;
}

static pid_t pid_of(const char *name)
{
    char *end;
    long pid = strtol(name, &end, 10);

    return end != name && pid > 0 && pid <= INT32_MAX && strcmp(end, ".sock") == 0 ? (pid_t)pid : 0;
}

/* Whether somebody listens. A socket whose process is gone is removed: only its owner (or root) could have
 * made it. */
static bool is_alive(int folder_fd, pid_t pid, const char *name)
{
    int fd = mz_runtime_connect(folder_fd, pid);

    if (fd >= 0) {
        (void)close(fd);
        return true;
    }
    if (fd == -ECONNREFUSED)
        (void)unlinkat(folder_fd, name, 0);
    return fd == -EAGAIN;
}

static int list_folder(const char *folder, struct pids *pids)
{
    int fd = mz_runtime_open(folder, folder_owner()), rc = 0;

    if (fd < 0)
        return 0;
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir && again >= 0)
        (void)close(again);
    for (struct dirent *entry; dir && rc == 0 && (entry = readdir(dir)) != NULL;) {
        pid_t pid = pid_of(entry->d_name);
        if (pid && is_alive(fd, pid, entry->d_name))
            rc = pids_add(pids, pid);
    }
    if (dir)
        (void)closedir(dir);
    (void)close(fd);
    return rc;
}

static int by_number(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

    return (x > y) - (x < y);
}

int mz_client_list(pid_t **ret, size_t *ret_n)
{
    char(*folders)[MZ_RUNTIME_PATH] = malloc(MZ_RUNTIME_FOLDERS * sizeof(*folders));
    struct pids pids = {0};
    int rc = folders ? 0 : -ENOMEM;

    for (size_t i = 0, n = folders ? mz_runtime_folders(folders) : 0; i < n && rc == 0; i++)
        rc = list_folder(folders[i], &pids);
    free(folders);
    if (rc < 0) {
        free(pids.items);
        return rc;
    }
    if (pids.used)
        qsort(pids.items, pids.used, sizeof(*pids.items), by_number);
    *ret = pids.items;
    *ret_n = pids.used;
    return 0;
}

static int connect_pid(pid_t pid)
{
    char(*folders)[MZ_RUNTIME_PATH] = malloc(MZ_RUNTIME_FOLDERS * sizeof(*folders));
    int result = folders ? -ENOENT : -ENOMEM;

    for (size_t i = 0, n = folders ? mz_runtime_folders(folders) : 0; i < n; i++) {
        int fd = mz_runtime_open(folders[i], folder_owner());
        if (fd < 0)
            continue;
        int rc = mz_runtime_connect(fd, pid);
        (void)close(fd);
        if (rc >= 0 || rc == -EPERM || rc == -EAGAIN)
            result = rc;
        if (rc >= 0)
            break;
    }
    free(folders);
    return result;
}

/* ---- talking */

struct deadline {
    uint64_t end_ns; /* 0: never */
};

static struct deadline deadline_in(uint32_t timeout_ms)
{
    return (struct deadline){timeout_ms ? mz_os_now_ns() + (uint64_t)timeout_ms * 1000000 : 0};
}

static int wait_for(int fd, short events, struct deadline deadline)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int ms = -1;
        if (deadline.end_ns) {
            uint64_t now = mz_os_now_ns();
            if (now >= deadline.end_ns)
                return -ETIMEDOUT;
            ms = (int)((deadline.end_ns - now) / 1000000) + 1;
        }
        int n = poll(&p, 1, ms);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

static int send_all(int fd, const char *text, size_t bytes, struct deadline deadline)
{
    while (bytes > 0) {
        ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            text += n;
            bytes -= (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return errno == EPIPE ? -ECONNRESET : -errno;
        int rc = wait_for(fd, POLLOUT, deadline);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Reads one line and parses it; bytes behind it stay in the buffer. */
static int read_line(struct mz_client *client, struct deadline deadline, json_t **ret)
{
    for (;;) {
        char *end = memchr(client->buf, '\n', client->used);
        if (end) {
            size_t bytes = (size_t)(end - client->buf) + 1;
            json_t *line = json_loadb(client->buf, bytes, 0, NULL);
            client->used -= bytes;
            memmove(client->buf, end + 1, client->used);
            if (!json_is_object(line)) {
                json_decref(line);
                return -EPROTO;
            }
            *ret = line;
            return 0;
        }
        if (client->used == MZ_LINE_BYTES)
            return -EMSGSIZE;
        int rc = wait_for(client->fd, POLLIN, deadline);
        if (rc < 0)
            return rc;
        ssize_t n = recv(client->fd, client->buf + client->used, MZ_LINE_BYTES - client->used, MSG_DONTWAIT);
        if (n == 0)
            return -ECONNRESET;
        if (n > 0)
            client->used += (size_t)n;
        else if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
}

int mz_client_open(pid_t pid, uint32_t timeout_ms, struct mz_client **ret)
{
    int fd = connect_pid(pid);

    if (fd < 0)
        return fd;
    struct mz_client *client = calloc(1, sizeof(*client));
    char *buf = malloc(MZ_LINE_BYTES);
    if (!client || !buf) {
        free(client);
        free(buf);
        (void)close(fd);
        return -ENOMEM;
    }
    *client = (struct mz_client){.fd = fd, .pid = pid, .buf = buf};
    int rc = read_line(client, deadline_in(timeout_ms), &client->greeting);
    if (rc == 0 && json_integer_value(json_object_get(client->greeting, "protocol")) != MZ_PROTOCOL)
        rc = -EPROTO;
    if (rc < 0) {
        mz_client_close(client);
        return rc;
    }
    *ret = client;
    return 0;
}

int mz_client_ask(struct mz_client *client, const json_t *request, uint32_t timeout_ms, json_t **ret)
{
    struct deadline deadline = deadline_in(timeout_ms);
    char *text = json_dumps(request, JSON_COMPACT);

    if (!text)
        return -ENOMEM;
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in place of the NUL */
    int rc = bytes + 1 > MZ_LINE_BYTES ? -EMSGSIZE : send_all(client->fd, text, bytes + 1, deadline);
    free(text);
    return rc < 0 ? rc : read_line(client, deadline, ret);
}

void mz_client_close(struct mz_client *client)
{
    if (!client)
        return;
    (void)close(client->fd);
    json_decref(client->greeting);
    free(client->buf);
    free(client);
}
