/* Clocks, niceness and small facts. No state. */
#include "os/os.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/text.h"

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t mz_os_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t mz_os_boottime_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

uint64_t mz_os_wall_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

uint32_t mz_os_cpus(void)
{
    /* EINVAL means that the kernel's mask is larger; 2^16 CPUs is beyond what it can be built for. */
    for (int cpus = 1024; cpus <= 65536; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        int count = -1;
        if (set && !sched_getaffinity(0, size, set))
            count = CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (count > 0)
            return (uint32_t)count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

void mz_os_thread_yields(int nice, bool idle_io)
{
    enum { WHO_THREAD = 1, CLASS_NONE = 0, CLASS_IDLE = 3, CLASS_SHIFT = 13 }; /* linux/ioprio.h */
    pid_t self = (pid_t)syscall(SYS_gettid);
    (void)setpriority(PRIO_PROCESS, (id_t)self, nice); /* on Linux of one thread; refused: runs as before */
    (void)syscall(SYS_ioprio_set, WHO_THREAD, 0, (idle_io ? CLASS_IDLE : CLASS_NONE) << CLASS_SHIFT);
}

void mz_os_thread_name(const char *name)
{
    char cut[16]; /* the kernel's limit */
    snprintf(cut, sizeof cut, "%s", name);
    pthread_setname_np(pthread_self(), cut);
}

/* One line of a supply's file; "" when there is none. */
static void supply_text(const char *supply, const char *file, char *buf, size_t size)
{
    char path[512];
    buf[0] = 0;
    int n = snprintf(path, sizeof path, "/sys/class/power_supply/%s/%s", supply, file);
    if (n > 0 && (size_t)n < sizeof path && mz_os_read_text(path, buf, size) < 0)
        buf[0] = 0;
    buf[strcspn(buf, "\n")] = 0;
}

/* 1: a battery of the machine is being drained; -1: the machine is fed from outside; 0: says nothing. */
static int supply_says(const char *supply)
{
    char type[32], text[32];
    supply_text(supply, "type", type, sizeof type);
    if (!strcmp(type, "Battery")) {
        supply_text(supply, "scope", text, sizeof text);
        if (!strcmp(text, "Device")) /* a mouse's */
            return 0;
        supply_text(supply, "status", text, sizeof text);
        return !strcmp(text, "Discharging");
    }
    supply_text(supply, "online", text, sizeof text);
    return !strcmp(text, "1") ? -1 : 0;
}

bool mz_os_on_battery(void)
{
    char path[4096];
    DIR *folder = NULL;
    if (!mz_os_rooted("/sys/class/power_supply", path, sizeof path) && !mz_fault_hit(MZ_FAULT_OPEN))
        folder = opendir(path);
    if (!folder)
        return false;
    bool drained = false, fed = false;
    for (struct dirent *e; (e = readdir(folder));) {
        int says = e->d_name[0] == '.' ? 0 : supply_says(e->d_name);
        drained |= says > 0;
        fed |= says < 0;
    }
    closedir(folder);
    return drained && !fed;
}
