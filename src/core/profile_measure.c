/* Measuring the profile: phases, each run by all workers at once on their own memory.
 *
 * A struct bench belongs to the calling thread; during a phase the workers read it, and share `next` (atomic)
 * only. A struct lane belongs to its worker during a phase and to the caller between phases (starting and
 * joining threads order the two). Reading and decoding go through fresh memory, as restoring does; giving it back is not
 * part of restoring, so the clock stands still meanwhile.
 *
 * Fresh means distinct, too: 16 MiB given back and taken again and again were read into at 2.2 to 2.5 GB/s, 64 to 512 MiB
 * at 1.6 to 1.75 (Xeon with 4 MiB of L2 cache). So a slab is used to its end before any of it is given back. */
#include "core/profile_measure.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "codec/codec.h"
#include "os/fault.h"
#include "os/file.h"
#include "os/log.h"
#include "os/mem.h"
#include "os/os.h"
#include "os/thread.h"
#include "os/transfer.h"

#define SLABS_BYTES   (MZ_PROFILE_MEMORY_BYTES / 2) /* of all lanes */
#define SLAB_LEAST    (UINT64_C(8) << 20)
#define PIECE_BYTES   SLAB_LEAST /* what reading populates at a time, just ahead of the reads */
#define CHUNK_BYTES   (UINT64_C(512) << 10) /* a KV chunk: 256 tokens of 1024 fp16 elements */
#define CHUNKS_MAX    ((uint32_t)(SLABS_BYTES / CHUNK_BYTES))
#define CHUNK_ROW     1024u
#define DEPTH         4u
#define WRITE_REQUEST (1u << 20)

/* Reading this share of the best is fast enough: larger requests cost bounce memory and delay what comes
 * first. */
#define GOOD_ENOUGH 0.95

/* Milliseconds of one phase. Quick: writing and three sizes and two phases a codec, about a second in all. */
#define QUICK_STORAGE_MS 120u
#define QUICK_CODEC_MS   40u
#define FULL_STORAGE_MS  300u
#define FULL_CODEC_MS    200u
#define FULL_ROUNDS      3u /* the median counts */

struct bench;

struct lane {
    struct bench *bench;
    pthread_t thread;
    uint8_t *slab;   /* slab_bytes of addresses: memory that the lane works on before it starts afresh */
    uint8_t *images; /* as many encoded chunks, image_room bytes apart */
    uint64_t image_bytes[CHUNKS_MAX];
    uint64_t hash;           /* so that nothing is computed for nothing */
    uint64_t bytes, busy_ns; /* of this phase */
    int result;
};

struct bench {
    struct mz_file file;
    struct lane *lanes;
    uint32_t workers;
    bool uring;
    uint64_t slab_bytes; /* of each lane, a multiple of every request and chunk */
    uint64_t image_room;
    uint64_t file_bytes; /* to write; then what was written */

    /* One phase. */
    void (*work)(struct lane *lane);
    const struct mz_codec *codec;
    uint64_t deadline_ns;
    uint32_t request_bytes;
    bool write;
    _Atomic uint64_t next; /* request of the file */
};

/* -------------------------------------------------------------------------------- phases */

static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    lane->bench->work(lane);
    return NULL;
}

/* Runs the work in the first lanes for about `ms`, at least one piece each. The throughput is the sum of theirs. */
static int run_lanes(struct bench *bench, uint32_t lanes, void (*work)(struct lane *lane), uint32_t ms,
                     double *ret_gbps)
{
    uint32_t started = 0;
    int r = 0;
    double gbps = 0;
    bench->work = work;
    bench->next = 0;
    bench->deadline_ns = mz_os_now_ns() + ms * UINT64_C(1000000);
    for (; started < lanes && !r; started += !r) {
        struct lane *lane = &bench->lanes[started];
        lane->bytes = lane->busy_ns = 0;
        lane->result = 0;
        r = mz_thread_start(&lane->thread, "mz-profile", run_lane, lane);
    }
    for (uint32_t i = 0; i < started; i++) {
        struct lane *lane = &bench->lanes[i];
        pthread_join(lane->thread, NULL);
        if (!r)
            r = lane->result;
        if (lane->busy_ns)
            gbps += (double)lane->bytes / (double)lane->busy_ns;
    }
    if (!r)
        *ret_gbps = gbps;
    return r;
}

static int run_phase(struct bench *bench, void (*work)(struct lane *lane), uint32_t ms, double *ret_gbps)
{
    return run_lanes(bench, bench->workers, work, ms, ret_gbps);
}

