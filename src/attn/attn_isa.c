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

static bool processor_has(enum mz_attn_isa isa)
{
    return isa == MZ_ATTN_ISA_AVX512
               ? has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               : isa == MZ_ATTN_ISA_AVX2 && has_avx2();
}
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

/* Every one has NEON. FMLAL was added later, after fp16 conversions and scalars, which the compiler may use
 * with it. */
static bool processor_has(enum mz_attn_isa isa)
{
    const unsigned long fp16 = HWCAP_FPHP | HWCAP_ASIMDHP | HWCAP_ASIMDFHM;

    return isa == MZ_ATTN_ISA_NEON || (isa == MZ_ATTN_ISA_NEON_FP16 && (getauxval(AT_HWCAP) & fp16) == fp16);
}
#else
static bool processor_has(enum mz_attn_isa isa)
{
    (void)isa;
    return false;
}
#endif

/* BEST is whichever the others give. */
static const struct {
    const char *name;
    const struct mz_attn_kernel *const *kernel;
} isas[MZ_ATTN_ISA_COUNT] = {
    [MZ_ATTN_ISA_BEST] = {"best", NULL},
    [MZ_ATTN_ISA_PLAIN] = {"plain", &mz_attn_kernel_plain},
    [MZ_ATTN_ISA_NEON] = {"neon", &mz_attn_kernel_neon},
    [MZ_ATTN_ISA_NEON_FP16] = {"neon-fp16", &mz_attn_kernel_neon_fp16},
    [MZ_ATTN_ISA_AVX2] = {"avx2", &mz_attn_kernel_avx2},
    [MZ_ATTN_ISA_AVX512] = {"avx512", &mz_attn_kernel_avx512},
};

static bool is_isa(enum mz_attn_isa isa)
{
    return (unsigned)isa < MZ_ATTN_ISA_COUNT;
}

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
    if (isa == MZ_ATTN_ISA_BEST || isa == MZ_ATTN_ISA_PLAIN)
        return true;
    return is_isa(isa) && *isas[isa].kernel && processor_has(isa);
}

const char *mz_attn_isa_name(enum mz_attn_isa isa)
{
    return is_isa(isa) ? isas[isa].name : "unknown";
}

const struct mz_attn_kernel *mz_attn_kernel_get(enum mz_attn_isa isa)
{
    if (isa == MZ_ATTN_ISA_BEST)
        isa = mz_attn_isa_best();
    return is_isa(isa) ? *isas[isa].kernel : NULL;
}

/*
 * Frozen from bench_attn, two threads of a Zen 4 against ggml-cpu 0.25.3 compiled for the instruction set at
 * hand; rows 1..512, 1k and 8k tokens, 16/8 heads of 128, 32/8 and 9/3 of 64, 8/1 of 256. From 64 rows on
 * ggml multiplies fp16 in tiles, but not q8_0, which it takes row by row for every query row.
 *
 * - AVX-512: fp16 2.1 to 9.8 times as fast below 64 rows, 1.7 to 3.4 from there; q8_0 3.4 to 15 times.
 *   One row over a single chunk: SmolLM2-135M (9/3 heads of 64) generates its first 256 tokens 3 to 9 %
 * slower than with ggml's, Qwen3-0.6B (16/8 of 128) as fast; with two chunks both are level or ahead. So that
 * is left to ggml.
 * - AVX2: fp16 1.4 to 9.7 times as fast below 64 rows, 1.2 to 2.2 from there; q8_0 3.4 to 6.1 times.
 * - plain: 0.06 to 0.3: for processors that have none of the others, and for tests.
 * - NEON: runs under an emulator only so far, which says nothing about time: ggml's is taken.
 */
static const struct {
    enum mz_attn_isa isa;
    uint32_t one_row_above; /* a single query row from more cached tokens than this; several always */
} wins[] = {
    {MZ_ATTN_ISA_AVX512, MZ_ATTN_CHUNK}, {MZ_ATTN_ISA_AVX2, MZ_ATTN_CHUNK}, /* as for AVX-512 */
};

bool mz_attn_wins(const struct mz_attn *a, enum mz_attn_isa isa)
{
    if (isa == MZ_ATTN_ISA_BEST)
        isa = mz_attn_isa_best();
    for (unsigned i = 0; i < sizeof(wins) / sizeof(wins[0]); i++) {
        if (wins[i].isa == isa)
            return a->n_rows != 1 || a->n_kv > wins[i].one_row_above;
    }
    return false;
}
