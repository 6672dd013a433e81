/* The control socket: carries lines between clients and whoever answers them. Knows nothing of what the lines
 * mean.
 *
 * One thread in one poll(). It never waits for an answer: answering happens on the lanes, one request of a
 * client at a time, so that a long command keeps nobody else waiting. What a client may cost is bounded:
 *   - MZ_SOCKET_CLIENTS connections at once. The others wait in the queue; when the table is full, the connection idle
 *     longest is closed once it was idle for idle_ms.
 *   - a request of at most 64 KiB; longer ones are answered with an error and the connection is closed.
 *   - a client that does not read its reply for slow_ms is dropped.
 *   - peers of another user (root excepted) are closed at once. */
#ifndef MZ_CONTROL_SOCKET_H
#define MZ_CONTROL_SOCKET_H

#include <stddef.h>
#include <stdint.h>

#include "control/lanes.h"

#define MZ_SOCKET_CLIENTS 64

/* All lines end in '\n' and are made with malloc(); the socket frees them. NULL (out of memory) closes the
 * connection. */
struct mz_socket_host {
    void *user;
    char *(*greeting)(void *user);                                    /* on the socket's thread: short */
    enum mz_lane (*lane)(void *user, const char *line, size_t bytes); /* on the socket's thread: short */
    char *(*answer)(void *user, const char *line, size_t bytes);      /* on a lane's thread: may block */
    char *(*refusal)(void *user, int err);                            /* -EMSGSIZE, -EAGAIN: short */
};

struct mz_socket_config {
    int folder_fd;          /* from mz_runtime_make(); owned by the socket once it has started */
    struct mz_lanes *lanes; /* outlive the socket */
    struct mz_socket_host host;
    uint32_t idle_ms, slow_ms; /* 0: 1 s and 10 s */
};

struct mz_socket;

/* Listens and starts the thread. negative errno of socket calls, -ENOMEM, -EAGAIN. */
int mz_socket_start(const struct mz_socket_config *config, struct mz_socket **ret);

/* Waits for answers being made, closes everything, unlinks, frees. NULL allowed. */
void mz_socket_stop(struct mz_socket *s);

/* Unlinks the socket's file and leaves all else as it is: for exiting. Any thread. */
void mz_socket_unlink(struct mz_socket *s);

/* Around fork(): before, after in the parent, after in the child (closes the child's descriptors; the object
 * is dead there). */
void mz_socket_fork_prepare(struct mz_socket *s);
void mz_socket_fork_parent(struct mz_socket *s);
void mz_socket_fork_child(struct mz_socket *s);

#endif
