/* Measuring the profile on the machine itself, with the calls and the memory that restoring uses: direct
 * reads in flight from every worker into fresh huge pages, checksum included, and decoding by every worker.
 *
 * Blocks: about one second (quick; by itself on first use) or some ten (full; `mzcache profile`). Uses up to
 * 256 MiB of disk in the swap folder, in a file without a name, and MZ_PROFILE_MEMORY_BYTES of memory (16 MiB a worker where
 * there are more than eight), which is given back before it returns. */
#ifndef MZ_CORE_PROFILE_MEASURE_H
#define MZ_CORE_PROFILE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/profile.h"

/* Half of it to read or decode into, more than caches hold; as much again for what is decoded. */
#define MZ_PROFILE_MEMORY_BYTES (UINT64_C(128) << 20)

struct mz_profile_job {
    const char *folder;  /* on the device to measure; mz_store_folder() */
    bool force;          /* also where the folder lies in memory */
    bool full;           /* all request sizes and longer, or the quick form */
    bool uring;          /* io_uring if it works here, else plain calls */
    uint32_t workers;    /* threads, 1..MZ_PROFILE_WORKERS */
    uint64_t file_bytes; /* 0: 64 MiB quick, 256 MiB full */
};

/* The device's name only (opens a file in the folder and closes it). Errors of mz_file_open_swap(). */
int mz_profile_measure_device(const char *folder, bool force, char *buf, size_t size);

/* Fills *ret (factors 1, time now). Reading, writing and codecs are measured apart; what cannot be measured
 * stays a guess and is logged once. -ENOMEM, -EINVAL (workers); an error of opening or writing the file:
 * nothing on storage could be measured, *ret is not written. */
int mz_profile_measure(const struct mz_profile_job *job, struct mz_profile *ret);

#endif
