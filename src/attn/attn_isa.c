/* Which instruction sets there are, which this processor has, and for which shapes the kernel beats ggml-cpu's. */
#include "attn/attn.h"

#include <stddef.h>

#include "attn/attn_kernel.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static bool has_avx2(void)
{
    unsigned a, b, c, d;

    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C);
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

bool mz_attn_wins(const struct mz_attn *a, enum mz_attn_isa isa)
{
    (void)a;
    (void)isa;
    return true;
}
