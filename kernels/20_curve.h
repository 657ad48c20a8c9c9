/* 20_curve - curves on each number that no other kernel applies: leaky_relu, softplus, tanh.
 *
 * Math     leaky_relu  y = x for x > 0, else slope * x
 *          softplus    y = log(1 + exp(x)), and x for x > 20: beta 1 and threshold 20, as
 *                      torch.nn.Softplus()
 *          tanh        y = tanh(x)
 * Shapes   in (N,C)  out (N,C), may be in.
 * Types    f32; the reference computes in f64 and rounds once.  Device: VX_TYPE (F32, F16,
 *          BF16; TF32 as F32) in rows of Cp channels, computed in f32, one rounding.
 * Idea     10_activation has the curves that convolutions apply before they store: a new
 *          one there is a new text of every convolution.  These follow few layers and
 *          need a parameter, so they are a pass of their own.
 * Steps    1 read   2 compute   3 write.
 * Tiles    none: any split of N*C is legal.  Device: pointwise.h.
 * Cost     flops 2 (leaky_relu) to 35 (softplus) per element; bytes 8*N*C (device: read and
 *          write of N*Cp elements).
 * Limits   N*C < 2^63.  NaN stays NaN; slope is finite.  Device: Cp a multiple of 16; padded
 *          channels get the curve of what they hold, which is finite.
 * Order    elements are independent.
 * Oracle   20_curve_ref.c, tests/unit/engine/cpu/device/test_cpu_sets.c; device:
 *          20_curve_device_ref.c, tests/oracle/cases_pointwise.c.
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

struct vx_curve_device_args {
    int64_t n;
    int32_t cp;
    int32_t curve;  /* enum vx_curve */
    float slope;    /* of leaky_relu below 0 */
    const void *in; /* (N, Cp) */
    void *out;      /* (N, Cp); may be in */
};

/* One element in double. */
double vx_curve_ref_one(enum vx_curve curve, double slope, double x);
void vx_curve_ref(const struct vx_curve_args *args);

#endif