static uint32_t chunks_of(const struct bench *bench)
{
    return (uint32_t)(bench->slab_bytes / CHUNK_BYTES);
}

static bool is_late(const struct lane *lane)
{
    return lane->bytes > 0 && mz_os_now_ns() >= lane->bench->deadline_ns;
}

/* -------------------------------------------------------------------------------- storage */

/* The next request's place in the file; false: no more. Late lanes take none, so what was taken has no
 * gaps. */
static bool take_request(struct lane *lane, uint64_t *ret_offset)
{
    struct bench *bench = lane->bench;
    if (is_late(lane))
        return false;
    uint64_t offset = atomic_fetch_add(&bench->next, 1) * bench->request_bytes;
    *ret_offset = offset;
    return offset + bench->request_bytes <= bench->file_bytes;
}

static void complete(struct lane *lane, const struct mz_request *done)
{
    if (done->result && !lane->result)
        lane->result = done->result;
    if (!done->result && !done->write)
        lane->hash ^= XXH3_64bits(done->memory, done->bytes);
    if (!done->result)
        lane->bytes += done->bytes;
}

/* As many requests as fit into a piece of memory, some in flight. False: there are no more. */
static bool transfer_piece(struct lane *lane, struct mz_transfer *transfer, struct mz_request *requests, uint8_t *piece)
{
    struct bench *bench = lane->bench;
    uint32_t slots = (uint32_t)(PIECE_BYTES / bench->request_bytes), used = 0;
    bool more = true;
    do {
        while (more && used < slots && mz_transfer_pending(transfer) < DEPTH) {
            struct mz_request *request = &requests[used];
            *request = (struct mz_request){
                .file = &bench->file, .bytes = bench->request_bytes, .write = bench->write};
            request->memory = piece + (uint64_t)used * bench->request_bytes;
            more = !lane->result && take_request(lane, &request->offset);
            if (more) {
                mz_transfer_submit(transfer, request);
                used++;
            }
        }
        struct mz_request *done = mz_transfer_wait(transfer);
        if (!done)
            break;
        complete(lane, done);
    } while (mz_transfer_pending(transfer) || (more && used < slots));
    return more && !lane->result;
}

static int storage_open(struct lane *lane, struct mz_transfer **ret_transfer, struct mz_request **ret_requests)
{
    struct mz_request *requests = mz_calloc(PIECE_BYTES / lane->bench->request_bytes, sizeof *requests);
    if (!requests)
        return -ENOMEM;
    int r = mz_transfer_open(DEPTH, lane->bench->uring, ret_transfer);
    if (r)
        free(requests);
    else
        *ret_requests = requests;
    return r;
}

/* Writes the first piece of the slab again and again: where it comes from makes no difference. */
static void write_pieces(struct lane *lane, struct mz_transfer *transfer, struct mz_request *requests)
{
    uint64_t start_ns = mz_os_now_ns();
    while (transfer_piece(lane, transfer, requests, lane->slab))
        ;
    lane->busy_ns = mz_os_now_ns() - start_ns;
}

static void read_pieces(struct lane *lane, struct mz_transfer *transfer, struct mz_request *requests)
{
    uint64_t slab_bytes = lane->bench->slab_bytes;
    for (bool more = true; more;) {
        (void)mz_os_release(lane->slab, slab_bytes);
        for (uint64_t at = 0; at < slab_bytes && more; at += PIECE_BYTES) {
            uint64_t start_ns = mz_os_now_ns();
            lane->result = mz_os_populate(lane->slab + at, PIECE_BYTES);
            more = !lane->result && transfer_piece(lane, transfer, requests, lane->slab + at);
            lane->busy_ns += mz_os_now_ns() - start_ns;
        }
    }
    (void)mz_os_release(lane->slab, slab_bytes);
}

static void storage_work(struct lane *lane)
{
    struct mz_transfer *transfer = NULL;
    struct mz_request *requests = NULL;
    lane->result = storage_open(lane, &transfer, &requests);
    if (lane->result)
        return;
    if (lane->bench->write)
        write_pieces(lane, transfer, requests);
    else
        read_pieces(lane, transfer, requests);
    mz_transfer_close(transfer);
    free(requests);
}

