/* The attention kernel in portable C: what the others are tested against. */
#include "attn/attn_vec_plain.h"

#include "attn/attn_kernel.inc.h"

const struct mz_attn_kernel *const mz_attn_kernel_plain = &kernel;
