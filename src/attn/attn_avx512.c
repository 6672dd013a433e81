/* The attention kernel for AVX-512. The file is compiled with that instruction set; where it is not, there is
 * no kernel. */
#include "attn/attn_kernel.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "attn/attn_vec_avx512.h"

#include "attn/attn_kernel.inc.h"

const struct mz_attn_kernel *const mz_attn_kernel_avx512 = &kernel;
#else
const struct mz_attn_kernel *const mz_attn_kernel_avx512 = NULL;
#endif
