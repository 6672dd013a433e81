/* Units: where cuts and pages lie, every arrow between states, and that a refused call changes nothing. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/state.h"
#include "fake_engine.h"
#include "fake_model.h"
#include "os/fault.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

/* A core and one region. */
struct plain {
    struct mz_core *core;
    struct mz_region *region;
    char folder[32];
};

static void plain_make(struct plain *plain, uint64_t bytes, enum mz_kind kind)
{
    strcpy(plain->folder, "/var/tmp/mz-unit-XXXXXX");
    assert_non_null(mkdtemp(plain->folder));
    struct mz_core_config config = {.engine = fake_engine(), .swap_folder = plain->folder, .workers = 2};
    assert_int_equal(mz_core_create(&config, &plain->core), 0);
    assert_int_equal(mz_region_create(plain->core, bytes, kind, &plain->region), 0);
}

static void plain_free(struct plain *plain)
{
    mz_region_destroy(plain->region);
    mz_core_destroy(plain->core);
    rmdir(plain->folder);
}

static int add(struct plain *plain, enum mz_kind kind, uint64_t offset, uint64_t bytes, uint64_t cut_bytes,
               struct mz_tensor **ret)
{
    char name[32];
    snprintf(name, sizeof(name), "at.%llu", (unsigned long long)offset);
    struct mz_tensor_desc desc = {
        .name = name, .offset = offset, .bytes = bytes, .kind = kind, .cut_bytes = cut_bytes, .layer = -1};
    return mz_region_add(plain->region, &desc, ret);
}

static struct mz_tensor *added(struct plain *plain, enum mz_kind kind, uint64_t offset, uint64_t bytes, uint64_t cut_bytes)
{
    struct mz_tensor *tensor = NULL;
    assert_int_equal(add(plain, kind, offset, bytes, cut_bytes, &tensor), 0);
    return tensor;
}

/* At rest, so the test may look without the lock; it takes it for the sanitizer's sake. */
static unsigned state_of(const struct mz_unit *unit)
{
    struct mz_core *core = unit->tensor->region->core;
    pthread_mutex_lock(&core->lock);
    unsigned state = unit->state;
    pthread_mutex_unlock(&core->lock);
    return state;
}

/* ---- geometry */

static void weights_are_cut_at_multiples_in_the_region(void **state)
{
    (void)state;
    struct plain plain;
    plain_make(&plain, 32 * MIB, MZ_KIND_WEIGHT);
    struct mz_tensor *tensor = added(&plain, MZ_KIND_WEIGHT, 3 * MIB + 32, 10 * MIB, 0);
    static const uint64_t starts[] = {3 * MIB + 32, 4 * MIB, 8 * MIB, 12 * MIB, 13 * MIB + 32};
    assert_int_equal(mz_tensor_units(tensor), 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(mz_unit_offset(mz_tensor_unit(tensor, i)), starts[i]);
        assert_int_equal(mz_unit_bytes(mz_tensor_unit(tensor, i)), starts[i + 1] - starts[i]);
    }
    uint32_t first, end;
    mz_tensor_range(tensor, 0, 1, &first, &end);
    assert_true(first == 0 && end == 1);
    mz_tensor_range(tensor, MIB - 33, 2, &first, &end); /* the last byte of one and the first of the next */
    assert_true(first == 0 && end == 2);
    mz_tensor_range(tensor, MIB - 32, UINT64_MAX, &first, &end);
    assert_true(first == 1 && end == 4);
    mz_tensor_range(tensor, 10 * MIB, 1, &first, &end);
    assert_true(first == end);
    mz_tensor_range(tensor, 5, 0, &first, &end);
    assert_true(first == end);
    plain_free(&plain);
}

