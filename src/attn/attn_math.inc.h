/*
 * What the kernel does with logits, on vectors: exp, tanh, masks. Included by attn_kernel.inc.h.
 */
#include <float.h>

/*
 * exp(x) for x <= 0: 0 below -87.3, where the result would be subnormal; NaN stays NaN. exp(r) = 1 + r + r^2
 * p(r) on |r| <= ln(2) / 2 with p interpolated at Chebyshev nodes, 1.1e-8 off; with rounding at most 2 ulp
 * (1.2e-7 relative).
 */
INLINE vf exp_of_negative(vf x)
{
    const vf lowest = vf_set(-87.3f);
    vf y = vf_max(lowest, x);
    vf n = vf_round(vf_mul(y, vf_set(1.44269504f)));
    vf r = vf_fma(n, vf_set(-0.693359375f), y); /* ln 2 in two parts: the first times n is exact */
    vf p;

    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    p = vf_fma(vf_set(1.39261836e-3f), r, vf_set(8.36317905e-3f));
    p = vf_fma(p, r, vf_set(4.16665546e-2f));
    p = vf_fma(p, r, vf_set(1.66665770e-1f));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_add(vf_fma(vf_mul(r, r), p, r), vf_set(1.0f));
    return vf_if_less(x, lowest, vf_set(0.0f), vf_pow2_mul(p, n));
}

/* tanh, at most 4e-7 relative: an odd polynomial (1.7e-8 off) below 0.625, else by exp(-2|x|). */
INLINE vf tanh_of(vf x)
{
    vf z = vf_mul(x, x), size = vf_abs(x), p, e, far;

    p = vf_fma(vf_set(-6.09671436e-3f), z, vf_set(2.09971792e-2f));
    p = vf_fma(p, z, vf_set(-5.38509096e-2f));
    p = vf_fma(p, z, vf_set(1.33327697e-1f));
    p = vf_fma(p, z, vf_set(-3.33333289e-1f));
    e = exp_of_negative(vf_mul(size, vf_set(-2.0f)));
    far = vf_div(vf_sub(vf_set(1.0f), e), vf_add(vf_set(1.0f), e));
    far = vf_if_less(x, vf_set(0.0f), vf_sub(vf_set(0.0f), far), far);
    return vf_if_less(size, vf_set(0.625f), vf_fma(vf_mul(x, z), p, x), far);
}

/* The logit with its mask; -infinity where masked, whatever the logit is. */
INLINE vf add_bias(vf x, vf bias)
{
    return vf_if_less(bias, vf_set(-FLT_MAX), vf_set(-INFINITY), vf_add(x, bias));
}

/* What to subtract before exp: a row without any position so far must not give infinity - infinity. */
INLINE vf safe_max(vf m)
{
    return vf_if_less(m, vf_set(-FLT_MAX), vf_set(0.0f), m);
}
