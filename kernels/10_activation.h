/* 10_activation - the activations between layers, one number at a time.
 *
 * Math     none     y = x
 *          relu     y = max(x, 0)
 *          silu     y = x / (1 + exp(-x))
 *          gelu     y = x * (1 + erf(x / sqrt 2)) / 2, the exact one, as torch.nn.GELU()
 *          sigmoid  y = 1 / (1 + exp(-x))
 * Shapes   in (N,C)  out (N,C), may be in.
 * Types    f32 in and out.  Device: VX_TYPE (F32, F16, BF16; TF32 as F32) in rows of Cp
 *          channels, computed in f32, one rounding.
 * Idea     An activation is cheap beside any layer before it, but a pass over memory of
 *          its own costs as much as a narrow layer: other kernels take an activation and
 *          apply it before they store.
 * Steps    1 read   2 compute   3 write.
 * Tiles    none: any split of N*C is legal.  Device: pointwise.h.
 * Cost     flops about 1 (relu) to 30 (gelu) per element; bytes 8*N*C (device: read and
 *          write of N*Cp elements).
 * Limits   N*C < 2^63.  NaN stays NaN; relu of NaN is NaN, as in torch.  Device: Cp a
 *          multiple of 16; padded channels get the activation of what they hold, which is
 *          finite.
 * Order    elements are independent.
 * Oracle   10_activation_ref.c, tests/unit/engine/cpu/device/test_cpu_ops.c; device:
 *          10_activation_device_ref.c.
 * Source   SiLU: Elfwing et al. 2018; GELU: Hendrycks and Gimpel 2016.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_ACTIVATION_H
#define VX_KERNELS_ACTIVATION_H

#include "kernels/activation.h"

#include <stdint.h>

struct vx_activation_args {
    int64_t n;
    int32_t c;
    enum vx_activation activation;
    const float *in; /* (N, C) */
    float *out;      /* (N, C); may be in */
};

struct vx_activation_device_args {
    int64_t n;
    int32_t cp;
    int32_t activation; /* enum vx_activation */
    const void *in;     /* (N, Cp) */
    void *out;          /* (N, Cp); may be in */
};

void vx_activation_ref(const struct vx_activation_args *args);

#endif