static void cuts_follow_the_tensor_where_they_are_whole_pages(void **state)
{
    (void)state;
    struct plain plain;
    plain_make(&plain, 32 * MIB, MZ_KIND_KV);
    struct mz_tensor *whole = added(&plain, MZ_KIND_KV, 12 * KIB, 300 * KIB, 64 * KIB);
    assert_int_equal(mz_tensor_units(whole), 5);
    assert_int_equal(mz_unit_offset(mz_tensor_unit(whole, 4)), (12 + 256) * KIB);
    assert_int_equal(mz_unit_bytes(mz_tensor_unit(whole, 4)), 44 * KIB);
    /* Neither of these may put two units into one page. */
    struct mz_tensor *odd_cut = added(&plain, MZ_KIND_KV, MIB, MIB, 10000);
    assert_int_equal(mz_tensor_units(odd_cut), 1);
    struct mz_tensor *odd_start = added(&plain, MZ_KIND_KV, 3 * MIB + 100, MIB, 64 * KIB);
    assert_int_equal(mz_tensor_units(odd_start), 2);
    assert_int_equal(mz_unit_offset(mz_tensor_unit(odd_start, 1)), 4 * MIB);
    plain_free(&plain);
}

static void small_weights_stay(void **state)
{
    (void)state;
    struct plain plain;
    struct mz_evict_report report;
    struct mz_core_status status;
    static uint8_t bytes[64 * 1024];
    plain_make(&plain, MIB, MZ_KIND_WEIGHT);
    struct mz_tensor *norm = added(&plain, MZ_KIND_WEIGHT, 0, 64 * KIB - 1, 0);
    struct mz_tensor *matrix = added(&plain, MZ_KIND_WEIGHT, 64 * KIB, 64 * KIB, 0);
    memset(bytes, 7, sizeof(bytes));
    assert_int_equal(mz_tensor_load(norm, bytes, NULL, NULL), 0);
    assert_int_equal(mz_tensor_load(matrix, bytes, NULL, NULL), 0);
    assert_int_equal(mz_core_evict_to(plain.core, 0, "test", &report), 0);
    assert_int_equal(state_of(mz_tensor_unit(norm, 0)), MZ_RESIDENT);
    assert_int_equal(state_of(mz_tensor_unit(matrix, 0)), MZ_EVICTED);
    mz_core_status(plain.core, &status);
    assert_int_equal(status.total_bytes, 128 * KIB - 1);
    assert_int_equal(status.remaining_bytes, 64 * KIB - 1);
    assert_int_equal(report.floor_bytes, 64 * KIB - 1);
    plain_free(&plain);
}

static uint32_t next(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 8;
}

/* No page of a span holds a byte of another tensor, and spans do not overlap. */
static void check_spans(struct plain *plain)
{
    struct mz_region *region = plain->region;
    uint64_t behind = 0;

    for (uint32_t i = 0; i < region->n; i++) {
        struct mz_tensor *tensor = region->tensors[i];
        uint64_t at = tensor->offset, lo, hi;
        for (uint32_t u = 0; u < tensor->n; u++) {
            struct mz_unit *unit = &tensor->units[u];
            assert_int_equal(mz_unit_offset(unit), at);
            assert_true(mz_unit_bytes(unit) > 0);
            at += mz_unit_bytes(unit);
            mz_unit_span(unit, &lo, &hi);
            assert_true(lo % 4096 == 0 && hi % 4096 == 0 && lo <= hi);
            if (lo == hi)
                continue;
            assert_true(lo >= behind);
            behind = hi;
            assert_true(i == 0 || region->tensors[i - 1]->offset + region->tensors[i - 1]->bytes <= lo);
            assert_true(i + 1 == region->n || region->tensors[i + 1]->offset >= hi);
        }
        assert_int_equal(at, tensor->offset + tensor->bytes);
    }
}

