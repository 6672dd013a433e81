/* What the two files of the control socket share: the table of connections and the jobs made of their lines.
 * socket.h says what it is for. */
#ifndef MZ_CONTROL_SOCKET_INT_H
#define MZ_CONTROL_SOCKET_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "control/socket.h"
#include "os/os.h"

#define CLIENTS MZ_SOCKET_CLIENTS

struct client {
    int fd;          /* -1: free slot; changes under fork_lock */
    uint64_t serial; /* of the connection */
    char *in;        /* MZ_LINE_BYTES once something came */
    size_t in_used;
    char *out; /* reply being sent; NULL: none */
    size_t out_bytes, out_done;
    uint64_t since_ms; /* when it last did something */
    bool busy;         /* a lane makes its answer */
    bool closing;      /* once the reply is sent */
};

struct job;

struct mz_socket {
    struct mz_socket_config config;
    pid_t pid;
    int listen_fd, wake_fd;
    pthread_t thread;
    atomic_bool stop;

    /* The thread's own. */
    struct client clients[CLIENTS];
    uint64_t serial;
    uint64_t accept_after_ms;

    pthread_mutex_t fork_lock;

    pthread_mutex_t done_lock;
    struct job *done;     /* done_lock */
    uint32_t running;     /* done_lock: jobs pushed and not in the list yet */
    pthread_cond_t quiet; /* running became 0; with done_lock */
};

static inline uint64_t now_ms(void)
{
    return mz_os_now_ns() / 1000000;
}

/* Has the thread look now. Any thread. */
void mz_socket_wake(struct mz_socket *s);

/* ---- socket_client.c; on the socket's thread. Each may close the connection: its fd is -1 then. */
void mz_socket_client_close(struct mz_socket *s, struct client *client);
/* Sends what the peer takes now; the rest waits for POLLOUT. */
void mz_socket_client_send(struct mz_socket *s, struct client *client);
/* Takes the line; NULL (out of memory) closes. */
void mz_socket_client_reply(struct mz_socket *s, struct client *client, char *line);
/* There is something to read. */
void mz_socket_client_read(struct mz_socket *s, struct client *client);
/* Hands the first whole line over, if there is one and nothing else of this client is under way. */
void mz_socket_client_next(struct mz_socket *s, struct client *client);
/* The lanes have finished something: sends it to those who are still there. */
void mz_socket_take_answers(struct mz_socket *s);
/* Frees what was finished and not taken. */
void mz_socket_drop_answers(struct mz_socket *s);

#endif
