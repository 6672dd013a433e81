/* The control socket.
 *
 * The client table belongs to the socket's thread. Three things are shared: the descriptors of the table,
 * which change under fork_lock only (so that a forked child can close them), the list of finished jobs
 * (done_lock), and stop (atomic). A job belongs to the lane that runs it and then to the list; it names its
 * client by slot and serial number, since the client may be gone by then. Lock order: none is taken under
 * another. */
#include "control/socket_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/runtime.h"
#include "os/thread.h"

#define ACCEPT_PAUSE_MS 100 /* out of descriptors: accept() would fail again at once */

void mz_socket_wake(struct mz_socket *s)
{
    uint64_t one = 1;

    /* Fails only when the counter is full, and then the thread is awake anyway. */
    ssize_t n = write(s->wake_fd, &one, sizeof(one));
    (void)n;
}

/* ---- accepting */

static struct client *free_slot(struct mz_socket *s)
{
    for (int i = 0; i < CLIENTS; i++)
        if (s->clients[i].fd < 0)
            return &s->clients[i];
    return NULL;
}

static bool is_idle(const struct mz_socket *s, const struct client *client)
{
    return now_ms() >= client->since_ms + s->config.idle_ms;
}

/* The connection that did nothing for longest and waits for nothing. */
static struct client *idlest(struct mz_socket *s)
{
    struct client *found = NULL;

    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &s->clients[i];
        if (client->fd >= 0 && !client->busy && !client->out &&
            (!found || client->since_ms < found->since_ms))
            found = client;
    }
    return found;
}

static bool is_friend(int fd)
{
    uid_t uid;

    return mz_runtime_peer(fd, &uid) == 0 && (uid == geteuid() || uid == 0);
}

/* Returns false when there is nothing more to accept now. */
static bool accept_one(struct mz_socket *s, struct client *slot)
{
    (void)pthread_mutex_lock(&s->fork_lock);
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int err = errno;
    if (fd >= 0)
        slot->fd = fd;
    (void)pthread_mutex_unlock(&s->fork_lock);
    if (fd < 0) {
        if (err != EAGAIN && err != EINTR && err != ECONNABORTED)
            s->accept_after_ms = now_ms() + ACCEPT_PAUSE_MS;
        return false;
    }
    slot->serial = ++s->serial;
    slot->in_used = 0;
    slot->since_ms = now_ms();
    slot->busy = slot->closing = false;
    if (is_friend(fd))
        mz_socket_client_reply(s, slot, s->config.host.greeting(s->config.host.user));
    else
        mz_socket_client_close(s, slot);
    return true;
}

/* Somebody knocked: the table has room, or the idlest one makes room if it still is idle. */
static void accept_some(struct mz_socket *s)
{
    struct client *idle = free_slot(s) ? NULL : idlest(s);

    if (idle && is_idle(s, idle))
        mz_socket_client_close(s, idle);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *slot = free_slot(s);
        if (!slot || !accept_one(s, slot))
            return;
    }
}

/* ---- the loop */

struct round {
    struct pollfd fds[CLIENTS + 2];
    struct client *clients[CLIENTS + 2];
    nfds_t n;
    int wait_ms; /* -1: forever */
};

static void round_until(struct round *r, uint64_t now, uint64_t at_ms)
{
    int ms = at_ms > now ? (int)(at_ms - now) : 0;

    if (r->wait_ms < 0 || ms < r->wait_ms)
        r->wait_ms = ms;
}

static void round_add(struct round *r, int fd, short events, struct client *client)
{
    r->fds[r->n] = (struct pollfd){.fd = fd, .events = events};
    r->clients[r->n++] = client;
}

static short client_events(const struct client *client)
{
    if (client->out)
        return POLLOUT;
    return client->busy ? 0 : POLLIN;
}

/* Drops who is too slow, makes room when the table is full, and says what to wait for. */
static void round_prepare(struct mz_socket *s, struct round *r)
{
    uint64_t now = now_ms();

    r->n = 0;
    r->wait_ms = -1;
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &s->clients[i];
        if (client->fd >= 0 && client->out && now >= client->since_ms + s->config.slow_ms)
            mz_socket_client_close(s, client);
        if (client->fd >= 0 && client->out)
            round_until(r, now, client->since_ms + s->config.slow_ms);
    }
    /* Nobody can be seen waiting in the queue while we do not poll it: poll it when someone could make room.
     */
    struct client *idle = free_slot(s) ? NULL : idlest(s);
    bool full = !free_slot(s) && !(idle && is_idle(s, idle));
    if (full && idle)
        round_until(r, now, idle->since_ms + s->config.idle_ms);
    round_add(r, s->wake_fd, POLLIN, NULL);
    round_add(r, full || now < s->accept_after_ms ? -1 : s->listen_fd, POLLIN, NULL);
    if (now < s->accept_after_ms)
        round_until(r, now, s->accept_after_ms);
    for (int i = 0; i < CLIENTS; i++)
        if (s->clients[i].fd >= 0)
            round_add(r, s->clients[i].fd, client_events(&s->clients[i]), &s->clients[i]);
}