static void fill(uint8_t *to, uint64_t bytes, uint32_t number)
{
    for (uint64_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(i * 31 + number * 7 + (i >> 9));
}

/* Tensors that begin and end anywhere, added in any order: neighbours share pages, and what leaves comes back right. */
static void ragged_tensors_share_pages(void **state)
{
    (void)state;
    struct plain plain;
    enum { N = 24 };
    uint64_t offsets[N + 1] = {0};
    uint8_t *bytes = malloc(MIB), *back = malloc(MIB);
    uint32_t random = 5;

    plain_make(&plain, 8 * MIB, MZ_KIND_OTHER);
    for (uint32_t i = 0; i < N; i++) /* some with a gap in front, some right behind */
        offsets[i + 1] = offsets[i] + 1 + next(&random) % (300 * 1024);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t number = i * 7 % N;
        uint64_t gap = number % 3 ? 0 : 100;
        if (offsets[number + 1] - offsets[number] > gap)
            (void)added(&plain, MZ_KIND_OTHER, offsets[number], offsets[number + 1] - offsets[number] - gap, 0);
        check_spans(&plain);
    }
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < plain.region->n; i++) {
            struct mz_tensor *tensor = plain.region->tensors[i];
            fill(bytes, tensor->bytes, i + (uint32_t)round);
            assert_int_equal(mz_region_write(plain.region, tensor->offset, bytes, tensor->bytes), 0);
        }
        assert_int_equal(mz_core_evict_to(plain.core, 0, "test", NULL), 0);
        if (round == 1)
            assert_int_equal(mz_core_restore(plain.core, true), 0);
        for (uint32_t i = 0; i < plain.region->n; i++) {
            struct mz_tensor *tensor = plain.region->tensors[i];
            fill(bytes, tensor->bytes, i + (uint32_t)round);
            assert_int_equal(mz_region_read(plain.region, tensor->offset, back, tensor->bytes), 0);
            assert_memory_equal(bytes, back, tensor->bytes);
        }
    }
    plain_free(&plain);
    free(bytes);
    free(back);
}

/* ---- refused calls */

struct snapshot {
    struct mz_core_status status;
    uint64_t digest;
};

static void see(void *user, const struct mz_unit_view *view)
{
    uint64_t *digest = user;
    for (const char *at = view->tensor; *at; at++)
        *digest = *digest * 1099511628211u + (uint8_t)*at;
    *digest = *digest * 1099511628211u + view->index * 31 + view->bytes + (uint8_t)view->where[0];
}

static void snapshot(struct plain *plain, struct snapshot *ret)
{
    memset(ret, 0, sizeof(*ret));
    mz_core_status(plain->core, &ret->status);
    mz_core_visit(plain->core, see, &ret->digest);
}

static void assert_unchanged(struct plain *plain, const struct snapshot *before)
{
    struct snapshot now;
    snapshot(plain, &now);
    assert_memory_equal(&now, before, sizeof(now));
}

static void refused_adds(void **state)
{
    (void)state;
    struct plain plain;
    struct snapshot before;
    struct mz_tensor *none = NULL;
    plain_make(&plain, 8 * MIB, MZ_KIND_OTHER);
    struct mz_tensor *tensor = added(&plain, MZ_KIND_OTHER, MIB, MIB, 0);
    snapshot(&plain, &before);
    static const struct {
        uint64_t offset, bytes;
        int err;
    } adds[] = {
        {MIB - 1, 2, -EBUSY},           {2 * MIB - 1, 2, -EBUSY},      {0, 8 * MIB, -EBUSY},
        {MIB, MIB + 1, -EBUSY},         {0, 0, -ERANGE},               {8 * MIB, 1, -ERANGE},
        {7 * MIB, MIB + 1, -ERANGE},    {UINT64_MAX, 2, -ERANGE},      {5, UINT64_MAX, -ERANGE},
        {9 * MIB, UINT64_MAX, -ERANGE},
    };
    for (size_t i = 0; i < sizeof(adds) / sizeof(*adds); i++) {
        assert_int_equal(add(&plain, MZ_KIND_OTHER, adds[i].offset, adds[i].bytes, 0, &none), adds[i].err);
        assert_null(none);
        assert_unchanged(&plain, &before);
    }
    for (uint64_t n = 1; n <= 3; n++) { /* record, name, units */
        mz_fault_plan(MZ_FAULT_ALLOC, n, ENOMEM, false);
        assert_int_equal(add(&plain, MZ_KIND_OTHER, 4 * MIB, MIB, 0, &none), -ENOMEM);
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
        assert_null(none);
        assert_unchanged(&plain, &before);
    }
    assert_ptr_equal(added(&plain, MZ_KIND_OTHER, MIB + 100, 100, 0), tensor); /* a view */
    assert_ptr_equal(added(&plain, MZ_KIND_OTHER, MIB, MIB, 0), tensor);
    assert_unchanged(&plain, &before);
    assert_ptr_equal(mz_region_find(plain.region, MIB), tensor);
    assert_ptr_equal(mz_region_find(plain.region, 2 * MIB - 1), tensor);
    assert_null(mz_region_find(plain.region, 2 * MIB));
    assert_null(mz_region_find(plain.region, MIB - 1));
    plain_free(&plain);
}

