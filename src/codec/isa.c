/*
 * Which kernels are used: the best that this CPU runs, found at the first call, or the ones that a test
 * selected.
 *
 * `current` is the only variable of this room. Any thread may set it to what it found (all find the same);
 * the tables it points to are constant, so no order has to be kept with other memory.
 */
#include "codec/codec_int.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
static const struct mz_codec_kernels avx512 = {
    .isa = "avx512",
    .q8_encode = mz_q8_encode_avx512,
    .q8_decode = mz_q8_decode_avx512,
    .flex_encode = mz_flex_encode_avx512,
    .flex_decode = mz_flex_decode_avx512,
    .hash = mz_hash_avx512,
};

static const struct mz_codec_kernels avx2 = {
    .isa = "avx2",
    .q8_encode = mz_q8_encode_avx2,
    .q8_decode = mz_q8_decode_avx2,
    .flex_encode = mz_flex_encode_avx2,
    .flex_decode = mz_flex_decode_avx2,
    .hash = mz_hash_avx2,
};
#elif defined(__aarch64__)
static const struct mz_codec_kernels neon = {
    .isa = "neon",
    .q8_encode = mz_q8_encode_neon,
    .q8_decode = mz_q8_decode_neon,
    .flex_encode = mz_flex_encode_neon,
    .flex_decode = mz_flex_decode_neon,
    .hash = mz_hash_baseline,
};
#endif

static const struct mz_codec_kernels portable = {
    .isa = "portable",
    .q8_encode = mz_q8_encode_portable,
    .q8_decode = mz_q8_decode_portable,
    .flex_encode = mz_flex_encode_portable,
    .flex_decode = mz_flex_decode_portable,
    .hash = mz_hash_baseline,
};

/* Best first. */
static const struct mz_codec_kernels *const kernels_of_build[] = {
#if defined(__x86_64__)
    &avx512,
    &avx2,
#elif defined(__aarch64__)
    &neon,
#endif
    &portable,
};

#define COUNT (sizeof(kernels_of_build) / sizeof(kernels_of_build[0]))

static _Atomic(const struct mz_codec_kernels *) current;

#if defined(__x86_64__)
/* Not among the names that every compiler's __builtin_cpu_supports knows. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}
#endif

static bool cpu_runs(const struct mz_codec_kernels *kernels)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool has_avx2 = __builtin_cpu_supports("avx2") && has_f16c();
    if (kernels == &avx2)
        return has_avx2;
    if (kernels == &avx512)
        return has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    (void)kernels;
    return true; /* NEON with fp16 conversion is part of every aarch64 */
}

static const struct mz_codec_kernels *best(void)
{
    for (size_t i = 0; i < COUNT; i++)
        if (cpu_runs(kernels_of_build[i]))
            return kernels_of_build[i];
    return &portable;
}

const struct mz_codec_kernels *mz_codec_kernels(void)
{
    const struct mz_codec_kernels *kernels = atomic_load_explicit(&current, memory_order_relaxed);
    if (!kernels) {
        kernels = best();
        atomic_store_explicit(&current, kernels, memory_order_relaxed);
    }
    return kernels;
}

int mz_codec_isa_select(const char *name)
{
    if (!name) {
        atomic_store_explicit(&current, best(), memory_order_relaxed);
        return 0;
    }
    for (size_t i = 0; i < COUNT; i++) {
        if (strcmp(kernels_of_build[i]->isa, name) != 0)
            continue;
        if (!cpu_runs(kernels_of_build[i]))
            return -ENOTSUP;
        atomic_store_explicit(&current, kernels_of_build[i], memory_order_relaxed);
        return 0;
    }
    return -ENOENT;
}

const char *mz_codec_isa(void)
{
    return mz_codec_kernels()->isa;
}

const char *mz_codec_isa_at(unsigned i)
{
    return i < COUNT ? kernels_of_build[i]->isa : NULL;
}
