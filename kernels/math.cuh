/* math - exp, erf, log1p, tanh and square roots, for every vendor.
 *
 * NVIDIA's compilers bring them.  AMD's are in bitcode libraries of each ROCm release; a
 * kernel that needs none compiles with any clang that knows the architecture, so that
 * what LLVM does not make itself (erf, log1p, tanh) is written here.
 *
 * Owner    -
 * Thread   device code.
 * Limits   f32 in and out.  exp is the device's own, 1 to 2 units in the last place; ours
 *          were measured against double at 200,000 points: erf 1.2, tanh 1.3.
 * Fails    never; NaN stays NaN.
 * Oracle   those of the kernels that call them: 10_activation, 20_curve.
 * Source   coefficients: minimax fits of our own (Chebyshev nodes, Lawson's weights);
 *          log1p: W. Kahan's correction of log(1 + x).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MATH_CUH
#define VX_KERNELS_MATH_CUH

#include "kernels/device.h"

/* --- NVIDIA --- */
#if VX_CUDA
/* Numbers of 16 bits do not see the difference: 2 units in the last place of f32 for the
 * power, and as much for the quotient. */
#if VX_TYPE == VX_TYPE_F16 || VX_TYPE == VX_TYPE_BF16
VX_DEVICE float vx_exp(float x)
{
    return __expf(x);
}
VX_DEVICE float vx_quotient(float a, float b)
{
    return __fdividef(a, b);
}
#else
VX_DEVICE float vx_exp(float x)
{
    return expf(x);
}
VX_DEVICE float vx_quotient(float a, float b)
{
    return a / b;
}
#endif
VX_DEVICE float vx_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}
VX_DEVICE float vx_erf(float x)
{
    return erff(x);
}
VX_DEVICE float vx_log1p(float x)
{
    return log1pf(x);
}
VX_DEVICE float vx_tanh(float x)
{
    return tanhf(x);
}
VX_DEVICE float vx_sqrt(float x)
{
    return sqrtf(x);
}
VX_DEVICE double vx_sqrt_double(double x)
{
    return sqrt(x);
}

/* --- AMD --- */
#else
VX_DEVICE float vx_fma(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
VX_DEVICE float vx_exp(float x)
{
    return __builtin_expf(x);
}
VX_DEVICE float vx_quotient(float a, float b)
{
    return a / b;
}
VX_DEVICE float vx_sqrt(float x)
{
    return __builtin_sqrtf(x);
}
VX_DEVICE double vx_sqrt_double(double x)
{
    return __builtin_sqrt(x);
}

/* The polynomial with `count` coefficients, that of the highest power first. */
VX_DEVICE float vx_polynomial(const float *coefficients, const int count, float x)
{
    float sum = coefficients[0];
#pragma unroll
    for (int i = 1; i < count; i++) sum = vx_fma(sum, x, coefficients[i]);
    return sum;
}

/* |x| < 1: x + x P(x^2).  Up to 4: 1 - e^Q(|x|).  From there on it is 1, to half a unit. */
VX_DEVICE float vx_erf(float x)
{
    const float small[] = {7.889115e-05f,   -8.0208400e-04f, 5.189535e-03f,
                           -2.6854444e-02f, 1.12836000e-01f, -3.7612626e-01f,
                           1.2837917e-01f};
    const float large[] = {2.1213322e-07f,  -2.4754901e-05f, 4.6036183e-04f,
                           -4.2706495e-03f, 2.5348952e-02f,  -1.0860664e-01f,
                           -6.3306570e-01f, -1.1296494f,     2.0206780e-04f};
    const float size = __builtin_fabsf(x);
    if (size < 1.0f) return vx_fma(vx_polynomial(small, 7, x * x), x, x);
    const float rest = size < 4.0f ? vx_exp(vx_polynomial(large, 9, size)) : 0.0f;
    return x == x ? __builtin_copysignf(1.0f - rest, x) : x;
}

/* 1 + x loses digits of x; the quotient makes up for those that the logarithm saw. */
VX_DEVICE float vx_log1p(float x)
{
    const float whole = 1.0f + x;
    if (whole == 1.0f) return x;
    if (whole > 3.0e38f) return whole;
    return __builtin_logf(whole) * (x / (whole - 1.0f));
}

/* |x| < 0.6: x + x x^2 P(x^2). */
VX_DEVICE float vx_tanh(float x)
{
    const float small[] = {-5.9058510e-03f, 2.0805368e-02f, -5.3786680e-02f,
                           1.3331959e-01f, -3.3333300e-01f};
    const float size = __builtin_fabsf(x), square = x * x;
    if (size < 0.6f) return vx_fma(vx_polynomial(small, 5, square) * square, x, x);
    const float far = 1.0f - 2.0f / (vx_exp(2.0f * size) + 1.0f);
    return x == x ? __builtin_copysignf(far, x) : x;
}
#endif

#endif
