/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/10_activation.h"

#include <math.h>

#define SQRT_HALF 0.70710678118654752440

double vx_activation_ref_one(enum vx_activation activation, double x)
{
    switch (activation) {
    case VX_ACTIVATION_NONE: return x;
    case VX_ACTIVATION_RELU: return x < 0.0 ? 0.0 : x; /* NaN is not less */
    case VX_ACTIVATION_SILU: return x / (1.0 + exp(-x));
    /* erfc, because 1 + erf keeps no digits for x below -6. */
    case VX_ACTIVATION_GELU: return 0.5 * x * erfc(-x * SQRT_HALF);
    case VX_ACTIVATION_SIGMOID: return 1.0 / (1.0 + exp(-x));
    }
    return NAN;
}

void vx_activation_ref(const struct vx_activation_args *args)
{
    for (int64_t e = 0; e < args->n * args->c; e++)
        args->out[e] =
            (float)vx_activation_ref_one(args->activation, (double)args->in[e]);
}
