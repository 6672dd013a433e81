/* The attention kernel for NEON with FMLAL. The file is compiled with that instruction set; where it is not,
 * there is no kernel. */
#include "attn/attn_kernel.h"

#if defined(__ARM_FEATURE_FP16_FML)
#include "attn/attn_vec_neon_fp16.h"

#include "attn/attn_kernel.inc.h"

const struct mz_attn_kernel *const mz_attn_kernel_neon_fp16 = &kernel;
#else
const struct mz_attn_kernel *const mz_attn_kernel_neon_fp16 = NULL;
#endif