static void shifts(void **state)
{
    (void)state;
    struct plain plain;
    struct snapshot before;
    uint8_t byte = 9;
    plain_make(&plain, 16 * MIB, MZ_KIND_WEIGHT);
    struct mz_tensor *tensor = added(&plain, MZ_KIND_WEIGHT, 3 * MIB, 5 * MIB, MIB);
    struct mz_tensor *after = added(&plain, MZ_KIND_WEIGHT, 9 * MIB, MIB, 0);
    assert_int_equal(mz_tensor_units(tensor), 5);
    snapshot(&plain, &before);
    assert_int_equal(mz_tensor_shift(tensor, MIB + 1), -ERANGE);  /* into the neighbour */
    assert_int_equal(mz_tensor_shift(after, 6 * MIB + 1), -ERANGE); /* beyond the region */
    assert_int_equal(mz_tensor_shift(after, UINT64_MAX - MIB), -ERANGE);
    assert_unchanged(&plain, &before);
    mz_fault_plan(MZ_FAULT_ALLOC, 1, ENOMEM, false);
    assert_int_equal(mz_tensor_shift(tensor, 100), -ENOMEM);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_unchanged(&plain, &before);
    check_spans(&plain);
    assert_int_equal(mz_tensor_shift(tensor, 100), 0);
    assert_int_equal(mz_tensor_offset(tensor), 3 * MIB + 100);
    assert_int_equal(mz_tensor_bytes(tensor), 5 * MIB);
    assert_int_equal(mz_tensor_units(tensor), 3); /* no longer at whole pages: cut like any weight */
    assert_null(mz_region_find(plain.region, 3 * MIB + 99));
    check_spans(&plain);
    assert_int_equal(mz_region_write(plain.region, 4 * MIB, &byte, 1), 0);
    snapshot(&plain, &before);
    assert_int_equal(mz_tensor_shift(tensor, 1), -EBUSY);
    assert_unchanged(&plain, &before);
    assert_int_equal(mz_core_evict_to(plain.core, 0, "test", NULL), 0);
    assert_int_equal(mz_tensor_shift(tensor, 1), -EBUSY);
    assert_int_equal(mz_tensor_offset(tensor), 3 * MIB + 100);
    assert_int_equal(mz_region_clear(plain.region, 0), 0);
    assert_int_equal(mz_tensor_shift(tensor, 4), 0); /* never written again */
    check_spans(&plain);
    plain_free(&plain);
}

/* The buffers of evictions do not grow with a shift that had no memory for them. */
static void shifts_without_memory(void **state)
{
    (void)state;
    struct plain plain;
    plain_make(&plain, 600 * MIB, MZ_KIND_OTHER);
    struct mz_tensor *tensor = added(&plain, MZ_KIND_OTHER, 0, 400 * MIB, 512 * MIB);
    uint32_t refused = 0;
    assert_int_equal(mz_tensor_units(tensor), 1);
    for (uint64_t n = 1; n < 20; n++) {
        mz_fault_plan(MZ_FAULT_ALLOC, n, ENOMEM, false);
        int err = mz_tensor_shift(tensor, 1);
        bool clean = mz_fault_hits() == 0;
        mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
        if (clean)
            break;
        assert_int_equal(err, -ENOMEM);
        assert_int_equal(mz_tensor_units(tensor), 1);
        refused++;
    }
    assert_true(refused > 0);
    assert_int_equal(mz_tensor_units(tensor), 101);
    assert_true(plain.core->plan_room >= plain.core->n_units);
    plain_free(&plain);
}

