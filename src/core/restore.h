/* Restoring, inside: jobs, which units go into one, and what is done with it. Private to restore*.c. */
#ifndef MZ_CORE_RESTORE_H
#define MZ_CORE_RESTORE_H

#include "core/state.h"

#define MZ_JOB_UNITS 32u

enum mz_path { MZ_PATH_STORAGE, MZ_PATH_STACK };

/* One unit, or a run of neighbours of one tensor that lie behind each other in the file too, read in one
 * request. Its units are in state restoring: nobody releases them, so no read ever lands in memory that was
 * given away. Belongs to a worker. */
struct mz_job {
    struct mz_unit *units[MZ_JOB_UNITS]; /* neighbours, ascending */
    uint32_t n;                          /* 0: free */
    uint64_t lo, hi;                     /* what is committed for it, in the region */
    uint64_t skip;                       /* bytes read before the first unit's first byte, for alignment */
    struct mz_bounce bounce;
    bool bounced;
    struct mz_request request;
};

/* ---- restore_pick.c; lock held */

/* Fills a free job with what comes back next, looking at path `first` before the other. False when there is
 * nothing to do now. May drop and take the lock. */
bool mz_job_pick(struct mz_core *core, enum mz_path first, struct mz_job *job);

/* ---- restore_job.c; without the lock */

/* The path that an evicted or restoring unit comes back on. */
enum mz_path mz_unit_path(const struct mz_unit *unit);

/* Where a unit's bytes begin in the file they come from. */
uint64_t mz_unit_file_offset(const struct mz_unit *unit);

/* What the buffer of a job for this unit has to hold, if it comes through one. */
uint64_t mz_job_buffer_bytes(const struct mz_unit *unit);

/* Backs [lo, hi) of a region with memory. */
int mz_restore_commit(struct mz_region *region, uint64_t lo, uint64_t hi);

/* Commits memory and submits the read; what needs none is done at once, and the job is free again. False when
 * there was no memory: its units are evicted again. */
bool mz_job_start(struct mz_core *core, struct mz_transfer *transfer, struct mz_job *job);

/* The read is over, `err` says how. Verifies and places the bytes; each unit becomes resident, or lost. The
 * job is free. */
void mz_job_finish(struct mz_core *core, struct mz_job *job, int err);

#endif
