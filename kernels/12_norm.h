/* 12_norm - batch norm with folded statistics, and layer norm over a voxel's channels.
 *
 * Math     batch_norm  out[i,c] = act(in[i,c] * scale[c] + shift[c])
 *                      scale    = weight / sqrt(var + eps)
 *                      shift    = bias - mean * scale
 *          layer_norm  out[i,c] = act(x * weight[c] + bias[c])
 *                      x        = (in[i,c] - m) / sqrt(s + eps)
 *                      m        = mean over c of in[i,c]
 *                      s        = mean over c of (in[i,c] - m)^2
 * Shapes   in (N,C)  scale, shift (C)  weight (C) or NULL  bias (C) or NULL
 *          out (N,C), may be in
 * Types    f32; the references compute in f64 and round once.  Device: in and out (N,Cp)
 *          VX_TYPE (F32, F16, BF16; TF32 as F32); scale, shift, weight, bias and all sums
 *          f32, one rounding at the end.
 * Idea     Batch norm at inference is one multiply-add; most of them are folded into the
 *          layer before and never run.  Layer norm passes over a row twice while it is in
 *          registers or cache: first for the mean, then for the squares of differences,
 *          because E[x^2] - m^2 loses all digits when the mean is large.
 * Steps    1 statistics of the row (layer norm)
 *          2 multiply-add, activation, write
 * Tiles    rows.  Device: pointwise.h; layer norm gives a row to 2 to 32 lanes, and a row
 *          of more than 1024 channels to a block.
 * Cost     flops 2 (batch) or 7 (layer) per element; bytes 8*N*C (device: read and write
 *          of N*Cp elements, once each).
 * Limits   C >= 1, eps >= 0.  Device: Cp a multiple of 16, scale and shift (Cp) with
 *          zeros behind C, weight and bias (C); all begin at multiples of 16 bytes.
 *          Layer norm does not look at padded channels and writes 0 there; batch norm
 *          writes act(0 * what is there + 0).
 * Order    a row's sums depend on C alone (device: and on VX_TYPE).
 * Oracle   12_norm_ref.c, tests/unit/engine/cpu/device/test_cpu_ops.c; device: 12_norm_device_ref.c.
 * Source   Ioffe and Szegedy 2015; Ba, Kiros and Hinton 2016.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_NORM_H
#define VX_KERNELS_NORM_H

#include "kernels/activation.h"

#include <stdint.h>

struct vx_batch_norm_args {
    int64_t n;
    int32_t c;
    const float *in;    /* (N, C) */
    const float *scale; /* (C) */
    const float *shift; /* (C) */
    enum vx_activation activation;
    float *out;                    /* (N, C); may be in */
    int32_t in_stride, out_stride; /* elements from a row to the next; 0: C */
};

struct vx_layer_norm_args {
    int64_t n;
    int32_t c;
    float eps;
    const float *in;     /* (N, C) */
    const float *weight; /* (C) or NULL: 1 */
    const float *bias;   /* (C) or NULL: 0 */
    enum vx_activation activation;
    float *out;                    /* (N, C); may be in */
    int32_t in_stride, out_stride; /* elements from a row to the next; 0: C */
};

struct vx_batch_norm_device_args {
    int64_t n;
    int32_t cp;
    int32_t activation;            /* enum vx_activation */
    const void *in;                /* (N, Cp) */
    const float *scale;            /* (Cp) */
    const float *shift;            /* (Cp) */
    void *out;                     /* (N, Cp); may be in */
    int32_t in_stride, out_stride; /* elements from a row to the next; 0: Cp */
};

struct vx_layer_norm_device_args {
    int64_t n;
    int32_t c, cp;
    int32_t activation; /* enum vx_activation */
    float eps;
    const void *in;                /* (N, Cp) */
    const float *weight;           /* (C) or NULL: 1 */
    const float *bias;             /* (C) or NULL: 0 */
    void *out;                     /* (N, Cp); may be in */
    int32_t in_stride, out_stride; /* elements from a row to the next; 0: Cp */
};

void vx_batch_norm_ref(const struct vx_batch_norm_args *args);
void vx_layer_norm_ref(const struct vx_layer_norm_args *args);

#endif
