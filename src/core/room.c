/* Room: what is taken, what a limit allows, and what the machine can still give.
 *
 * The ledger is the sum of what we may hold: spans of units in memory or in motion, scratch, the stack with its spare,
 * and the workers' buffers. Each part is counted before it is taken and uncounted after it is gone, so the kernel never
 * finds more than the ledger says, and a limit holds at every moment.
 *
 * Headroom is read before memory is populated: a full cgroup answers a page fault with the OOM killer, not with an error.
 * A reading is used for 50 ms, less what was taken since.
 *
 * Two margins are left to everyone else. A small one always. And what the watcher of memory pressure asks us to keep, near
 * which killers act and we would have to give it back at once: as long as anything of ours can go, that goes first (and the
 * model is streamed); what computing needs when nothing can go any more may take it. Lock: core->lock. */
#include <errno.h>

#include "core/state.h"
#include "os/log.h"
#include "os/machine.h"
#include "os/os.h"

/* Left to everyone else: page tables, the heap of the host program, the page cache of what runs now. */
#define RESERVE_BYTES (64 * MZ_MIB)
#define READING_NS    UINT64_C(50000000)

uint64_t mz_room_ledger(const struct mz_core *core)
{
    return core->unit_bytes + core->other_bytes + core->bounce_bytes + mz_stack_memory_bytes(core->stack);
}

void mz_room_took(struct mz_core *core)
{
    uint64_t ledger = mz_room_ledger(core);

    if (ledger > core->ledger_peak_bytes)
        core->ledger_peak_bytes = ledger;
}

static uint64_t less(uint64_t bytes, uint64_t by)
{
    return bytes == UINT64_MAX ? bytes : bytes > by ? bytes - by : 0;
}

static void read_headroom(struct mz_core *core, uint64_t now)
{
    struct mz_machine_memory memory;
    uint64_t cgroup = UINT64_MAX, machine = UINT64_MAX;

    if (mz_machine_memory(&memory) == 0)
        machine = memory.available_bytes;
    else
        mz_log_once(MZ_LOG_WARN, "cannot read /proc/meminfo; restoring will not know how much memory is left");
    (void)mz_machine_cgroup_headroom(&cgroup);
    core->headroom_bytes = less(machine < cgroup ? machine : cgroup, RESERVE_BYTES);
    core->spare_bytes = less(machine, core->keep_bytes);
    if (core->spare_bytes > core->headroom_bytes)
        core->spare_bytes = core->headroom_bytes;
    core->headroom_ns = now;
}

/* Counts the bytes as taken if they fit. `spare`: and leave what is to be kept alone. */
static bool headroom_for(struct mz_core *core, uint64_t bytes, bool spare)
{
    uint64_t now = mz_os_now_ns();

    if (core->headroom_ns == 0 || now - core->headroom_ns > READING_NS)
        read_headroom(core, now);
    if ((spare ? core->spare_bytes : core->headroom_bytes) < bytes)
        return false;
    core->headroom_bytes = less(core->headroom_bytes, bytes);
    core->spare_bytes = less(core->spare_bytes, bytes);
    return true;
}

static bool limit_allows(const struct mz_core *core, uint64_t bytes)
{
    return !core->limit_bytes || mz_room_ledger(core) + bytes <= core->limit_bytes;
}

bool mz_room_for(struct mz_core *core, uint64_t bytes)
{
    return limit_allows(core, bytes) && headroom_for(core, bytes, true);
}

void mz_core_keep(struct mz_core *core, uint64_t bytes)
{
    pthread_mutex_lock(&core->lock);
    core->keep_bytes = bytes;
    core->headroom_ns = 0;
    mz_restore_kick(core);
    pthread_mutex_unlock(&core->lock);
}

/* The least that computing can work with: what never leaves, the largest slice of one node, one unit in motion for each
 * worker that works under a limit, and its buffer. Buffers in use are not asked: more of them come and go with what is
 * restored at the moment. */
uint64_t mz_room_floor(const struct mz_core *core)
{
    uint64_t fixed = 0, workers = core->n_workers < MZ_LIMIT_WORKERS ? core->n_workers : MZ_LIMIT_WORKERS;

    for (const struct mz_region *region = core->regions; region; region = region->next)
        for (uint32_t i = 0; i < region->n; i++)
            fixed += region->tensors[i]->fixed ? region->tensors[i]->bytes : 0;
    return core->other_bytes + fixed + core->need_bytes + workers * 2 * MZ_UNIT_BYTES;
}

