/* Threads for what may block: one for each lane, each with a queue that is worked off in order. A lane's
 * thread starts with its first job. */
#ifndef MZ_CONTROL_LANES_H
#define MZ_CONTROL_LANES_H

enum mz_lane {
    MZ_LANE_VIEW, /* looks at state: short */
    MZ_LANE_ACT,  /* evicts, sets: seconds at most */
    MZ_LANE_WAIT, /* waits for restoring: as long as it takes */
    MZ_LANES
};

/* Begins a record of the caller, who owns it again once `run` is called. */
struct mz_job {
    struct mz_job *next;             /* the lane's while queued */
    void (*run)(struct mz_job *job); /* on the lane's thread */
};

struct mz_lanes;

/* -ENOMEM. */
int mz_lanes_create(struct mz_lanes **ret);

/* Runs what is queued, ends the threads, frees. NULL allowed. */
void mz_lanes_destroy(struct mz_lanes *lanes);

/* Queues a job. Any thread, does not block. -EAGAIN, -ENOMEM: no thread could be had; the job stays the
 * caller's. */
int mz_lanes_push(struct mz_lanes *lanes, enum mz_lane lane, struct mz_job *job);

#endif
