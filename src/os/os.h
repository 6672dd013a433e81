/* Clocks, threads' niceness and small facts about the machine. Every call is safe from any thread. */
#ifndef MZ_OS_OS_H
#define MZ_OS_OS_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC (stops while the machine sleeps), of CLOCK_BOOTTIME (does not), of the wall clock. */
uint64_t mz_os_now_ns(void);
uint64_t mz_os_boottime_ns(void);
uint64_t mz_os_wall_ns(void);

/* CPUs that this process may run on, at least 1. */
uint32_t mz_os_cpus(void);

/* Makes the calling thread yield to others when cores are short: niceness 0..19; idle I/O priority when asked. */
void mz_os_thread_yields(int nice, bool idle_io);
void mz_os_thread_name(const char *name);

/* Whether the machine runs on a battery now (/sys/class/power_supply). False when it cannot be told. */
bool mz_os_on_battery(void);

#endif
