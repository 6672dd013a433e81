/* Messages to the user, on standard error, one line each: "mzcache: text".
 * MZ_LOG = error | warn | info (default) | debug, read once. Never holds content of a conversation. Control characters
 * (of a file name, say) come out as '?'; text beyond 1 KiB is cut. Safe from any thread; errno is kept. */
#ifndef MZ_OS_LOG_H
#define MZ_OS_LOG_H

enum mz_log_level { MZ_LOG_ERROR, MZ_LOG_WARN, MZ_LOG_INFO, MZ_LOG_DEBUG };

void mz_log(enum mz_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, but only the first time that this place is reached: for fallbacks that are said once. */
#define mz_log_once(level, ...)                                                                              \
    do {                                                                                                     \
        static int said_; /* atomic: set once by whoever comes first */                                      \
        if (!__atomic_exchange_n(&said_, 1, __ATOMIC_RELAXED))                                               \
            mz_log(level, __VA_ARGS__);                                                                      \
    } while (0)

/* The text of an errno (positive or negative) in the thread's own buffer. */
const char *mz_log_errno(int err);

/* Where messages go instead of standard error (tests, host applications); NULL restores it. Called for one message at
 * a time, on the thread that logs, with a lock held: it must not log nor fork. After the return the old one is not called. */
void mz_log_sink(void (*sink)(enum mz_log_level level, const char *text, void *user), void *user);

/* Around fork(): waits for a message under way and keeps others from beginning, so that the child can log; then, in
 * parent and child, lets them. */
void mz_log_fork_prepare(void);
void mz_log_fork_done(void);

#endif
