/* The one core of a process and what runs beside it.
 *
 * `lock` guards starting; core and watch are published by atomic pointers once they are whole, and never
 * taken back while the process lives. Locks of others may be taken under `lock` (starting), never the other
 * way. Fork: the handlers hold `lock`, the socket's fork_lock and the log's over the fork, so the child inherits
 * none of them in the middle of a change. */
#include "control/process.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/lanes.h"
#include "control/protocol.h"
#include "control/runtime.h"
#include "control/socket.h"
#include "control/values.h"
#include "control/watch.h"
#include "core/core.h"
#include "os/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mz_core *_Atomic core_now;
static struct mz_watch *_Atomic watch_now;
static atomic_bool forked;
static struct mz_lanes *lanes;   /* `lock` */
static struct mz_socket *server; /* `lock` */
static struct mz_homes homes;    /* written before the socket starts, read only afterwards */

struct mz_core *mz_process_core(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed) ? NULL : atomic_load(&core_now);
}

struct mz_watch *mz_process_watch(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed) ? NULL : atomic_load(&watch_now);
}

bool mz_process_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

/* ---- fork and exit */

static void before_fork(void)
{
    (void)pthread_mutex_lock(&lock);
    if (server)
        mz_socket_fork_prepare(server);
    mz_log_fork_prepare();
}

static void after_fork_in_parent(void)
{
    mz_log_fork_done();
    if (server)
        mz_socket_fork_parent(server);
    (void)pthread_mutex_unlock(&lock);
}

/* Nothing was started yet: the child may start its own. Otherwise its core has no memory and no threads. */
static void after_fork_in_child(void)
{
    struct mz_core *core = atomic_load(&core_now);

    mz_log_fork_done();
    if (core) {
        atomic_store(&forked, true);
        mz_core_fork_child(core);
    }
    if (server)
        mz_socket_fork_child(server);
    (void)pthread_mutex_unlock(&lock);
}

/* Other threads go on, and what others do at exit still needs them: only the name in the file system goes. */
static void at_exit(void)
{
    if (mz_process_forked() || pthread_mutex_trylock(&lock) != 0)
        return;
    if (server)
        mz_socket_unlink(server);
    (void)pthread_mutex_unlock(&lock);
}

/* ---- the socket */

static char *greeting(void *user)
{
    (void)user;
    return mz_protocol_greeting();
}

static enum mz_lane lane(void *user, const char *line, size_t bytes)
{
    (void)user;
    return mz_protocol_lane(line, bytes);
}

static char *answer(void *user, const char *line, size_t bytes)
{
    return mz_protocol_answer(user, line, bytes);
}

static char *refusal(void *user, int err)
{
    (void)user;
    return mz_protocol_refusal(err);
}

/* The first folder that can be used. */
static int open_folder(char (*folders)[MZ_RUNTIME_PATH], size_t *ret_which)
{
    size_t n = mz_runtime_own_folders(folders);
    int fd = -ENOENT;

    for (size_t i = 0; i < n && fd < 0; i++) {
        fd = mz_runtime_make(folders[i]);
        *ret_which = i;
        if (fd < 0 && fd != -ENOENT)
            mz_log(MZ_LOG_WARN, "control socket: %s cannot be used: %s", folders[i],
                   fd == -EPERM ? "it must be this user's own, with mode 0700" : mz_log_errno(fd));
    }
    return fd;
}

static int listen_in(int folder_fd)
{
    struct mz_socket_config config = {
        .folder_fd = folder_fd,
        .host = {.user = &homes, .greeting = greeting, .lane = lane, .answer = answer, .refusal = refusal},
    };
    int rc = lanes ? 0 : mz_lanes_create(&lanes);

    config.lanes = lanes;
    return rc < 0 ? rc : mz_socket_start(&config, &server);
}

static void start_socket(void)
{
    char(*folders)[MZ_RUNTIME_PATH] = calloc(MZ_RUNTIME_FOLDERS, sizeof(*folders));
    size_t which = 0;
    int rc = folders ? open_folder(folders, &which) : -ENOMEM;

    if (rc >= 0) {
        int fd = rc;
        rc = listen_in(fd);
        if (rc < 0)
            (void)close(fd);
        else
            mz_log(MZ_LOG_DEBUG, "control socket: %s/%ld.sock", folders[which], (long)getpid());
    }
    if (rc < 0)
        mz_log(MZ_LOG_WARN, "no control socket (%s): the mzcache command cannot reach this process",
               mz_log_errno(rc));
    free(folders);
}

/* ---- starting */

static bool is_off(const char *env)
{
    const char *value = getenv(env);

    return value && (strcmp(value, "off") == 0 || strcmp(value, "0") == 0);
}

static void start_watch(struct mz_core *core)
{
    struct mz_watch *watch;
    int rc = mz_watch_start(core, !is_off("MZ_PRESSURE"), &watch);

    if (rc < 0) {
        mz_log(MZ_LOG_WARN, "memory is not watched: %s", mz_log_errno(rc));
        return;
    }
    homes.watch = watch;
    atomic_store(&watch_now, watch);
}

/* Under `lock`. */
static int start(struct mz_engine *engine, struct mz_core **ret)
{
    static bool hooked;
    struct mz_core *core;

    if (!hooked &&
        (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0 || atexit(at_exit) != 0))
        return -ENOMEM;
    hooked = true;
    const struct mz_core_config config = {.engine = engine}; /* core reads its own variables */
    int rc = mz_core_create(&config, &core);
    if (rc < 0)
        return rc;
    json_object_seed(0);
    homes.core = core;
    start_watch(core);
    mz_values_from_environment(&homes);
    if (!is_off("MZ_CONTROL"))
        start_socket();
    atomic_store(&core_now, core);
    *ret = core;
    return 0;
}

int mz_process_start(struct mz_engine *engine, struct mz_core **ret)
{
    struct mz_core *core = atomic_load(&core_now);
    int rc = 0;

    if (mz_process_forked())
        return -ECHILD;
    if (!core) {
        (void)pthread_mutex_lock(&lock);
        core = atomic_load(&core_now);
        if (!core)
            rc = start(engine, &core);
        (void)pthread_mutex_unlock(&lock);
    }
    if (rc == 0)
        *ret = core;
    return rc;
}
