/* The attention kernel for AVX2. The file is compiled with that instruction set; where it is not, there is no
 * kernel. */
#include "attn/attn_kernel.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "attn/attn_vec_avx2.h"

#include "attn/attn_kernel.inc.h"

const struct mz_attn_kernel *const mz_attn_kernel_avx2 = &kernel;
#else
const struct mz_attn_kernel *const mz_attn_kernel_avx2 = NULL;
#endif
