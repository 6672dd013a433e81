/*
 * Attention over chunk pointers: checks, the two phases, and how threads share the work.
 *
 * In the partial phase each thread claims items from a counter (first pass). An item whose next chunk is not
 * there yet is parked: set free again, with what it has so far in its slot. After the counter has run out,
 * threads go over the parked items: those whose chunk has come are continued; when none can be, a thread
 * takes one and blocks on its chunk. A thread leaves when every item is done or held by another thread: a
 * holder that parks an item looks over all of them again before it leaves, so none is left behind.
 *
 * Data: the caller's descriptor is only read; slots and scratch belong to one thread at a time
 * (attn_workspace.h).
 */
#include "attn/attn.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn/attn_element.h"
#include "attn/attn_kernel.h"
#include "attn/attn_workspace.h"

/* ---- checks and sizes */

/* A type that the kernels read, and whole blocks of it. */
static bool type_ok(enum mz_attn_type type, uint32_t n)
{
    return (unsigned)type < MZ_ATTN_TYPE_COUNT && (type != MZ_ATTN_Q8_0 || n % MZ_ATTN_Q8 == 0);
}

static bool shape_ok(const struct mz_attn *a)
{
    return a->n_heads && a->n_kv_heads && a->n_heads % a->n_kv_heads == 0 && a->n_seq && a->dk && a->dv &&
           a->dk <= MZ_ATTN_HEAD_MAX && a->dv <= MZ_ATTN_HEAD_MAX && type_ok(a->k_type, a->dk) &&
           type_ok(a->v_type, a->dv) && (uint64_t)a->n_rows * (a->n_heads / a->n_kv_heads) <= UINT32_MAX / 2;
}

static bool pointers_ok(const struct mz_attn *a)
{
    if (a->n_rows && (!a->q || !a->dst))
        return false;
    if (a->n_kv && (!a->k || !a->v))
        return false;
    if (a->mask && (!a->mask_heads || !a->mask_seqs))
        return false;
    return a->q_row_bytes % sizeof(float) == 0 && a->q_head_bytes % sizeof(float) == 0 &&
           a->q_seq_bytes % sizeof(float) == 0 && (a->k_row_bytes | a->k_head_bytes) % 2 == 0 &&
           (a->v_row_bytes | a->v_head_bytes) % 2 == 0 &&
           (a->mask_row_bytes | a->mask_head_bytes | a->mask_seq_bytes) % 2 == 0;
}

int mz_attn_check(const struct mz_attn *a)
{
    if (!a || !a->run || !shape_ok(a) || !pointers_ok(a))
        return -EINVAL;
    if ((unsigned)a->isa >= MZ_ATTN_ISA_COUNT)
        return -EINVAL;
    return mz_attn_isa_usable(a->isa) ? 0 : -ENOTSUP;
}

uint64_t mz_attn_workspace(const struct mz_attn *a, int nth)
{
    struct mz_attn_plan p;

    mz_attn_plan_make(a, &p);
    return p.scratch_offset + (uint64_t)nth * p.scratch_bytes;
}

/* ---- shared state */

static uint64_t tagged(const struct mz_attn *a, uint32_t value)
{
    return (uint64_t)a->run << 32 | value;
}

static uint32_t untag(const struct mz_attn *a, uint64_t word)
{
    return (uint32_t)(word >> 32) == a->run ? (uint32_t)word : 0;
}