static int measure_write(struct bench *bench, uint32_t ms, struct mz_profile *ret)
{
    bench->write = true;
    bench->request_bytes = WRITE_REQUEST;
    int r = run_phase(bench, storage_work, ms, &ret->write_gbps);
    bench->write = false;
    uint64_t written = bench->next * WRITE_REQUEST;
    if (written < bench->file_bytes)
        bench->file_bytes = written;
    return r;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sizes in turn, and again, so that a slow moment of the device does not hit one size alone. */
static int measure_read(struct bench *bench, bool full, struct mz_profile *ret)
{
    double rounds[MZ_PROFILE_SIZES][FULL_ROUNDS] = {{0}};
    uint32_t n = full ? FULL_ROUNDS : 1, stride = full ? 1 : 2;
    int r = 0;
    for (uint32_t round = 0; round < n; round++) {
        for (uint32_t i = full ? 0 : 2; i < MZ_PROFILE_SIZES && !r; i += stride) {
            bench->request_bytes = (uint32_t)(MZ_PROFILE_SMALLEST_BYTES << i);
            if (bench->request_bytes <= bench->file_bytes)
                r = run_phase(bench, storage_work, full ? FULL_STORAGE_MS : QUICK_STORAGE_MS,
                              &rounds[i][round]);
        }
    }
    if (r)
        return r;
    double best = 0;
    for (uint32_t i = 0; i < MZ_PROFILE_SIZES; i++) {
        qsort(rounds[i], n, sizeof rounds[i][0], by_value);
        ret->read_curve_gbps[i] = rounds[i][n / 2];
        best = ret->read_curve_gbps[i] > best ? ret->read_curve_gbps[i] : best;
    }
    for (uint32_t i = MZ_PROFILE_SIZES; i-- > 0;) {
        if (best > 0 && ret->read_curve_gbps[i] >= GOOD_ENOUGH * best) {
            ret->request_bytes = (uint32_t)(MZ_PROFILE_SMALLEST_BYTES << i);
            ret->read_gbps = ret->read_curve_gbps[i];
        }
    }
    return 0;
}

static int measure_storage(struct bench *bench, const struct mz_profile_job *job, struct mz_profile *ret)
{
    int r = mz_file_open_swap(job->folder, job->force, &bench->file);
    if (r)
        return r;
    r = mz_profile_device(bench->file.dev, ret->device, sizeof ret->device);
    if (!r)
        r = measure_write(bench, 4 * (job->full ? FULL_STORAGE_MS : QUICK_STORAGE_MS), ret);
    if (!r)
        r = measure_read(bench, job->full, ret);
    mz_file_close(&bench->file);
    return r;
}

/* -------------------------------------------------------------------------------- codecs */

static struct mz_chunk_key key_of(uint32_t chunk)
{
    return (struct mz_chunk_key){.layer = chunk, .chunk = chunk, .row_elements = CHUNK_ROW};
}

/* Uniform in (-2, 2): each exponent half as frequent as the next larger one. Nothing to gain for a codec that
 * looks for more than small values, so its figure is a careful one. */
static void fill_fp16(uint8_t *to, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += 2) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t random = seed ^ seed >> 29;
        uint32_t below = (uint32_t)__builtin_ctzll(seed >> 40 | 1u << 14);
        uint32_t exponent = 15 - (below < 15 ? below : 14);
        uint16_t value = (uint16_t)((random & 0x83ff) | exponent << 10);
        memcpy(to + i, &value, sizeof value);
    }
}

static void encode_work(struct lane *lane)
{
    struct bench *bench = lane->bench;
    while (!lane->result && !is_late(lane)) {
        uint64_t start_ns = mz_os_now_ns();
        for (uint32_t i = 0; i < chunks_of(bench) && !lane->result; i++) {
            struct mz_chunk_key key = key_of(i);
            lane->result = mz_codec_encode(bench->codec, &key, lane->slab + i * CHUNK_BYTES, CHUNK_BYTES,
                                           lane->images + i * bench->image_room, bench->image_room,
                                           &lane->image_bytes[i]);
        }
        lane->busy_ns += mz_os_now_ns() - start_ns;
        lane->bytes += lane->bench->slab_bytes;
    }
}

static void decode_work(struct lane *lane)
{
    struct bench *bench = lane->bench;
    while (!lane->result && !is_late(lane)) {
        uint64_t start_ns = mz_os_now_ns();
        lane->result = mz_os_populate(lane->slab, lane->bench->slab_bytes);
        for (uint32_t i = 0; i < chunks_of(bench) && !lane->result; i++) {
            struct mz_chunk_key key = key_of(i);
            lane->result = mz_codec_decode(&key, lane->images + i * bench->image_room, lane->image_bytes[i],
                                           lane->slab + i * CHUNK_BYTES, CHUNK_BYTES);
        }
        lane->busy_ns += mz_os_now_ns() - start_ns;
        lane->bytes += lane->bench->slab_bytes;
        (void)mz_os_release(lane->slab, lane->bench->slab_bytes);
    }
}