static void serve(struct mz_socket *s, struct client *client, short events)
{
    if (events & POLLIN)
        mz_socket_client_read(s, client);
    else if (events & POLLOUT) {
        mz_socket_client_send(s, client);
        if (client->fd >= 0)
            mz_socket_client_next(s, client);
    } else if (events & (POLLHUP | POLLERR | POLLNVAL))
        mz_socket_client_close(s, client);
}

static void *loop(void *arg)
{
    struct mz_socket *s = arg;
    struct round r;

    while (!atomic_load(&s->stop)) {
        round_prepare(s, &r);
        if (poll(r.fds, r.n, r.wait_ms) <= 0)
            continue;
        for (nfds_t i = 2; i < r.n; i++)
            if (r.fds[i].revents)
                serve(s, r.clients[i], r.fds[i].revents);
        if (r.fds[0].revents)
            mz_socket_take_answers(s);
        if (r.fds[1].revents & POLLIN)
            accept_some(s);
    }
    return NULL;
}

/* ---- life */

static struct mz_socket *socket_new(const struct mz_socket_config *config)
{
    struct mz_socket *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->config = *config;
    if (s->config.idle_ms == 0)
        s->config.idle_ms = 1000;
    if (s->config.slow_ms == 0)
        s->config.slow_ms = 10000;
    s->pid = getpid();
    s->listen_fd = s->wake_fd = -1;
    for (int i = 0; i < CLIENTS; i++)
        s->clients[i].fd = -1;
    atomic_init(&s->stop, false);
    (void)pthread_mutex_init(&s->fork_lock, NULL);
    (void)pthread_mutex_init(&s->done_lock, NULL);
    (void)pthread_cond_init(&s->quiet, NULL);
    return s;
}

static void socket_free(struct mz_socket *s)
{
    if (s->listen_fd >= 0)
        (void)close(s->listen_fd);
    if (s->wake_fd >= 0)
        (void)close(s->wake_fd);
    (void)pthread_mutex_destroy(&s->fork_lock);
    (void)pthread_mutex_destroy(&s->done_lock);
    (void)pthread_cond_destroy(&s->quiet);
    free(s);
}

int mz_socket_start(const struct mz_socket_config *config, struct mz_socket **ret)
{
    struct mz_socket *s = socket_new(config);

    if (!s)
        return -ENOMEM;
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = s->wake_fd < 0 ? -errno : 0;
    if (rc == 0) {
        s->listen_fd = mz_runtime_listen(config->folder_fd, s->pid);
        rc = s->listen_fd < 0 ? s->listen_fd : 0;
    }
    if (rc == 0) {
        rc = mz_thread_start(&s->thread, "mz-socket", loop, s);
        if (rc < 0)
            mz_socket_unlink(s);
    }
    if (rc < 0) {
        socket_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void mz_socket_unlink(struct mz_socket *s)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "%ld.sock", (long)s->pid);
    (void)unlinkat(s->config.folder_fd, name, 0);
}

void mz_socket_stop(struct mz_socket *s)
{
    if (!s)
        return;
    atomic_store(&s->stop, true);
    mz_socket_wake(s);
    (void)pthread_join(s->thread, NULL);
    mz_socket_unlink(s);
    (void)pthread_mutex_lock(&s->done_lock);
    while (s->running > 0)
        (void)pthread_cond_wait(&s->quiet, &s->done_lock);
    (void)pthread_mutex_unlock(&s->done_lock);
    for (int i = 0; i < CLIENTS; i++)
        if (s->clients[i].fd >= 0)
            mz_socket_client_close(s, &s->clients[i]);
    mz_socket_drop_answers(s);
    (void)close(s->config.folder_fd);
    socket_free(s);
}

void mz_socket_fork_prepare(struct mz_socket *s)
{
    (void)pthread_mutex_lock(&s->fork_lock);
}

void mz_socket_fork_parent(struct mz_socket *s)
{
    (void)pthread_mutex_unlock(&s->fork_lock);
}

void mz_socket_fork_child(struct mz_socket *s)
{
    (void)close(s->listen_fd);
    (void)close(s->wake_fd);
    (void)close(s->config.folder_fd);
    for (int i = 0; i < CLIENTS; i++)
        if (s->clients[i].fd >= 0)
            (void)close(s->clients[i].fd);
    (void)pthread_mutex_unlock(&s->fork_lock);
}