static bool may_go(const struct mz_unit *unit)
{
    return unit->state == MZ_RESIDENT && unit->pins == 0 && unit->waited == 0 && !unit->cleaning && !unit->tensor->fixed;
}

/* Of the units at places [from, to) of the order of use, the one used last that can go. */
static struct mz_unit *last_of(const struct mz_core *core, uint32_t from, uint32_t to, bool clean, bool weight)
{
    for (uint32_t k = to; k-- > from;) {
        struct mz_unit *unit = mz_order_next(core, k);
        if (may_go(unit) && mz_unit_is_clean(unit) == clean && (!weight || unit->tensor->kind == MZ_KIND_WEIGHT))
            return unit;
    }
    return NULL;
}

/* What is used last goes first: what passes do not read, then what the pass used just now, since a pass over a model
 * larger than its limit goes round and round. The start of the model stays, and the rest streams through what is left.
 *
 * Of what the pass has behind it, weights go before the cache. As many bytes are read again whichever stays, but chunks of
 * the cache are an eighth of a unit, come in small pages, and are waited for in the middle of attention, where threads that
 * wait for each other keep the cores from the workers (Qwen3-0.6B in F16 within 40 %, two cores: 1.52 instead of 1.37 tokens
 * a second, medians of 6 and 7 runs in turns).
 *
 * Clean ones first: nothing has to be written. */
static struct mz_unit *victim(struct mz_core *core, uint32_t keep)
{
    mz_order_refresh(core);
    uint32_t read = core->adopted, n = core->n_units, behind = mz_order_behind(core);
    struct mz_unit *unit = last_of(core, keep > read ? keep : read, n, true, false);

    if (!unit)
        unit = last_of(core, keep > behind ? keep : behind, read, true, true);
    if (!unit)
        unit = last_of(core, keep, read, true, false);
    return unit || keep ? unit : last_of(core, 0, n, false, false);
}

/* The units of the victim's tensor before it that can go with it, until `bytes` are together: the first of them. What is
 * used last goes first, so the victim is the last of a run. */
static uint32_t run_begin(const struct mz_core *core, const struct mz_unit *victim, uint64_t bytes, uint32_t keep)
{
    const struct mz_tensor *tensor = victim->tensor;
    uint64_t together = mz_unit_span_bytes(victim);
    uint32_t first = victim->index;

    for (; first > 0 && together < bytes; first--) {
        const struct mz_unit *before = &tensor->units[first - 1];
        if (!may_go(before) || !mz_unit_is_clean(before) || mz_order_place(core, before) < keep)
            break;
        together += mz_unit_span_bytes(before);
    }
    return first;
}

/* Clean neighbours leave in one piece: chunks of a cache that left one after the other would split the huge page they
 * share, and come back into small ones. Lock held, dropped meanwhile. */
static int evict_run(struct mz_core *core, struct mz_unit *victim, uint64_t bytes, uint32_t keep)
{
    struct mz_unit *units = victim->tensor->units;
    uint32_t first = run_begin(core, victim, bytes, keep), last = victim->index;
    uint64_t freed = 0;

    for (uint32_t i = first; i <= last; i++)
        mz_unit_move(&units[i], MZ_EVICTING);
    return mz_units_release(&units[first], last - first + 1, &freed);
}

static int evict_victim(struct mz_core *core, struct mz_unit *victim, uint64_t bytes, uint32_t keep)
{
    uint64_t freed = 0;

    return mz_unit_is_clean(victim) ? evict_run(core, victim, bytes, keep) : mz_unit_evict(victim, &freed);
}

/* What has to leave before that much more is allowed. */
static uint64_t lacking(const struct mz_core *core, uint64_t bytes)
{
    uint64_t wanted = mz_room_ledger(core) + bytes;

    return limit_allows(core, bytes) ? bytes : wanted - core->limit_bytes;
}

int mz_room_make(struct mz_core *core, uint64_t bytes, uint32_t keep)
{
    int made = 0;

    while (!mz_room_for(core, bytes)) {
        struct mz_unit *unit = victim(core, keep);
        bool by_limit = !limit_allows(core, bytes);
        if (!unit || evict_victim(core, unit, lacking(core, bytes), keep) != 0)
            return !keep && limit_allows(core, bytes) && headroom_for(core, bytes, false) ? made : -EAGAIN;
        if (!by_limit) /* look again at the machine, which takes as long as the release did */
            core->headroom_ns = 0;
        made = 1;
    }
    return made;
}
