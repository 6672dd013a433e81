/* Messages on standard error or to a sink. `lock` guards the sink and is held while it runs; nothing else is
 * taken under it. */
#include "os/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*sink_call)(enum mz_log_level level, const char *text, void *user); /* lock */
static void *sink_user;                                                          /* lock */

static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static enum mz_log_level level_shown = MZ_LOG_INFO; /* written in level_once only */

static void read_level(void)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    const char *name = getenv("MZ_LOG");
    for (unsigned i = 0; name && i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i]))
            level_shown = (enum mz_log_level)i;
}

static void one_line(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

void mz_log(enum mz_log_level level, const char *format, ...)
{
    pthread_once(&level_once, read_level);
    if (level > level_shown)
        return;
    int saved = errno;
    char line[1024 + 16] = "mzcache: ";
    const size_t prefix = 9;
    va_list args;
    va_start(args, format);
    vsnprintf(line + prefix, 1024, format, args);
    va_end(args);
    one_line(line + prefix);
    pthread_mutex_lock(&lock);
    if (sink_call) {
        sink_call(level, line + prefix, sink_user);
    } else {
        size_t length = strlen(line);
        line[length] = '\n';
        ssize_t ignored = write(STDERR_FILENO, line, length + 1); /* nowhere to report it to */
        (void)ignored;
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
}

const char *mz_log_errno(int err)
{
    static _Thread_local char text[96];
    if (err == EMEDIUMTYPE ||
        err == -EMEDIUMTYPE) /* mz_file_open_swap()'s word for a folder that is no disk */
        return "it lies in memory (tmpfs)";
#ifdef __GLIBC__
    return strerror_r(err < 0 ? -err : err, text, sizeof text);
#else
    if (strerror_r(err < 0 ? -err : err, text, sizeof text))
        snprintf(text, sizeof text, "error %d", err);
    return text;
#endif
}

void mz_log_sink(void (*sink)(enum mz_log_level level, const char *text, void *user), void *user)
{
    pthread_mutex_lock(&lock);
    sink_call = sink;
    sink_user = user;
    pthread_mutex_unlock(&lock);
}

void mz_log_fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

void mz_log_fork_done(void)
{
    pthread_mutex_unlock(&lock);
}
