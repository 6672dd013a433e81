/* The attention kernel for NEON. The file is compiled with that instruction set; where it is not, there is no
 * kernel. */
#include "attn/attn_kernel.h"

#if defined(__aarch64__)
#include "attn/attn_vec_neon.h"

#include "attn/attn_kernel.inc.h"

const struct mz_attn_kernel *const mz_attn_kernel_neon = &kernel;
#else
const struct mz_attn_kernel *const mz_attn_kernel_neon = NULL;
#endif
