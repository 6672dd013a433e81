/* The profile in use: read from its file when the stack is needed first, measured by a thread of its own when there is
 * none yet, and corrected slowly by what restoring really takes.
 *
 * The first eviction goes by guesses: one that comes under pressure must not wait a second for a measurement. The thread
 * begins when it is over, or after a later one: not before limit, cgroup and machine have room for what measuring takes,
 * since an eviction mostly means that they have not. Meanwhile that counts as a buffer of ours. Without the stack there is
 * one path and nothing to balance, so nothing is measured.
 *
 * Lock: core->lock for the profile and its state; the thread holds none while it measures. */
#include <errno.h>
#include <string.h>

#include "codec/codec.h"
#include "core/profile_measure.h"
#include "core/state.h"
#include "os/log.h"
#include "os/thread.h"
#include "os/transfer.h"

static void *measure(void *arg)
{
    struct mz_core *core = arg;
    struct mz_profile profile;

    pthread_mutex_lock(&core->lock);
    struct mz_profile_job job = {
        .folder = mz_store_folder(core->store),
        .force = core->options.swap_force,
        .uring = core->options.uring && mz_transfer_uring(NULL),
        .workers = core->n_workers,
    };
    pthread_mutex_unlock(&core->lock);
    int err = mz_profile_measure(&job, &profile);
    pthread_mutex_lock(&core->lock);
    core->bounce_bytes -= MZ_PROFILE_MEMORY_BYTES;
    if (!err)
        core->profile = profile;
    mz_restore_kick(core);
    pthread_mutex_unlock(&core->lock);
    if (err) {
        mz_log(MZ_LOG_WARN, "cannot measure this machine (%s); balancing by guesses", mz_log_errno(err));
        return NULL;
    }
    err = mz_profile_save(&profile);
    if (err)
        mz_log(MZ_LOG_INFO, "cannot keep the profile of this machine (%s); it is measured again next time",
               mz_log_errno(err));
    return NULL;
}

/* Reads the device's profile. Opens a file in the swap folder, so without the lock. */
static int load(struct mz_core *core, struct mz_profile *ret)
{
    char device[64];
    int err = mz_profile_measure_device(mz_store_folder(core->store), core->options.swap_force, device, sizeof(device));

    return err ? err : mz_profile_load(device, ret);
}

/* evict_turn held, so two cannot come here at once. */
void mz_profile_use(struct mz_core *core)
{
    struct mz_profile profile;

    pthread_mutex_lock(&core->lock);
    bool wanted = core->options.kv == MZ_KV_Q8 && core->profile_state == MZ_PROFILE_UNTRIED;
    pthread_mutex_unlock(&core->lock);
    if (!wanted)
        return;
    int err = load(core, &profile);
    pthread_mutex_lock(&core->lock);
    core->profile_state = err ? MZ_PROFILE_MISSING : MZ_PROFILE_THERE;
    if (!err)
        core->profile = profile;
    pthread_mutex_unlock(&core->lock);
}

/* Lock held. The thread waits for it before it begins. */
static void start_measuring(struct mz_core *core)
{
    if (mz_thread_start(&core->profile_thread, "mz-profile", measure, core) != 0)
        return;
    core->profile_started = true;
    core->profile_state = MZ_PROFILE_THERE;
    core->bounce_bytes += MZ_PROFILE_MEMORY_BYTES;
    mz_room_took(core);
}

/* Right behind an eviction there is room under any limit, which computing may need before the measurement is over. */
static bool limit_leaves_room(const struct mz_core *core)
{
    return !core->limit_bytes || mz_room_floor(core) + MZ_PROFILE_MEMORY_BYTES <= core->limit_bytes;
}

void mz_profile_fill(struct mz_core *core)
{
    pthread_mutex_lock(&core->lock);
    if (core->profile_state == MZ_PROFILE_MISSING && limit_leaves_room(core) && mz_room_for(core, MZ_PROFILE_MEMORY_BYTES))
        start_measuring(core);
    pthread_mutex_unlock(&core->lock);
}

void mz_profile_stop(struct mz_core *core)
{
    if (core->profile_started)
        pthread_join(core->profile_thread, NULL);
    core->profile_started = false;
}

/* Each path is busy from the start until its last unit arrives. */
void mz_profile_heard(struct mz_core *core, uint64_t read_bytes, uint64_t read_ns, uint64_t decoded_bytes,
                      uint64_t decode_ns)
{
    if (read_bytes)
        mz_profile_learn(&core->profile, MZ_PROFILE_READ, read_bytes, read_ns);
    if (decoded_bytes)
        mz_profile_learn(&core->profile, MZ_PROFILE_DECODE + MZ_CODEC_Q8, decoded_bytes, decode_ns);
}

void mz_core_profile(struct mz_core *core, struct mz_profile *ret)
{
    pthread_mutex_lock(&core->lock);
    *ret = core->profile;
    pthread_mutex_unlock(&core->lock);
}
