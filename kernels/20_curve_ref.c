/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/20_curve.h"

#include <math.h>

double vx_curve_ref_one(enum vx_curve curve, double slope, double x)
{
    switch (curve) {
    case VX_CURVE_LEAKY_RELU: return x > 0.0 ? x : slope * x;
    case VX_CURVE_SOFTPLUS: return x > 20.0 ? x : log1p(exp(x));
    case VX_CURVE_TANH: return tanh(x);
    }
    return NAN;
}

void vx_curve_ref(const struct vx_curve_args *args)
{
    for (int64_t e = 0; e < args->n * args->c; e++)
        args->out[e] = (float)vx_curve_ref_one(args->curve, (double)args->slope,
                                               (double)args->in[e]);
}
