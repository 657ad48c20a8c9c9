/* activation - the activations of 10_activation.h on the device, for every epilogue.
 *
 * Owner    -
 * Thread   device code.
 * Limits   f32 in and out; exp and erf as math.cuh says: 1 to 2 units in the last place of
 *          f32, far below one of f16.
 * Fails    never; NaN stays NaN.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_ACTIVATION_CUH
#define VX_KERNELS_ACTIVATION_CUH

#include "kernels/10_activation.h"
#include "kernels/math.cuh"

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