static void loads_only_once(void **state)
{
    (void)state;
    struct plain plain;
    struct snapshot before;
    uint8_t *one = malloc(MIB), *two = malloc(MIB);
    plain_make(&plain, 2 * MIB, MZ_KIND_WEIGHT);
    struct mz_tensor *tensor = added(&plain, MZ_KIND_WEIGHT, 0, MIB, 0);
    fill(one, MIB, 1);
    fill(two, MIB, 2);
    assert_int_equal(mz_tensor_load(tensor, one, NULL, NULL), 0);
    snapshot(&plain, &before);
    assert_int_equal(mz_tensor_load(tensor, two, NULL, fake_form()), -EBUSY);
    assert_null(mz_tensor_form(tensor));
    assert_unchanged(&plain, &before);
    assert_int_equal(mz_core_evict_to(plain.core, 0, "test", NULL), 0);
    assert_int_equal(mz_tensor_load(tensor, two, NULL, NULL), -EBUSY);
    assert_int_equal(mz_region_read(plain.region, 0, two, MIB), 0);
    assert_memory_equal(one, two, MIB);
    plain_free(&plain);
    free(one);
    free(two);
}

static void a_failed_load_can_be_tried_again(void **state)
{
    (void)state;
    struct plain plain;
    uint8_t *bytes = malloc(MIB), *back = malloc(MIB);
    plain_make(&plain, 2 * MIB, MZ_KIND_WEIGHT);
    struct mz_tensor *tensor = added(&plain, MZ_KIND_WEIGHT, 0, MIB, 0);
    fill(bytes, MIB, 1);
    mz_fault_plan(MZ_FAULT_POPULATE, 1, ENOMEM, false);
    assert_int_equal(mz_tensor_load(tensor, bytes, NULL, fake_form()), -ENOMEM);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(state_of(mz_tensor_unit(tensor, 0)), MZ_EMPTY);
    assert_int_equal(mz_store_live_bytes(plain.core->store), 0);
    assert_int_equal(mz_tensor_load(tensor, bytes, NULL, NULL), 0);
    assert_int_equal(mz_region_read(plain.region, 0, back, MIB), 0);
    assert_memory_equal(bytes, back, MIB);
    plain_free(&plain);
    free(bytes);
    free(back);
}

/* ---- states */

/* A written unit and its region. */
static struct mz_unit *one_unit(struct plain *plain)
{
    uint8_t *bytes = malloc(MIB);
    plain_make(plain, MIB, MZ_KIND_KV);
    struct mz_tensor *tensor = added(plain, MZ_KIND_KV, 0, MIB, MIB);
    assert_int_equal(state_of(mz_tensor_unit(tensor, 0)), MZ_EMPTY);
    fill(bytes, MIB, 3);
    assert_int_equal(mz_region_write(plain->region, 0, bytes, MIB), 0);
    free(bytes);
    assert_int_equal(state_of(mz_tensor_unit(tensor, 0)), MZ_RESIDENT);
    return mz_tensor_unit(tensor, 0);
}

static void assert_bytes(struct plain *plain)
{
    uint8_t *bytes = malloc(MIB), *back = malloc(MIB);
    fill(bytes, MIB, 3);
    assert_int_equal(mz_region_read(plain->region, 0, back, MIB), 0);
    assert_memory_equal(bytes, back, MIB);
    free(bytes);
    free(back);
}

static void evict_one(struct plain *plain, struct mz_unit *unit)
{
    assert_int_equal(mz_core_evict_to(plain->core, 0, "test", NULL), 0);
    assert_int_equal(state_of(unit), MZ_EVICTED);
}

