/* 11_linear - the same matrix for every voxel: a convolution with one offset and no map.
 *
 * Math     out[i,:] = act(bias + in[i,:] . weight)
 * Shapes   in (N,Ci)  weight (Ci,Co)  bias (Co) or NULL  out (N,Co)
 * Types    f32 everywhere; the reference sums in f64 and rounds once.
 * Idea     One dense matrix product; the activation is applied before the row leaves the
 *          cache.
 * Steps    1 out = bias
 *          2 out += in . weight
 *          3 activation
 * Tiles    rows of out per tile.
 * Cost     flops 2*N*Ci*Co; bytes 4*(N*(Ci + Co) + Ci*Co).
 * Limits   out overlaps no input.
 * Order    bias first, then channels in rising ci (on a GPU as 06_conv_masked).
 * Oracle   11_linear_ref.c, tests/unit/engine/cpu/device/test_cpu_ops.c.
 * Source   torch.nn.Linear with the weight transposed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_LINEAR_H
#define VX_KERNELS_LINEAR_H

#include "kernels/activation.h"

#include <stdint.h>

struct vx_linear_args {
    int64_t n;
    int32_t ci, co;
    const float *in;     /* (N, Ci) */
    const float *weight; /* (Ci, Co) */
    const float *bias;   /* (Co) or NULL */
    enum vx_activation activation;
    float *out;                    /* (N, Co); never overlaps in */
    int32_t in_stride, out_stride; /* elements from a row to the next; 0: Ci, Co */
};

void vx_linear_ref(const struct vx_linear_args *args);

#endif
