/* 20_curve - curves on each number that no other kernel applies: leaky_relu, softplus, tanh.
 *
 * Math     leaky_relu  y = x for x > 0, else slope * x
 *          softplus    y = log(1 + exp(x)), and x for x > 20: beta 1 and threshold 20, as
 *                      torch.nn.Softplus()
 *          tanh        y = tanh(x)
 * Shapes   in (N,C)  out (N,C), may be in.
 * Types    f32; the reference computes in f64 and rounds once.
 * Idea     10_activation has the curves that convolutions apply before they store: a new
 *          one there is a new text of every convolution.  These follow few layers and
 *          need a parameter, so they are a pass of their own.
 * Steps    1 read   2 compute   3 write.
 * Tiles    none: any split of N*C is legal.
 * Cost     flops 2 (leaky_relu) to 35 (softplus) per element; bytes 8*N*C.
 * Limits   N*C < 2^63.  NaN stays NaN; slope is finite.
 * Order    elements are independent.
 * Oracle   20_curve_ref.c, tests/unit/engine/cpu/device/test_cpu_sets.c.
 * Source   torch.nn.LeakyReLU, Softplus, Tanh.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CURVE_H
#define VX_KERNELS_CURVE_H

#include <stdint.h>

enum vx_curve { VX_CURVE_LEAKY_RELU, VX_CURVE_SOFTPLUS, VX_CURVE_TANH };

struct vx_curve_args {
    int64_t n;
    int32_t c;
    enum vx_curve curve;
    float slope;     /* of leaky_relu below 0 */
    const float *in; /* (N, C) */
    float *out;      /* (N, C); may be in */
};

/* One element in double. */
double vx_curve_ref_one(enum vx_curve curve, double slope, double x);
void vx_curve_ref(const struct vx_curve_args *args);

#endif
