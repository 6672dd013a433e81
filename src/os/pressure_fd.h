/* Descriptors that the kernel or a service manager makes ready when memory is short, and waiting for them.
 *
 * A descriptor belongs to the thread that polls it; only mz_pressure_fd_signal() is for others. None of these
 * blocks except mz_pressure_poll() and mz_pressure_pause_ms(). Opening counts as MZ_FAULT_OPEN, writing as
 * MZ_FAULT_WRITE, reading and polling as MZ_FAULT_READ. */
#ifndef MZ_OS_PRESSURE_FD_H
#define MZ_OS_PRESSURE_FD_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

/* PSI (the kernel's Documentation/accounting/psi.rst): opens a pressure file, reads it once and writes the
 * trigger, "some|full STALL_US WINDOW_US". One trigger per descriptor; ready with POLLPRI, POLLERR when the
 * file is gone. MZ_SYSROOT applies. -ENOENT, -EACCES, -EOPNOTSUPP (psi=0), -EPERM or -EINVAL (this window
 * needs privilege), -ENOTSUP (an ordinary file: there is nobody who would report anything). */
int mz_pressure_fd_psi(const char *path, const char *trigger, int *ret_fd);

enum mz_pressure_fd_kind { MZ_PRESSURE_FD_FILE, MZ_PRESSURE_FD_FIFO, MZ_PRESSURE_FD_SOCKET };

/* systemd's memory pressure protocol: opens a file, a FIFO or a stream socket and writes `data` at once. A
 * file is ready with POLLPRI and never read, the others with POLLIN and drained. MZ_SYSROOT does not apply.
 * -ENOTSUP: none of these; -ENOENT, -EACCES, -ECONNREFUSED, ... */
int mz_pressure_fd_systemd(const char *path, const void *data, size_t bytes,
                           enum mz_pressure_fd_kind *ret_kind, int *ret_fd);

/* A cgroup v2 events file. Ready with POLLPRI (and POLLERR) after a change, until it is read by
 * mz_pressure_fd_read(). MZ_SYSROOT applies. -ENOENT, -EACCES. */
int mz_pressure_fd_events(const char *path, int *ret_fd);

/* Reads the whole file from its start, NUL behind it. Bytes, or negative errno (-ENODEV: the cgroup is gone).
 */
int64_t mz_pressure_fd_read(int fd, char *buf, size_t size);

/* cgroup v1: has the kernel count into an eventfd when the group in `folder` is under pressure of that level
 * ("low", "medium", "critical"). Ready with POLLIN, drained by mz_pressure_fd_drain(). MZ_SYSROOT applies.
 * -ENOENT, -EACCES. */
int mz_pressure_fd_level(const char *folder, const char *level, int *ret_fd);

/* Something to wake a polling thread with. */
int mz_pressure_fd_wake(int *ret_fd);
void mz_pressure_fd_signal(int fd);

/* Reads away what is there. Bytes; 0: end of file; -EAGAIN: nothing is there; other negative errno. A writer
 * that never stops is left after 64 KiB. */
int64_t mz_pressure_fd_drain(int fd);

/* Closes and sets to -1; -1 is allowed. */
void mz_pressure_fd_close(int *fd);

/* poll(). Descriptors ready, 0 after `timeout_ms`, -EINTR, -ENOMEM. */
int mz_pressure_poll(struct pollfd *fds, uint32_t count, uint32_t timeout_ms);

/* Sleeps; for when polling is impossible. */
void mz_pressure_pause_ms(uint32_t ms);

/* Processor time of the calling thread so far. */
uint64_t mz_pressure_cpu_ns(void);

#endif
