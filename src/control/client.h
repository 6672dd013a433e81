/* The client's end of the control socket: finding processes, asking them. Used by the command, and by the
 * memory watch to hear from the other processes. A struct mz_client belongs to one thread. Everything here
 * may block up to its timeout. */
#ifndef MZ_CONTROL_CLIENT_H
#define MZ_CONTROL_CLIENT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MZ_PROTOCOL   1
#define MZ_LINE_BYTES ((size_t)64 * 1024) /* the longest line, its newline counted */

struct mz_client {
    int fd;
    pid_t pid;
    json_t *greeting; /* borrowed from the client until mz_client_close() */
    char *buf;        /* MZ_LINE_BYTES */
    size_t used;
};

/* Ids of processes that have a socket, ascending; those that are gone are left out, and their sockets
 * removed. `*ret` is freed by free(). Folders that are not safe to use are skipped. -ENOMEM. */
int mz_client_list(pid_t **ret, size_t *ret_n);

/* Connects and reads the greeting. -ENOENT: no such process; -EPROTO: it does not speak our protocol; -EPERM;
 * -ETIMEDOUT. */
int mz_client_open(pid_t pid, uint32_t timeout_ms, struct mz_client **ret);

/* Sends one request and waits for its reply, a new reference. timeout_ms 0: forever. -ECONNRESET: the other
 * end closed; -EPROTO: no JSON object; -EMSGSIZE; -ETIMEDOUT (the connection cannot be used any more). */
int mz_client_ask(struct mz_client *client, const json_t *request, uint32_t timeout_ms, json_t **ret);

/* NULL allowed. */
void mz_client_close(struct mz_client *client);

#endif
