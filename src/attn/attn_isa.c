/* Which instruction sets there are, which this processor has, and for which shapes the kernel beats
 * ggml-cpu's. */
#include "attn/attn.h"

#include <stddef.h>

#include "attn/attn_kernel.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static bool has_avx2(void)
{
    unsigned a, b, c, d;

    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
static bool has_avx2(void)
{
    return false;
}

static bool has_avx512(void)
{
    return false;
}
#endif

static const char *const names[MZ_ATTN_ISA_COUNT] = {
    [MZ_ATTN_ISA_BEST] = "best", [MZ_ATTN_ISA_PLAIN] = "plain",   [MZ_ATTN_ISA_NEON] = "neon",
    [MZ_ATTN_ISA_AVX2] = "avx2", [MZ_ATTN_ISA_AVX512] = "avx512",
};

enum mz_attn_isa mz_attn_isa_best(void)
{
    for (int isa = MZ_ATTN_ISA_COUNT - 1; isa > MZ_ATTN_ISA_PLAIN; isa--) {
        if (mz_attn_isa_usable((enum mz_attn_isa)isa))
            return (enum mz_attn_isa)isa;
    }
    return MZ_ATTN_ISA_PLAIN;
}

bool mz_attn_isa_usable(enum mz_attn_isa isa)
{
    switch (isa) {
    case MZ_ATTN_ISA_BEST:
    case MZ_ATTN_ISA_PLAIN:
        return true;
    case MZ_ATTN_ISA_NEON: /* every processor that runs AArch64 has it */
        return mz_attn_kernel_neon != NULL;
    case MZ_ATTN_ISA_AVX2:
        return mz_attn_kernel_avx2 && has_avx2();
    case MZ_ATTN_ISA_AVX512:
        return mz_attn_kernel_avx512 && has_avx512();
    default:
        return false;
    }
}

const char *mz_attn_isa_name(enum mz_attn_isa isa)
{
    return isa >= 0 && isa < MZ_ATTN_ISA_COUNT ? names[isa] : "unknown";
}

const struct mz_attn_kernel *mz_attn_kernel_get(enum mz_attn_isa isa)
{
    switch (isa == MZ_ATTN_ISA_BEST ? mz_attn_isa_best() : isa) {
    case MZ_ATTN_ISA_PLAIN:
        return mz_attn_kernel_plain;
    case MZ_ATTN_ISA_NEON:
        return mz_attn_kernel_neon;
    case MZ_ATTN_ISA_AVX2:
        return mz_attn_kernel_avx2;
    case MZ_ATTN_ISA_AVX512:
        return mz_attn_kernel_avx512;
    default:
        return NULL;
    }
}

/*
 * Frozen from bench_attn, one thread, on a Xeon with AVX-512 against a ggml-cpu (0.25.3) compiled for that
 * processor; rows 1..512, 32 to 8k tokens, head sizes 40 to 576, 1 to 20 query heads per KV head. From 64
 * rows on ggml multiplies in tiles.
 *
 * - AVX-512: 1.5 to 40 times as fast everywhere; least with 64 rows, 16/8 heads, size 128.
 * - AVX2: 1.5 to 22 times below 64 rows; from there 1.06 to 1.5, but 0.8 to 1.0 with 16/8 heads, size 128.
 * Where AVX2 is what there is, ggml has no AVX-512 either: the true ratios are higher.
 * - plain: 0.06 to 0.3: for processors that have none of the others, and for tests.
 * - NEON: runs under an emulator only so far, which says nothing about time: ggml's is taken.
 */
static const struct {
    enum mz_attn_isa isa;
    uint32_t rows_max;       /* up to so many query rows */
    uint32_t dk_min, dk_max; /* and for these head sizes */
} wins[] = {
    {MZ_ATTN_ISA_AVX512, UINT32_MAX, 1, MZ_ATTN_HEAD_MAX},
    {MZ_ATTN_ISA_AVX2, 63, 1, MZ_ATTN_HEAD_MAX},
    {MZ_ATTN_ISA_AVX2, UINT32_MAX, 1, 96},
    {MZ_ATTN_ISA_AVX2, UINT32_MAX, 256, MZ_ATTN_HEAD_MAX},
};

bool mz_attn_wins(const struct mz_attn *a, enum mz_attn_isa isa)
{
    if (isa == MZ_ATTN_ISA_BEST)
        isa = mz_attn_isa_best();
    for (unsigned i = 0; i < sizeof(wins) / sizeof(wins[0]); i++) {
        if (wins[i].isa == isa && a->n_rows <= wins[i].rows_max && a->dk >= wins[i].dk_min &&
            a->dk <= wins[i].dk_max)
            return true;
    }
    return false;
}