static void fill_work(struct lane *lane)
{
    lane->result = mz_os_populate(lane->slab, lane->bench->slab_bytes);
    if (!lane->result)
        fill_fp16(lane->slab, lane->bench->slab_bytes, (uint64_t)(lane - lane->bench->lanes) + 1);
}

/* Decoding takes the slab's content with it, so each codec begins with filling. */
static int measure_codec(struct bench *bench, const struct mz_codec *codec, uint32_t ms,
                         struct mz_profile *ret)
{
    double ignored;
    bench->codec = codec;
    int r = run_phase(bench, fill_work, 0, &ignored);
    if (!r)
        r = run_phase(bench, encode_work, ms, &ret->encode_gbps[codec->id]);
    if (!r)
        r = run_lanes(bench, mz_profile_decoders(bench->workers), decode_work, ms, &ret->decode_gbps[codec->id]);
    return r;
}

/* A codec that fails keeps its guess: the plan can go on without. */
static void measure_codecs(struct bench *bench, bool full, struct mz_profile *ret)
{
    const struct mz_codec *codec;
    for (unsigned at = 0; (codec = mz_codec_at(at)); at++) {
        if (codec->id >= MZ_PROFILE_CODECS)
            continue;
        int r = measure_codec(bench, codec, full ? FULL_CODEC_MS : QUICK_CODEC_MS, ret);
        if (r)
            mz_log(MZ_LOG_WARN, "cannot measure codec %s, going on with a guess: %s", codec->name,
                   mz_log_errno(r));
    }
}

/* -------------------------------------------------------------------------------- life */

static void bench_close(struct bench *bench)
{
    for (uint32_t i = 0; bench->lanes && i < bench->workers; i++) {
        mz_os_unreserve(bench->lanes[i].slab, bench->slab_bytes);
        free(bench->lanes[i].images);
    }
    free(bench->lanes);
}

static uint64_t largest_image(void)
{
    uint64_t largest = 0;
    const struct mz_codec *codec;
    for (unsigned at = 0; (codec = mz_codec_at(at)); at++) {
        uint64_t bound = mz_codec_bound(codec, CHUNK_BYTES);
        largest = bound > largest ? bound : largest;
    }
    return (largest + 63) / 64 * 64;
}

static int lane_open(struct bench *bench, struct lane *lane)
{
    void *slab = NULL;
    lane->bench = bench;
    int r = mz_os_reserve(bench->slab_bytes, &slab);
    if (r)
        return r;
    lane->slab = slab;
    (void)mz_os_advise_huge(slab, bench->slab_bytes, true);
    lane->images = mz_alloc(chunks_of(bench) * bench->image_room);
    return lane->images ? 0 : -ENOMEM;
}

static int bench_open(struct bench *bench, const struct mz_profile_job *job)
{
    *bench = (struct bench){.workers = job->workers, .uring = job->uring};
    bench->file_bytes = job->file_bytes ? job->file_bytes : UINT64_C(1) << (job->full ? 28 : 26);
    bench->slab_bytes = SLABS_BYTES / job->workers / SLAB_LEAST * SLAB_LEAST;
    if (bench->slab_bytes < SLAB_LEAST)
        bench->slab_bytes = SLAB_LEAST;
    bench->image_room = largest_image();
    bench->lanes = mz_calloc(job->workers, sizeof *bench->lanes);
    int r = bench->lanes ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < job->workers && !r; i++)
        r = lane_open(bench, &bench->lanes[i]);
    return r;
}

int mz_profile_measure_device(const char *folder, bool force, char *buf, size_t size)
{
    struct mz_file file;
    int r = mz_file_open_swap(folder, force, &file);
    if (r)
        return r;
    r = mz_profile_device(file.dev, buf, size);
    mz_file_close(&file);
    return r;
}

int mz_profile_measure(const struct mz_profile_job *job, struct mz_profile *ret)
{
    struct bench bench;
    struct mz_profile profile;
    double ignored;
    if (job->workers < 1 || job->workers > MZ_PROFILE_WORKERS ||
        (job->file_bytes && job->file_bytes < WRITE_REQUEST))
        return -EINVAL;
    mz_profile_guess(&profile, job->workers);
    int r = bench_open(&bench, job);
    if (!r)
        r = run_phase(&bench, fill_work, 0, &ignored); /* what is written: nothing that compresses well */
    if (!r)
        r = measure_storage(&bench, job, &profile);
    if (!r)
        measure_codecs(&bench, job->full, &profile);
    bench_close(&bench);
    if (r)
        return r;
    profile.when = mz_os_wall_ns() / UINT64_C(1000000000);
    *ret = profile;
    return 0;
}