static void out_and_in(void **state)
{
    (void)state;
    struct plain plain;
    struct mz_unit *unit = one_unit(&plain);
    evict_one(&plain, unit);
    assert_bytes(&plain); /* evicted -> restoring -> evicted: read through */
    assert_int_equal(state_of(unit), MZ_EVICTED);
    assert_int_equal(mz_core_restore(plain.core, true), 0);
    assert_int_equal(state_of(unit), MZ_RESIDENT);
    assert_bytes(&plain);
    mz_fault_plan(MZ_FAULT_MADVISE, 1, EINVAL, true); /* locked memory: evicting -> resident */
    assert_int_equal(mz_core_evict_to(plain.core, 0, "test", NULL), -EINVAL);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(state_of(unit), MZ_RESIDENT);
    assert_bytes(&plain);
    plain_free(&plain);
}

static void without_a_copy_it_stays(void **state)
{
    (void)state;
    struct plain plain;
    struct mz_unit *unit = one_unit(&plain);
    mz_fault_plan(MZ_FAULT_WRITE, 1, ENOSPC, true);
    assert_int_equal(mz_core_evict_to(plain.core, 0, "test", NULL), -ENOSPC);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(state_of(unit), MZ_RESIDENT);
    assert_int_equal(mz_store_live_bytes(plain.core->store), 0);
    assert_bytes(&plain);
    plain_free(&plain);
}

static void lose_one(struct plain *plain, struct mz_unit *unit, bool restoring)
{
    uint8_t byte = 0;
    evict_one(plain, unit);
    mz_fault_plan(MZ_FAULT_READ, 1, EIO, true);
    if (restoring)
        assert_int_equal(mz_core_restore(plain->core, true), -EIO);
    else
        assert_int_equal(mz_region_read(plain->region, 5, &byte, 1), -EIO);
    mz_fault_plan(MZ_FAULT_ANY, 0, 0, false);
    assert_int_equal(state_of(unit), MZ_LOST);
    assert_int_equal(mz_region_read(plain->region, 5, &byte, 1), -EIO);
    assert_int_equal(byte, 0xFF);
    struct mz_pin pin = {.unit = unit};
    assert_int_equal(mz_gate_pin(plain->core, &pin, 1, NULL, NULL), -EIO);
    assert_int_equal(mz_gate_pin_late(plain->core, &pin, true, NULL, NULL), -EIO);
    assert_false(pin.held);
    assert_int_equal(mz_region_write(plain->region, 5, &byte, 1), -EIO); /* a part of what is lost */
    assert_int_equal(state_of(unit), MZ_LOST);
    struct mz_core_status status;
    mz_core_status(plain->core, &status); /* what holds nothing takes no memory */
    assert_int_equal(status.kind[MZ_KIND_KV].counted_bytes, 0);
    assert_int_equal(status.kind[MZ_KIND_KV].lost_bytes, MIB);
}

static void lost_and_found(void **state)
{
    (void)state;
    for (int restoring = 0; restoring < 2; restoring++) {
        struct plain plain;
        uint8_t *bytes = malloc(MIB);
        struct mz_unit *unit = one_unit(&plain);
        lose_one(&plain, unit, restoring);
        assert_int_equal(mz_core_restore(plain.core, true), 0); /* lost -> evicted -> ... -> resident */
        assert_int_equal(state_of(unit), MZ_RESIDENT);
        assert_bytes(&plain);
        lose_one(&plain, unit, restoring);
        fill(bytes, MIB, 3);
        assert_int_equal(mz_region_write(plain.region, 0, bytes, MIB), 0); /* the whole of it */
        assert_int_equal(state_of(unit), MZ_RESIDENT);
        assert_bytes(&plain);
        lose_one(&plain, unit, restoring);
        assert_int_equal(mz_region_clear(plain.region, 0), 0);
        assert_int_equal(state_of(unit), MZ_EMPTY);
        plain_free(&plain);
        free(bytes);
    }
}

