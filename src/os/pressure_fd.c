/* Pressure descriptors. No state: every descriptor is owned by the caller. */
#include "os/pressure_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/text.h"

#define DRAIN_MAX_BYTES 65536

static int open_plain(const char *path, int flags)
{
    int fd = mz_fault_hit(MZ_FAULT_OPEN);

    if (fd < 0)
        return fd;
    fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

static int open_rooted(const char *path, int flags)
{
    char rooted[4096];
    int r = mz_os_rooted(path, rooted, sizeof(rooted));

    return r < 0 ? r : open_plain(rooted, flags);
}

static int write_once(int fd, const void *data, size_t bytes)
{
    ssize_t n;
    int r = mz_fault_hit(MZ_FAULT_WRITE);

    if (r < 0)
        return r == -MZ_FAULT_SHORT ? -EIO : r;
    do
        n = write(fd, data, bytes);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return (size_t)n == bytes ? 0 : -EIO;
}

void mz_pressure_fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int64_t mz_pressure_fd_read(int fd, char *buf, size_t size)
{
    ssize_t n;
    int r = mz_fault_hit(MZ_FAULT_READ);

    if (r < 0 && r != -MZ_FAULT_SHORT)
        return r;
    do
        n = pread(fd, buf, r == 0 ? size - 1 : (size - 1) / 2, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    buf[n] = '\0';
    return n;
}

/* Kernel files have no size; anything else would be overwritten by a trigger and never report. */
static int check_kernel_file(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) && st.st_size == 0 ? 0 : -ENOTSUP;
}

/* With psi=0 opening works and reading does not; unprivileged, reading works and writing does not: both are
 * tried. */
static int begin_psi(int fd, const char *trigger)
{
    char text[256];
    int64_t n;
    int r = check_kernel_file(fd);

    if (r < 0)
        return r;
    n = mz_pressure_fd_read(fd, text, sizeof(text));
    if (n < 0)
        return (int)n;
    return write_once(fd, trigger,
                      strlen(trigger) + 1); /* the kernel takes the last byte for the end of the text */
}

int mz_pressure_fd_psi(const char *path, const char *trigger, int *ret_fd)
{
    int fd = open_rooted(path, O_RDWR);
    int r;

    if (fd < 0)
        return fd;
    r = begin_psi(fd, trigger);
    if (r < 0)
        mz_pressure_fd_close(&fd);
    else
        *ret_fd = fd;
    return r;
}

static int connect_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, r = mz_fault_hit(MZ_FAULT_OPEN);

    if (r < 0)
        return r;
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    r = -errno;
    close(fd);
    return r;
}

static int kind_of(const char *path, enum mz_pressure_fd_kind *ret)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (S_ISREG(st.st_mode))
        *ret = MZ_PRESSURE_FD_FILE;
    else if (S_ISFIFO(st.st_mode))
        *ret = MZ_PRESSURE_FD_FIFO;
    else if (S_ISSOCK(st.st_mode))
        *ret = MZ_PRESSURE_FD_SOCKET;
    else
        return -ENOTSUP;
    return 0;
}

/* A socket's peer may be gone: no SIGPIPE for the host program. */
static int send_once(int fd, const void *data, size_t bytes)
{
    ssize_t n;
    int r = mz_fault_hit(MZ_FAULT_WRITE);

    if (r < 0)
        return r == -MZ_FAULT_SHORT ? -EIO : r;
    n = send(fd, data, bytes, MSG_NOSIGNAL);
    if (n < 0)
        return -errno;
    return (size_t)n == bytes ? 0 : -EIO;
}

int mz_pressure_fd_systemd(const char *path, const void *data, size_t bytes,
                           enum mz_pressure_fd_kind *ret_kind, int *ret_fd)
{
    enum mz_pressure_fd_kind kind = MZ_PRESSURE_FD_FILE;
    int fd, r = kind_of(path, &kind);

    if (r < 0)
        return r;
    fd = kind == MZ_PRESSURE_FD_SOCKET ? connect_socket(path)
                                       : open_plain(path, bytes != 0 ? O_RDWR : O_RDONLY);
    if (fd < 0)
        return fd;
    if (bytes != 0)
        r = kind == MZ_PRESSURE_FD_SOCKET ? send_once(fd, data, bytes) : write_once(fd, data, bytes);
    if (r < 0) {
        mz_pressure_fd_close(&fd);
        return r;
    }
    *ret_kind = kind;
    *ret_fd = fd;
    return 0;
}

int mz_pressure_fd_events(const char *path, int *ret_fd)
{
    int fd = open_rooted(path, O_RDONLY);

    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

int mz_pressure_fd_wake(int *ret_fd)
{
    int fd = mz_fault_hit(MZ_FAULT_OPEN);

    if (fd < 0)
        return fd;
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

void mz_pressure_fd_signal(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof(one)); /* full: it is ready already */
}

/* "<eventfd> <fd of memory.pressure_level> <level>" into cgroup.event_control. */
static int register_level(const char *folder, const char *level, int event_fd)
{
    char path[4096], line[64];
    int level_fd, control_fd, r;

    if (snprintf(path, sizeof(path), "%s/memory.pressure_level", folder) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    level_fd = open_rooted(path, O_RDONLY);
    if (level_fd < 0)
        return level_fd;
    if (snprintf(path, sizeof(path), "%s/cgroup.event_control", folder) >= (int)sizeof(path))
        control_fd = -ENAMETOOLONG;
    else
        control_fd = open_rooted(path, O_WRONLY);
    r = control_fd;
    if (control_fd >= 0) {
        snprintf(line, sizeof(line), "%d %d %s", event_fd, level_fd, level);
        r = write_once(control_fd, line, strlen(line));
        mz_pressure_fd_close(&control_fd);
    }
    mz_pressure_fd_close(&level_fd); /* the kernel keeps what it needs */
    return r;
}

int mz_pressure_fd_level(const char *folder, const char *level, int *ret_fd)
{
    int fd = -1, r = mz_pressure_fd_wake(&fd);

    if (r < 0)
        return r;
    r = register_level(folder, level, fd);
    if (r < 0)
        mz_pressure_fd_close(&fd);
    else
        *ret_fd = fd;
    return r;
}

int64_t mz_pressure_fd_drain(int fd)
{
    char buf[1024];
    int64_t sum = 0;
    ssize_t n = 0;
    int r = mz_fault_hit(MZ_FAULT_READ);

    if (r < 0 && r != -MZ_FAULT_SHORT)
        return r;
    while (sum < DRAIN_MAX_BYTES) {
        n = read(fd, buf, sizeof(buf));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        sum += n;
    }
    return sum > 0 ? sum : n < 0 ? -errno : 0;
}

int mz_pressure_poll(struct pollfd *fds, uint32_t count, uint32_t timeout_ms)
{
    int n, r = mz_fault_hit(MZ_FAULT_READ);

    if (r < 0)
        return r == -MZ_FAULT_SHORT ? -EINTR : r;
    n = poll(fds, count, timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms);
    return n < 0 ? -errno : n;
}

void mz_pressure_pause_ms(uint32_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&t, NULL);
}

uint64_t mz_pressure_cpu_ns(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}
