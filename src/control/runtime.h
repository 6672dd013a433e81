/* The folders in which control sockets lie, and opening them safely. Used by both ends.
 *
 * A process listens on <pid>.sock in $MZ_RUNTIME_DIR if that is set, else in $XDG_RUNTIME_DIR/mzcache, else
 * in /tmp/mzcache-<uid>. The folder is 0700 and ours; a symbolic link, another owner or wider permissions are
 * refused, since whoever can write there could stand between a client and its process. Sockets are addressed
 * through the open folder (/proc/self/fd), so nothing can be exchanged between check and use, and the length
 * of the path does not matter.
 *
 * The socket calls of mzCache are made in this room and not in src/os: nothing on the path of memory depends
 * on them. No state, no locks; getenv() is the only thing shared with other threads. */
#ifndef MZ_CONTROL_RUNTIME_H
#define MZ_CONTROL_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MZ_RUNTIME_PATH    512
#define MZ_RUNTIME_FOLDERS 64

/* Where a process of ours may listen, in order of preference. `ret` has room for MZ_RUNTIME_FOLDERS. Returns their
 * number: 1 or 2. */
size_t mz_runtime_own_folders(char (*ret)[MZ_RUNTIME_PATH]);

/* Where sockets may be found: the same, and root's list goes on with the folders of all users. Their number. */
size_t mz_runtime_folders(char (*ret)[MZ_RUNTIME_PATH]);

/* Opens a folder that belongs to `owner` (-1: to anyone, for root) and is nobody else's to write. Returns a
 * descriptor, or -ENOENT, -ELOOP (a symbolic link), -ENOTDIR, -EPERM (owner or permissions). */
int mz_runtime_open(const char *folder, uid_t owner);

/* Makes the folder if it is missing, and opens it. Returns a descriptor or negative errno. */
int mz_runtime_make(const char *folder);

/* A listening, non-blocking socket <pid>.sock in the open folder; one that a dead process left is replaced.
 * Returns a descriptor or negative errno (-EADDRINUSE: something else has this name). */
int mz_runtime_listen(int folder_fd, pid_t pid);

/* Connects. Returns a blocking descriptor, or -ENOENT, -ECONNREFUSED (the process is gone), -EPERM (the other
 * end is neither ours nor root's; not checked for root), -EAGAIN (its queue is full). */
int mz_runtime_connect(int folder_fd, pid_t pid);

/* The user at the other end of a socket; negative errno. */
int mz_runtime_peer(int fd, uid_t *ret);

#endif