static void loaded_under_a_limit_begins_evicted(void **state)
{
    (void)state;
    struct model model;
    uint64_t floor = 0;
    model_make(&model, true, false);
    (void)mz_core_limit(model.core, 1, &floor);
    assert_int_equal(mz_core_limit(model.core, floor, NULL), 0);
    struct mz_region *region = NULL;
    struct mz_tensor *tensor = NULL;
    uint8_t *bytes = malloc(64 * MIB);
    assert_int_equal(mz_region_create(model.core, 64 * MIB, MZ_KIND_WEIGHT, &region), 0);
    struct mz_tensor_desc desc = {.name = "late", .bytes = 64 * MIB, .kind = MZ_KIND_WEIGHT, .layer = -1};
    assert_int_equal(mz_region_add(region, &desc, &tensor), 0);
    memset(bytes, 1, 64 * MIB);
    FILE *file = fopen(model.file, "ab"); /* its bytes, behind the others */
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, 64 * MIB, file), 64 * MIB);
    fclose(file);
    struct mz_origin origin = {.path = model.file, .offset = 2 * MODEL_LAYERS * MODEL_WEIGHT_BYTES};
    assert_int_equal(mz_tensor_load(tensor, bytes, &origin, NULL), 0);
    assert_true(model_status(&model).ledger_bytes <= floor);
    uint32_t evicted = 0;
    for (uint32_t i = 0; i < mz_tensor_units(tensor); i++)
        evicted += state_of(mz_tensor_unit(tensor, i)) == MZ_EVICTED;
    assert_true(evicted > 0);
    uint8_t byte = 0;
    assert_int_equal(mz_region_read(region, 63 * MIB, &byte, 1), 0);
    assert_int_equal(byte, 1);
    free(bytes);
    mz_region_destroy(region);
    assert_int_equal(truncate(model.file, (off_t)origin.offset), 0);
    model_free(&model);
}

/* The arrows that are not drawn end the process, and only those that are drawn exist. */
static void other_arrows_do_not_exist(void **state)
{
    (void)state;
#ifdef NDEBUG
    print_message("skipped: built without assertions\n");
    skip();
#endif
    static const bool drawn[6][6] = {
        [MZ_EMPTY] = {[MZ_RESIDENT] = true, [MZ_EVICTED] = true},
        [MZ_RESIDENT] = {[MZ_EVICTING] = true, [MZ_EMPTY] = true},
        [MZ_EVICTING] = {[MZ_EVICTED] = true, [MZ_RESIDENT] = true},
        [MZ_EVICTED] = {[MZ_RESTORING] = true, [MZ_EMPTY] = true},
        [MZ_RESTORING] = {[MZ_RESIDENT] = true, [MZ_EVICTED] = true, [MZ_LOST] = true},
        [MZ_LOST] = {[MZ_EVICTED] = true, [MZ_EMPTY] = true},
    };
    struct plain plain;
    struct mz_unit *unit = one_unit(&plain);
    for (unsigned from = 0; from < 6; from++) {
        for (unsigned to = 0; to < 6; to++) {
            if (drawn[from][to])
                continue;
            int status = 0;
            pid_t child = fork();
            if (child == 0) {
                signal(SIGABRT, SIG_DFL);
                (void)freopen("/dev/null", "w", stderr);
                unit->state = (uint8_t)from;
                mz_unit_move(unit, (enum mz_state)to);
                _exit(0);
            }
            assert_true(child > 0);
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        }
    }
    plain_free(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_cut_at_multiples_in_the_region),
        cmocka_unit_test(cuts_follow_the_tensor_where_they_are_whole_pages),
        cmocka_unit_test(small_weights_stay),
        cmocka_unit_test(ragged_tensors_share_pages),
        cmocka_unit_test(refused_adds),
        cmocka_unit_test(shifts),
        cmocka_unit_test(shifts_without_memory),
        cmocka_unit_test(loads_only_once),
        cmocka_unit_test(a_failed_load_can_be_tried_again),
        cmocka_unit_test(out_and_in),
        cmocka_unit_test(without_a_copy_it_stays),
        cmocka_unit_test(lost_and_found),
        cmocka_unit_test(loaded_under_a_limit_begins_evicted),
        cmocka_unit_test(other_arrows_do_not_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
