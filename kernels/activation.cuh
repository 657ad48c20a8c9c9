/* activation - the activations of 10_activation.h on the device, for every epilogue.
 *
 * Owner    -
 * Thread   device code.
 * Limits   f32 in and out; exp and erf are the device's own (1 to 2 units in the last
 *          place of f32, far below one of f16).
 * Fails    never; NaN stays NaN.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_ACTIVATION_CUH
#define VX_KERNELS_ACTIVATION_CUH

#include "kernels/10_activation.h"
#include "kernels/device.h"

/* Numbers of 16 bits do not see the difference: 2 units in the last place of f32 for the
 * power, and as much for the quotient. */
#if VX_CUDA && (VX_TYPE == VX_TYPE_F16 || VX_TYPE == VX_TYPE_BF16)
VX_DEVICE float vx_exp(float x)
{
    return __expf(x);
}
VX_DEVICE float vx_quotient(float a, float b)
{
    return __fdividef(a, b);
}
#elif VX_CUDA
VX_DEVICE float vx_exp(float x)
{
    return expf(x);
}
#endif
#if VX_CUDA
VX_DEVICE float vx_erf(float x)
{
    return erff(x);
}
#else
VX_DEVICE float vx_exp(float x)
{
    return __builtin_expf(x);
}
VX_DEVICE float vx_erf(float x)
{
    return __builtin_erff(x);
}
#endif

#if !VX_CUDA || (VX_TYPE != VX_TYPE_F16 && VX_TYPE != VX_TYPE_BF16)
VX_DEVICE float vx_quotient(float a, float b)
{
    return a / b;
}
#endif

/* The first two cost a comparison each.  A switch over all of them is a jump for each
 * number: it took longer than everything else of an epilogue. */
VX_DEVICE float vx_activate(int32_t activation, float x)
{
    if (activation == VX_ACTIVATION_RELU && x < 0.0f) x = 0.0f;
    if (activation <= VX_ACTIVATION_RELU) return x;
    if (activation == VX_ACTIVATION_SILU) return vx_quotient(x, 1.0f + vx_exp(-x));
    if (activation == VX_ACTIVATION_GELU)
        return 0.5f * x * (1.0f + vx_erf(x * 0.70710678f));
    return vx_quotient(1.0f, 1.0f + vx_exp(-x));
}

#endif
