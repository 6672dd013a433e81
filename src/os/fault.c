/* Planned failures of system calls. All state is atomic and belongs to nobody; no lock. `state` is released
 * after the other fields of a plan are set, and acquired before they are read. */
#include "os/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "os/log.h"

enum { UNREAD, OFF, ARMED };

static _Atomic int state = UNREAD;
static _Atomic int plan_kind, plan_err;
static _Atomic uint64_t plan_nth;
static _Atomic bool plan_sticky;
static _Atomic uint64_t calls, hits;
static _Atomic uint32_t read_ms;
static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

static const char *const kind_names[MZ_FAULT_KINDS] = {
    [MZ_FAULT_ANY] = "any",           [MZ_FAULT_MMAP] = "mmap",     [MZ_FAULT_MADVISE] = "madvise",
    [MZ_FAULT_POPULATE] = "populate", [MZ_FAULT_READ] = "read",     [MZ_FAULT_WRITE] = "write",
    [MZ_FAULT_OPEN] = "open",         [MZ_FAULT_STAT] = "stat",     [MZ_FAULT_URING] = "uring",
    [MZ_FAULT_ALLOC] = "alloc",       [MZ_FAULT_THREAD] = "thread",
};

static const struct {
    const char *name;
    int err;
} errors[] = {
    {"short", MZ_FAULT_SHORT},  {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"ENOMEM", ENOMEM},
    {"EINTR", EINTR},           {"EAGAIN", EAGAIN}, {"EINVAL", EINVAL}, {"EACCES", EACCES},
    {"EROFS", EROFS},           {"ENOENT", ENOENT}, {"EDQUOT", EDQUOT}, {"EMFILE", EMFILE},
    {"EPERM", EPERM},           {"ENOSYS", ENOSYS}, {"EFAULT", EFAULT}, {"ENOTTY", ENOTTY},
    {"EOPNOTSUPP", EOPNOTSUPP},
};

static int default_error(int kind)
{
    switch (kind) {
    case MZ_FAULT_MMAP:
    case MZ_FAULT_MADVISE:
    case MZ_FAULT_POPULATE:
    case MZ_FAULT_ALLOC:
        return ENOMEM;
    case MZ_FAULT_THREAD:
        return EAGAIN;
    case MZ_FAULT_URING:
        return ENOSYS;
    default:
        return EIO;
    }
}

static void arm(int kind, uint64_t nth, int err, bool sticky)
{
    atomic_store(&state, OFF);
    atomic_store(&plan_kind, kind);
    atomic_store(&plan_nth, nth);
    atomic_store(&plan_err, err);
    atomic_store(&plan_sticky, sticky);
    atomic_store(&calls, 0);
    atomic_store(&hits, 0);
    if (kind != MZ_FAULT_ANY || nth != 0)
        atomic_store_explicit(&state, ARMED, memory_order_release);
}

static int find_kind(const char *name)
{
    for (int i = 0; i < MZ_FAULT_KINDS; i++)
        if (!strcmp(kind_names[i], name))
            return i;
    return -1;
}

static int find_error(const char *name)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (!strcmp(errors[i].name, name))
            return errors[i].err;
    char *end;
    long number = strtol(name, &end, 10);
    return end != name && *end == 0 && number > 0 && number < 4096 ? (int)number : -1;
}

/* "call:n[:errno[:sticky]]"; `text` is taken apart. False when it is not that. */
static bool plan_from_text(char *text)
{
    char *save = NULL;
    const char *call = strtok_r(text, ":", &save), *nth = strtok_r(NULL, ":", &save);
    const char *err = strtok_r(NULL, ":", &save), *sticky = strtok_r(NULL, ":", &save);
    int kind = call ? find_kind(call) : -1;
    if (kind < 0 || !nth || (sticky && strcmp(sticky, "sticky")) || strtok_r(NULL, ":", &save))
        return false;
    char *end;
    unsigned long long number = strtoull(nth, &end, 10);
    int error = err ? find_error(err) : default_error(kind);
    if (*end || number == 0 || error < 0)
        return false;
    arm(kind, number, error, sticky != NULL);
    return true;
}

static void read_environment(void)
{
    const char *ms = getenv("MZ_FAULT_READ_MS"), *fault = getenv("MZ_FAULT");
    if (ms)
        atomic_store(&read_ms, (uint32_t)strtoul(ms, NULL, 10));
    char text[128];
    if (fault && strlen(fault) < sizeof text && plan_from_text(strcpy(text, fault)))
        return;
    if (fault && *fault)
        mz_log(MZ_LOG_WARN, "MZ_FAULT is not \"call:n[:errno[:sticky]]\", ignoring it: %s", fault);
    atomic_store(&state, OFF);
}

void mz_fault_plan(enum mz_fault_kind kind, uint64_t nth, int err, bool sticky)
{
    pthread_once(&environment_once, read_environment);
    arm((int)kind, nth, err, sticky);
}

uint64_t mz_fault_count(void)
{
    return atomic_load(&calls);
}

uint64_t mz_fault_hits(void)
{
    return atomic_load(&hits);
}

static int armed_hit(enum mz_fault_kind kind)
{
    int wanted = atomic_load(&plan_kind);
    if (wanted != MZ_FAULT_ANY && wanted != (int)kind)
        return 0;
    uint64_t call = atomic_fetch_add(&calls, 1) + 1, nth = atomic_load(&plan_nth);
    if (nth == 0 || call < nth || (call > nth && !atomic_load(&plan_sticky)))
        return 0;
    atomic_fetch_add(&hits, 1);
    int err = atomic_load(&plan_err);
    if (err == MZ_FAULT_SHORT && kind != MZ_FAULT_READ && kind != MZ_FAULT_WRITE)
        err = EIO;
    return -err;
}

int mz_fault_hit(enum mz_fault_kind kind)
{
    int now = atomic_load_explicit(&state, memory_order_relaxed);
    if (now == OFF)
        return 0;
    if (now == UNREAD)
        pthread_once(&environment_once, read_environment);
    if (atomic_load_explicit(&state, memory_order_acquire) != ARMED)
        return 0;
    return armed_hit(kind);
}

void mz_fault_slow_reads(uint32_t ms)
{
    pthread_once(&environment_once, read_environment);
    atomic_store(&read_ms, ms);
}

uint32_t mz_fault_read_ms(void)
{
    if (atomic_load_explicit(&state, memory_order_relaxed) == UNREAD)
        pthread_once(&environment_once, read_environment);
    return atomic_load_explicit(&read_ms, memory_order_relaxed);
}

void *mz_alloc(uint64_t bytes)
{
    return mz_fault_hit(MZ_FAULT_ALLOC) || bytes > SIZE_MAX ? NULL : malloc((size_t)bytes);
}

void *mz_calloc(uint64_t count, uint64_t bytes)
{
    return mz_fault_hit(MZ_FAULT_ALLOC) ? NULL : calloc((size_t)count, (size_t)bytes);
}

void *mz_realloc(void *old, uint64_t bytes)
{
    return mz_fault_hit(MZ_FAULT_ALLOC) || bytes > SIZE_MAX ? NULL : realloc(old, (size_t)bytes);
}