/* The first failure stays. */
static void fail(const struct mz_attn *a, struct mz_attn_head *head, int error)
{
    uint64_t old = atomic_load_explicit(&head->failed, memory_order_relaxed);

    while (!untag(a, old) &&
           !atomic_compare_exchange_weak_explicit(&head->failed, &old, tagged(a, (uint32_t)-error),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static bool has_failed(const struct mz_attn *a, const struct mz_attn_head *head)
{
    return untag(a, atomic_load_explicit(&head->failed, memory_order_relaxed)) != 0;
}

int mz_attn_status(const struct mz_attn *a, const void *ws)
{
    const struct mz_attn_head *head = ws;

    return -(int)untag(a, atomic_load_explicit(&head->failed, memory_order_relaxed));
}

/* Index of the next item that nobody has looked at, or UINT64_MAX. */
static uint64_t claim_next(const struct mz_attn *a, struct mz_attn_head *head, uint64_t n_items)
{
    uint64_t old = atomic_load_explicit(&head->claim, memory_order_relaxed);

    for (;;) {
        uint32_t index = untag(a, old);

        if (index >= n_items)
            return UINT64_MAX;
        if (atomic_compare_exchange_weak_explicit(&head->claim, &old, tagged(a, index + 1),
                                                  memory_order_relaxed, memory_order_relaxed))
            return index;
    }
}

static bool item_take(const struct mz_attn *a, struct mz_attn_item *item)
{
    uint64_t old = atomic_load_explicit(&item->state, memory_order_relaxed);

    if (untag(a, old) != MZ_ATTN_ITEM_FREE)
        return false;
    return atomic_compare_exchange_strong_explicit(&item->state, &old, tagged(a, MZ_ATTN_ITEM_HELD),
                                                   memory_order_acquire, memory_order_relaxed);
}

static void item_put(const struct mz_attn *a, struct mz_attn_item *item, enum mz_attn_item_state state)
{
    atomic_store_explicit(&item->state, tagged(a, state), memory_order_release);
}

/* ---- one item */

/* What a thread needs to work on items. On its stack. */
struct worker {
    const struct mz_attn *a;
    const struct mz_attn_plan *plan;
    const struct mz_attn_kernel *kernel;
    struct mz_attn_head *head;
    struct mz_attn_item *items;
    float *slots;
    struct mz_attn_job job;
    bool aimed; /* job belongs to the item at hand */
};

struct place {
    uint32_t range, seq, head_set, block;
};

/* Ranges outermost: the tokens that come back first are wanted first. Blocks innermost: they share K and V.
 */
static struct place item_place(const struct mz_attn *a, const struct mz_attn_plan *p, uint64_t index)
{
    struct place at;

    at.block = (uint32_t)(index % p->n_blocks);
    index /= p->n_blocks;
    at.head_set = (uint32_t)(index % p->n_head_sets);
    index /= p->n_head_sets;
    at.seq = (uint32_t)(index % a->n_seq);
    at.range = (uint32_t)(index / a->n_seq);
    return at;
}

/* ggml's ALiBi: powers of two bases, the odd ones of the next power for the heads beyond. */
static float head_slope(const struct mz_attn *a, uint32_t head)
{
    uint32_t log2_heads = 31u - (uint32_t)__builtin_clz(a->n_heads);
    float n = (float)(1u << log2_heads);

    if (!(a->max_bias > 0.0f))
        return 1.0f;
    if (head < 1u << log2_heads)
        return powf(powf(2.0f, -a->max_bias / n), (float)(head + 1));
    return powf(powf(2.0f, -(a->max_bias / 2.0f) / n), (float)(2 * (head - (1u << log2_heads)) + 1));
}

static const uint16_t *row_mask(const struct mz_attn *a, uint32_t seq, uint32_t head, uint32_t row)
{
    if (!a->mask)
        return NULL;
    return (const uint16_t *)((const char *)a->mask + row * a->mask_row_bytes +
                              head % a->mask_heads * a->mask_head_bytes +
                              seq % a->mask_seqs * a->mask_seq_bytes);
}

/* Points the job to one KV head of an item. */
static void job_aim(struct worker *w, const struct place *at, uint32_t kv_head)
{
    const struct mz_attn_plan *p = w->plan;
    struct mz_attn_job *job = &w->job;
    float *slot = w->slots + mz_attn_slot(w->a, p, at->range, at->seq, kv_head, at->block) * p->slot_floats;

    job->seq = at->seq;
    job->kv_head = kv_head;
    job->row0 = at->block * p->block_rows;
    job->n_rows = p->group_rows - job->row0 < p->block_rows ? p->group_rows - job->row0 : p->block_rows;
    job->m = slot;
    job->s = slot + p->block_rows;
    job->acc = slot + 2 * (size_t)p->block_rows;
    for (uint32_t i = 0; i < job->n_rows; i++) {
        uint32_t head = kv_head * p->group + (job->row0 + i) % p->group;

        job->slope[i] = head_slope(w->a, head);
        job->mask[i] = row_mask(w->a, at->seq, head, (job->row0 + i) / p->group);
    }
    w->kernel->pack(job);
    w->aimed = true;
}

static void slot_clear(const struct mz_attn_plan *p, struct mz_attn_job *job)
{
    for (uint32_t i = 0; i < p->block_rows; i++)
        job->m[i] = -INFINITY;
    memset(job->s, 0, p->block_rows * sizeof(float));
    memset(job->acc, 0, (size_t)p->block_rows * p->dv_pad * sizeof(float));
}

static uint32_t chunk_tokens(const struct mz_attn *a, uint32_t chunk)
{
    uint64_t left = a->n_kv - (uint64_t)chunk * MZ_ATTN_CHUNK;

    return left < MZ_ATTN_CHUNK ? (uint32_t)left : MZ_ATTN_CHUNK;
}

/* 0: go on; 1: not there yet; negative: failed. */
static int chunk_ask(const struct mz_attn *a, uint32_t seq, uint32_t chunk, bool block)
{
    int answer = a->ready ? a->ready(a->user, seq, chunk, block) : 0;

    return answer > 0 && block ? -EIO : answer;
}

/*
 * Adds one chunk to the slots of all heads of the item, or to none: 0, 1 or negative as chunk_ask(). Chunks
 * that are masked for a head are left out, and asked for only if another head wants them. Asking comes before
 * the first head that reads, so being turned away leaves the slots as they were.
 */
static int chunk_run(struct worker *w, const struct place *at, uint32_t index, bool block)
{
    const struct mz_attn_plan *p = w->plan;
    uint32_t chunk = at->range * p->range_chunks + index;
    uint32_t n_tokens = chunk_tokens(w->a, chunk);
    enum mz_attn_mask mask;
    bool asked = false;

    for (uint32_t i = 0; i < p->item_heads; i++) {
        if (p->item_heads > 1 || !w->aimed)
            job_aim(w, at, at->head_set * p->item_heads + i);
        if (index == 0)
            slot_clear(p, &w->job);
        mask = mz_attn_mask_class(&w->job, chunk * MZ_ATTN_CHUNK, n_tokens);
        if (mask == MZ_ATTN_MASK_ALL)
            continue;
        if (!asked) {
            int answer = chunk_ask(w->a, at->seq, chunk, block);

            if (answer)
                return answer;
            asked = true;
        }
        w->kernel->chunk(&w->job, chunk, n_tokens, mask);
    }
    return 0;
}

/* How far an item came. */
struct progress {
    bool on;   /* at least one chunk further, or done */
    bool done; /* nothing is left of it */
};

/* Works on an item that the caller holds, as far as chunks are there; with `block`, waits for the first one.
 * Gives the item back. */
static struct progress item_run(struct worker *w, uint64_t index, bool block)
{
    const struct mz_attn_plan *p = w->plan;
    struct mz_attn_item *item = &w->items[index];
    struct place at = item_place(w->a, p, index);
    uint32_t first = at.range * p->range_chunks;
    uint32_t n = p->n_chunks - first < p->range_chunks ? p->n_chunks - first : p->range_chunks;
    uint32_t next = item->next_run == w->a->run ? item->next : 0, begun = next;
    int answer = 0;

    w->aimed = false;
    while (next < n && answer == 0 && !has_failed(w->a, w->head)) {
        answer = chunk_run(w, &at, next, block && next == begun);
        next += answer == 0;
        if (answer < 0)
            fail(w->a, w->head, answer);
    }
    item->next_run = w->a->run;
    item->next = next;
    item_put(w->a, item, next == n ? MZ_ATTN_ITEM_DONE : MZ_ATTN_ITEM_FREE);
    return (struct progress){.on = next > begun, .done = next == n};
}

/* ---- partial phase */

/* One look at all parked items: continues what can be. Returns whether any got on; *ret_left: whether any
 * that this thread held is still not done. */
static bool parked_scan(struct worker *w, bool *ret_left)
{
    bool on = false;

    *ret_left = false;
    for (uint64_t i = 0; i < w->plan->n_items && !has_failed(w->a, w->head); i++) {
        if (item_take(w->a, &w->items[i])) {
            struct progress progress = item_run(w, i, false);

            on |= progress.on;
            *ret_left |= !progress.done;
        }
    }
    return on;
}

/* Blocks on the first parked item that no other thread holds. */
static void parked_wait(struct worker *w)
{
    for (uint64_t i = 0; i < w->plan->n_items; i++) {
        if (item_take(w->a, &w->items[i])) {
            item_run(w, i, true);
            return;
        }
    }
}

static void worker_init(struct worker *w, const struct mz_attn *a, const struct mz_attn_plan *p, void *ws,
                        int ith)
{
    float *at = (float *)((char *)ws + p->scratch_offset + (uint64_t)ith * p->scratch_bytes);
    size_t q_floats = (size_t)p->block_rows * p->dk_pad;

    memset(w, 0, sizeof(*w));
    w->a = a;
    w->plan = p;
    w->kernel = mz_attn_kernel_get(a->isa);
    w->head = ws;
    w->items = (struct mz_attn_item *)((char *)ws + p->items_offset);
    w->slots = (float *)((char *)ws + p->slots_offset);
    w->job.a = a;
    w->job.plan = p;
    w->job.q = at;
    w->job.logits = at + q_floats;
    w->job.q_halves = (uint16_t *)at;
    w->job.weights = (uint16_t *)(w->job.logits + (size_t)p->block_rows * MZ_ATTN_CHUNK);
    w->job.bias = w->job.logits + (size_t)p->block_rows * MZ_ATTN_CHUNK;
    w->job.k = w->job.bias + (size_t)p->block_rows * MZ_ATTN_TILE;
}

void mz_attn_partial(const struct mz_attn *a, void *ws, int ith, int nth)
{
    struct mz_attn_plan p;
    struct worker w;
    uint64_t index;
    bool left;

    (void)nth;
    mz_attn_plan_make(a, &p);
    worker_init(&w, a, &p, ws, ith);
    if (atomic_load_explicit(&w.head->merged, memory_order_relaxed) == a->run)
        fail(a, w.head, -ESTALE);
    while (!has_failed(a, w.head) && (index = claim_next(a, w.head, p.n_items)) != UINT64_MAX) {
        if (item_take(a, &w.items[index]))
            item_run(&w, index, false);
    }
    if (!a->ready)
        return;
    do {
        if (!parked_scan(&w, &left) && left)
            parked_wait(&w);
    } while (left && !has_failed(a, w.head));
}

/* ---- merge phase */

/* Where a row of a head lies in the slots of a range. */
struct row {
    const float *m, *s, *acc;
};

static struct row slot_row(const struct mz_attn *a, const struct mz_attn_plan *p, const float *slots,
                           uint64_t range, uint64_t seq, uint32_t head, uint32_t token)
{
    uint32_t in_group = token * p->group + head % p->group, in_block = in_group % p->block_rows;
    const float *slot =
        slots + mz_attn_slot(a, p, range, seq, head / p->group, in_group / p->block_rows) * p->slot_floats;

    return (struct row){
        .m = slot + in_block,
        .s = slot + p->block_rows + in_block,
        .acc = slot + 2 * (size_t)p->block_rows + (size_t)in_block * p->dv_pad,
    };
}

/* The largest logit over all ranges and the sink; NaN when a range's sum is NaN is left to the sums. */
static float row_max(const struct mz_attn *a, const struct mz_attn_plan *p, const float *slots, uint64_t seq,
                     uint32_t head, uint32_t token)
{
    float m = a->sinks ? a->sinks[head] : -INFINITY;

    for (uint32_t range = 0; range < p->n_ranges; range++)
        m = fmaxf(m, *slot_row(a, p, slots, range, seq, head, token).m);
    return m;
}

static void row_merge(const struct mz_attn *a, const struct mz_attn_plan *p, const float *slots, uint64_t seq,
                      uint32_t head, uint32_t token, float *dst)
{
    float m = row_max(a, p, slots, seq, head, token);
    float sum = a->sinks ? expf(a->sinks[head] - m) : 0.0f;

    memset(dst, 0, a->dv * sizeof(float));
    for (uint32_t range = 0; range < p->n_ranges; range++) {
        struct row row = slot_row(a, p, slots, range, seq, head, token);
        float weight = expf(*row.m - m);

        if (*row.s == 0.0f) /* masked everywhere in this range */
            continue;
        sum += weight * *row.s;
        for (uint32_t i = 0; i < a->dv; i++)
            dst[i] += weight * row.acc[i];
    }
    if (sum != 0.0f)
        for (uint32_t i = 0; i < a->dv; i++)
            dst[i] /= sum;
}

/* Every item is done, of this run; otherwise the slots hold nothing to merge. */
static bool all_done(const struct mz_attn *a, const struct mz_attn_plan *p, const struct mz_attn_item *items)
{
    for (uint64_t i = 0; i < p->n_items; i++) {
        if (untag(a, atomic_load_explicit(&items[i].state, memory_order_acquire)) != MZ_ATTN_ITEM_DONE)
            return false;
    }
    return true;
}

void mz_attn_merge(const struct mz_attn *a, void *ws, int ith, int nth)
{
    struct mz_attn_head *head = ws;
    const float *slots;
    struct mz_attn_plan p;
    uint64_t n_dst = (uint64_t)a->n_seq * a->n_rows * a->n_heads, begin, end;

    mz_attn_plan_make(a, &p);
    slots = (const float *)((const char *)ws + p.slots_offset);
    if (!has_failed(a, head) &&
        !all_done(a, &p, (const struct mz_attn_item *)((const char *)ws + p.items_offset)))
        fail(a, head, -ESTALE);
    if (ith == 0)
        atomic_store_explicit(&head->merged, a->run, memory_order_relaxed);
    begin = n_dst * (uint64_t)ith / (uint64_t)nth;
    end = n_dst * ((uint64_t)ith + 1) / (uint64_t)nth;
    for (uint64_t i = begin; i < end; i++) {
        float *dst = a->dst + i * a->dv;
        uint64_t token = i / a->n_heads % a->n_rows, seq = i / a->n_heads / a->n_rows;

        if (has_failed(a, head))
            memset(dst, 0xff, a->dv * sizeof(float)); /* NaN: never plausible numbers */
        else
            row_merge(a, &p, slots, seq, (uint32_t)(i % a->n_heads), (uint32_t)token, dst);
    }
}
