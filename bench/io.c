/* What storage and the kernel's allocator give at best: the limits that a restore is measured against.
 *
 * A struct lane belongs to its thread while that runs and to the caller otherwise (starting and joining order
 * the two). The lanes share the number of the next request, which is atomic. */
#include "bench.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <xxhash.h>

#include "os/file.h"
#include "os/mem.h"
#include "os/transfer.h"

#define SLAB_BYTES    (UINT64_C(8) << 20)  /* backed with memory and read into at a time */
#define LANE_BYTES    (UINT64_C(64) << 20) /* read into before any of it is used again: restoring reads into distinct memory */
#define REQUEST_BYTES (UINT64_C(1) << 20)
#define SLOTS         (SLAB_BYTES / REQUEST_BYTES)
#define DEPTH         4u
#define LANES_MAX     64u

struct job {
    struct mz_file file;
    uint64_t bytes;
    bool write, checksum;
    _Atomic uint64_t next; /* request */
};

struct lane {
    pthread_t thread;
    struct job *job;
    uint8_t *memory; /* LANE_BYTES of addresses */
    uint8_t *slab;   /* the SLAB_BYTES of them that are in use */
    double busy_ms;
    uint64_t bytes, hash;
    int result;
};

static bool take(struct lane *lane, struct mz_request *request, uint64_t slot)
{
    uint64_t offset = atomic_fetch_add(&lane->job->next, 1) * REQUEST_BYTES;

    *request = (struct mz_request){
        .file = &lane->job->file,
        .memory = lane->slab + slot * REQUEST_BYTES,
        .offset = offset,
        .bytes = REQUEST_BYTES,
        .write = lane->job->write,
    };
    return offset + REQUEST_BYTES <= lane->job->bytes;
}

static void complete(struct lane *lane, const struct mz_request *done)
{
    lane->result = lane->result ? lane->result : done->result;
    lane->bytes += done->done;
    if (lane->job->checksum && done->result == 0)
        lane->hash ^= XXH3_64bits(done->memory, done->bytes);
}

/* Fills the slab once, with DEPTH requests in flight. False: the file is done. */
static bool run_slab(struct lane *lane, struct mz_transfer *transfer)
{
    struct mz_request requests[SLOTS];
    bool more = true;

    for (uint64_t slot = 0; slot < SLOTS || mz_transfer_pending(transfer) > 0;) {
        if (slot < SLOTS && more && mz_transfer_pending(transfer) < DEPTH) {
            more = take(lane, &requests[slot], slot);
            if (more)
                mz_transfer_submit(transfer, &requests[slot++]);
            continue;
        }
        struct mz_request *done = mz_transfer_wait(transfer);
        if (!done)
            break;
        complete(lane, done);
    }
    return more && lane->result == 0;
}

static void next_slab(struct lane *lane)
{
    lane->slab += SLAB_BYTES;
    if (lane->slab < lane->memory + LANE_BYTES)
        return;
    (void)mz_os_release(lane->memory, LANE_BYTES);
    lane->slab = lane->memory;
}

static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    struct mz_transfer *transfer = NULL;

    lane->result = mz_transfer_open(DEPTH, true, &transfer);
    for (bool more = lane->result == 0; more;) {
        double begin = bench_now_ms();
        if (!lane->job->write)
            lane->result = mz_os_populate(lane->slab, SLAB_BYTES);
        more = lane->result == 0 && run_slab(lane, transfer);
        lane->busy_ms += bench_now_ms() - begin;
        if (!lane->job->write)
            next_slab(lane);
    }
    (void)mz_os_release(lane->memory, LANE_BYTES);
    mz_transfer_close(transfer);
    return NULL;
}

/* GB/s of all lanes together. */
static double run_job(struct job *job, struct lane *lanes, unsigned n)
{
    double gbps = 0;

    job->next = 0;
    for (unsigned i = 0; i < n; i++) {
        lanes[i] = (struct lane){.job = job, .memory = lanes[i].memory, .slab = lanes[i].memory};
        if (pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]))
            bench_die("no thread");
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(lanes[i].thread, NULL);
        bench_must(lanes[i].result, job->write ? "writing the file to read" : "reading");
        gbps += lanes[i].busy_ms > 0 ? (double)lanes[i].bytes / BENCH_GB / (lanes[i].busy_ms * 1e-3) : 0;
    }
    return gbps;
}

/* Bytes that no device makes smaller. */
static void fill(uint8_t *slab, uint64_t seed)
{
    for (uint64_t i = 0; i < SLAB_BYTES; i += sizeof(seed)) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        *(uint64_t *)(void *)(slab + i) = seed;
    }
}

static void open_lanes(struct lane *lanes, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        void *memory = NULL;
        bench_must(mz_os_reserve(LANE_BYTES, &memory), "reserving memory");
        (void)mz_os_advise_huge(memory, LANE_BYTES, true);
        lanes[i].memory = memory;
        fill(memory, i + 1);
    }
}

void bench_read_measure(struct bench_read *read)
{
    struct lane lanes[LANES_MAX] = {{0}};
    struct job job = {.bytes = read->file_bytes / REQUEST_BYTES * REQUEST_BYTES, .write = true};
    struct bench_runs plain = {0}, checksum = {0};
    unsigned n = read->threads < LANES_MAX ? read->threads : LANES_MAX;

    bench_must(mz_file_open_swap(read->folder, false, &job.file), read->folder);
    open_lanes(lanes, n);
    (void)run_job(&job, lanes, n);
    job.write = false;
    for (unsigned i = 0; i < read->runs; i++) {
        job.checksum = false;
        bench_runs_add(&plain, run_job(&job, lanes, n));
        job.checksum = true;
        bench_runs_add(&checksum, run_job(&job, lanes, n));
    }
    read->plain_gbps = bench_runs_median(&plain);
    read->plain_spread = bench_runs_spread(&plain);
    read->checksum_gbps = bench_runs_median(&checksum);
    read->checksum_spread = bench_runs_spread(&checksum);
    for (unsigned i = 0; i < n; i++)
        mz_os_unreserve(lanes[i].memory, LANE_BYTES);
    mz_file_close(&job.file);
}

struct part {
    pthread_t thread;
    uint8_t *base;
    uint64_t bytes;
    int result;
};

static void *populate(void *arg)
{
    struct part *part = arg;

    part->result = part->bytes ? mz_os_populate(part->base, part->bytes) : 0;
    return NULL;
}

double bench_alloc_ms(uint64_t bytes, unsigned threads)
{
    struct part parts[LANES_MAX];
    unsigned n = threads < LANES_MAX ? threads : LANES_MAX;
    uint64_t each = bytes / n / MZ_OS_HUGE_BYTES * MZ_OS_HUGE_BYTES;
    void *base = NULL;

    if (each == 0)
        return 0;
    bench_must(mz_os_reserve(each * n, &base), "reserving memory");
    (void)mz_os_advise_huge(base, each * n, true);
    double begin = bench_now_ms();
    for (unsigned i = 0; i < n; i++) {
        parts[i] = (struct part){.base = (uint8_t *)base + each * i, .bytes = each};
        if (pthread_create(&parts[i].thread, NULL, populate, &parts[i]))
            bench_die("no thread");
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(parts[i].thread, NULL);
        bench_must(parts[i].result, "allocating");
    }
    double ms = bench_now_ms() - begin;
    mz_os_unreserve(base, each * n);
    return ms;
}
