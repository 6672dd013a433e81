/* Inside the CPU engine. */
#ifndef MZ_ENGINE_CPU_INT_H
#define MZ_ENGINE_CPU_INT_H

#include "engine/cpu/cpu.h"

struct mz_kernels;

struct mz_cpu {
    struct mz_engine engine;    /* first */
    struct mz_kernels *kernels; /* fixed; own lock. NULL without ggml */
};

/* ---- memory.c */
int mz_memory_reserve(struct mz_engine *engine, uint64_t bytes, bool persistent, struct mz_memory **ret);
void mz_memory_unreserve(struct mz_engine *engine, struct mz_memory *memory);
void *mz_memory_base(struct mz_memory *memory);
void mz_memory_claim(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes);
int mz_memory_commit(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes);
int mz_memory_release(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes);
int mz_memory_counted(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                      uint64_t *ret_resident, uint64_t *ret_swapped);
void *mz_memory_place(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes);
int mz_memory_place_done(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                         void *place, bool write);
void mz_memory_trap(struct mz_engine *engine, struct mz_memory *memory, uint64_t offset, uint64_t bytes,
                    bool none);

/* ---- pack.c */
int mz_kernels_create(struct mz_kernels **ret);
int mz_form_pack(struct mz_engine *engine, const struct mz_form *form, uint64_t offset, const void *plain,
                 uint64_t bytes, void *place);
uint64_t mz_form_cut_bytes(struct mz_engine *engine, const struct mz_form *form);

/* ---- compute.c */
int mz_stream_compute(struct mz_engine *engine, struct ggml_cgraph *graph, int first, int end);
void mz_stream_set_threads(struct mz_engine *engine, int threads);
void mz_stream_set_abort(struct mz_engine *engine, bool (*abort)(void *user), void *user);

#endif
