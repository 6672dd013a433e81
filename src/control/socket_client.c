/* One connection of the control socket: lines in, one at a time to a lane, the answer out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/client.h"
#include "control/socket_int.h"

struct job {
    struct mz_job base; /* first */
    struct mz_socket *socket;
    struct job *next; /* done_lock: in the list of finished ones */
    uint32_t slot;
    uint64_t serial;
    char *answer;
    size_t bytes;
    char line[];
};

void mz_socket_client_close(struct mz_socket *s, struct client *client)
{
    (void)pthread_mutex_lock(&s->fork_lock);
    (void)close(client->fd);
    client->fd = -1;
    (void)pthread_mutex_unlock(&s->fork_lock);
    free(client->in);
    free(client->out);
    client->in = client->out = NULL;
}

void mz_socket_client_send(struct mz_socket *s, struct client *client)
{
    while (client->out_done < client->out_bytes) {
        ssize_t n = send(client->fd, client->out + client->out_done, client->out_bytes - client->out_done,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            mz_socket_client_close(s, client);
            return;
        }
        client->out_done += (size_t)n;
        client->since_ms = now_ms();
    }
    free(client->out);
    client->out = NULL;
    if (client->closing)
        mz_socket_client_close(s, client);
}

void mz_socket_client_reply(struct mz_socket *s, struct client *client, char *line)
{
    if (!line) {
        mz_socket_client_close(s, client);
        return;
    }
    client->out = line;
    client->out_bytes = strlen(line);
    client->out_done = 0;
    client->since_ms = now_ms();
    mz_socket_client_send(s, client);
}

/* ---- answers */

static void run_job(struct mz_job *base)
{
    struct job *job = (struct job *)base;
    struct mz_socket *s = job->socket;

    job->answer = s->config.host.answer(s->config.host.user, job->line, job->bytes);
    (void)pthread_mutex_lock(&s->done_lock);
    job->next = s->done;
    s->done = job;
    /* Before the lock goes: the object may be freed once nothing is running. */
    mz_socket_wake(s);
    if (--s->running == 0)
        (void)pthread_cond_signal(&s->quiet);
    (void)pthread_mutex_unlock(&s->done_lock);
}

static int push_job(struct mz_socket *s, struct client *client, size_t bytes)
{
    struct job *job = malloc(sizeof(*job) + bytes);

    if (!job)
        return -ENOMEM;
    *job = (struct job){.base = {.run = run_job}, .socket = s, .serial = client->serial, .bytes = bytes};
    job->slot = (uint32_t)(client - s->clients);
    memcpy(job->line, client->in, bytes);
    (void)pthread_mutex_lock(&s->done_lock);
    s->running++;
    (void)pthread_mutex_unlock(&s->done_lock);
    int rc = mz_lanes_push(s->config.lanes, s->config.host.lane(s->config.host.user, job->line, bytes),
                           &job->base);
    if (rc < 0) {
        (void)pthread_mutex_lock(&s->done_lock);
        s->running--;
        (void)pthread_mutex_unlock(&s->done_lock);
        free(job);
    }
    return rc;
}

void mz_socket_client_next(struct mz_socket *s, struct client *client)
{
    while (client->fd >= 0 && !client->busy && !client->out && client->in_used > 0) {
        char *end = memchr(client->in, '\n', client->in_used);
        if (!end) {
            if (client->in_used < MZ_LINE_BYTES)
                return;
            client->closing = true;
            mz_socket_client_reply(s, client, s->config.host.refusal(s->config.host.user, -EMSGSIZE));
            return;
        }
        size_t bytes = (size_t)(end - client->in);
        int rc = push_job(s, client, bytes);
        client->in_used -= bytes + 1;
        memmove(client->in, end + 1, client->in_used);
        if (rc == 0)
            client->busy = true;
        else
            mz_socket_client_reply(s, client, s->config.host.refusal(s->config.host.user, -EAGAIN));
    }
}

void mz_socket_take_answers(struct mz_socket *s)
{
    uint64_t count;
    ssize_t n = read(s->wake_fd, &count, sizeof(count));
    (void)n;

    (void)pthread_mutex_lock(&s->done_lock);
    struct job *job = s->done;
    s->done = NULL;
    (void)pthread_mutex_unlock(&s->done_lock);
    while (job) {
        struct job *next = job->next;
        struct client *client = &s->clients[job->slot];
        if (client->fd >= 0 && client->serial == job->serial) {
            client->busy = false;
            mz_socket_client_reply(s, client, job->answer);
            mz_socket_client_next(s, client);
        } else {
            free(job->answer);
        }
        free(job);
        job = next;
    }
}

void mz_socket_client_read(struct mz_socket *s, struct client *client)
{
    if (!client->in)
        client->in = malloc(MZ_LINE_BYTES);
    if (!client->in) {
        mz_socket_client_close(s, client);
        return;
    }
    ssize_t n = recv(client->fd, client->in + client->in_used, MZ_LINE_BYTES - client->in_used, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        mz_socket_client_close(s, client);
        return;
    }
    client->in_used += (size_t)n;
    client->since_ms = now_ms();
    mz_socket_client_next(s, client);
}

void mz_socket_drop_answers(struct mz_socket *s)
{
    for (struct job *job = s->done, *next; job; job = next) {
        next = job->next;
        free(job->answer);
        free(job);
    }
}
