#include "fake_engine.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "os/fault.h"
#include "os/mem.h"

#define GRANULE UINT64_C(4096)

struct mz_memory {
    void *base;
    uint64_t bytes;
};

struct mz_form {
    uint8_t flip;
};

static uint64_t down(uint64_t value)
{
    return value / GRANULE * GRANULE;
}

static uint64_t up(uint64_t value)
{
    return down(value + GRANULE - 1);
}

static int fake_reserve(struct mz_engine *engine, uint64_t bytes, bool persistent, struct mz_memory **ret)
{
    struct mz_memory *memory = mz_calloc(1, sizeof(*memory));

    (void)engine;
    (void)persistent;
    if (!memory)
        return -ENOMEM;
    memory->bytes = up(bytes);
    int err = mz_os_reserve(memory->bytes, &memory->base);
    if (err) {
        free(memory);
        return err;
    }
    /* Where huge pages are for all, the first byte would bring 2 MiB. */
    (void)madvise(memory->base, memory->bytes, MADV_NOHUGEPAGE);
    *ret = memory;
    return 0;
}

static void fake_unreserve(struct mz_engine *engine, struct mz_memory *memory)
{
    (void)engine;
    mz_os_unreserve(memory->base, memory->bytes);
    free(memory);
}

static void *fake_base(struct mz_memory *memory)
{
    return memory->base;
}

static int fake_commit(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    (void)engine;
    uint64_t lo = down(offset), hi = up(offset + bytes);
    return lo == hi ? 0 : mz_os_populate((char *)memory->base + lo, hi - lo);
}

static _Atomic unsigned releases;

unsigned fake_engine_releases(void)
{
    return atomic_load(&releases);
}

static int fake_release(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    (void)engine;
    uint64_t lo = up(offset), hi = down(offset + bytes);
    atomic_fetch_add(&releases, 1);
    return lo >= hi ? 0 : mz_os_release((char *)memory->base + lo, hi - lo);
}

static int fake_counted(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                        uint64_t *ret_resident, uint64_t *ret_swapped)
{
    (void)engine;
    return mz_os_resident((char *)memory->base + offset, bytes, ret_resident, ret_swapped);
}

static void *fake_place(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes)
{
    (void)engine;
    (void)bytes;
    return (char *)memory->base + offset;
}

static int fake_place_done(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                           void *place, bool write)
{
    (void)engine, (void)memory, (void)offset, (void)bytes, (void)place, (void)write;
    return 0;
}

static void fake_trap(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes, bool none)
{
    (void)engine;
    uint64_t lo = up(offset), hi = down(offset + bytes);
    if (lo < hi && mz_os_protect((char *)memory->base + lo, hi - lo, none) != 0 && !none) /* planned to fail: not this one */
        (void)mprotect((char *)memory->base + lo, hi - lo, PROT_READ | PROT_WRITE);
}

/* A block of our own: the thread sanitizer need not look at each byte, only at the copies in and out. */
__attribute__((no_sanitize("thread"))) static void flip_block(uint8_t *block, uint64_t bytes, uint8_t flip)
{
    for (uint64_t i = 0; i < bytes; i++)
        block[i] ^= flip;
}

static int fake_pack(struct mz_engine *engine, const struct mz_form *form, uint64_t offset, const void *plain,
                     uint64_t bytes, void *place)
{
    (void)engine;
    (void)offset;
    for (uint64_t at = 0, n; at < bytes; at += n) {
        uint8_t block[GRANULE];
        n = bytes - at < GRANULE ? bytes - at : GRANULE;
        memcpy(block, (const uint8_t *)plain + at, n);
        flip_block(block, n, form->flip);
        memcpy((uint8_t *)place + at, block, n);
    }
    return 0;
}

static uint64_t fake_cut(struct mz_engine *engine, const struct mz_form *form)
{
    (void)engine;
    (void)form;
    return GRANULE;
}

#define FAKE_OPS(with_trap)                                                                                  \
    {                                                                                                        \
        .name = "fake",                                                                                      \
        .traits = {.granule_bytes = GRANULE, .cpu_visible = true, .zero_filled = true, .contiguous = true},  \
        .reserve = fake_reserve, .unreserve = fake_unreserve, .base = fake_base, .commit = fake_commit,      \
        .release = fake_release, .counted = fake_counted, .place = fake_place,                               \
        .place_done = fake_place_done, .trap = with_trap, .pack = fake_pack, .form_cut_bytes = fake_cut,     \
    }

struct mz_engine *fake_engine(void)
{
    static const struct mz_engine_ops ops = FAKE_OPS(fake_trap);
    static struct mz_engine engine = {.ops = &ops};

    return &engine;
}

struct mz_engine *fake_engine_without_traps(void)
{
    static const struct mz_engine_ops ops = FAKE_OPS(NULL);
    static struct mz_engine engine = {.ops = &ops};

    return &engine;
}

const struct mz_form *fake_form(void)
{
    static const struct mz_form form = {.flip = 0x5A};

    return &form;
}
