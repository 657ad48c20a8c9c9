/* 04_conv_explicit - submanifold sparse convolution as one matrix product per offset.
 *
 * Math     out[i,:] = act(bias + sum over v with nbr[v,i] >= 0 of
 *                         in[nbr[v,i],:] . weight[v,:,:])
 * Shapes   in (N,Ci)  weight (V,Ci,Co)  bias (Co) or NULL  nbr (V,N) i32, -1 empty
 *          out (N,Co)
 * Types    f32 everywhere; the reference sums in f64 and rounds once.
 * Idea     For one offset the rows that have a neighbour are gathered into a dense panel;
 *          panel times weight[v] is an ordinary matrix product, and its rows are added to
 *          the rows of out that they belong to.  Only rows with a neighbour are
 *          multiplied: the gather is the only overhead.
 * Steps    1 out = bias
 *          2 for each v: compact the present rows, gather, multiply, scatter-add
 *          3 activation
 * Tiles    rows of out per tile, so that gathered panel and tile stay in the nearest
 *          cache.
 * Cost     flops 2*Ci*Co*pairs; bytes 4*(pairs*(Ci + 2*Co) + V*Ci*Co + N*Co) + 4*V*N.
 * Limits   1 <= V <= 343; every entry of nbr < N; out overlaps no input.
 * Order    bias first, then offsets in rising v, channels in rising ci: the bits of a row
 *          depend on nothing but its own inputs.
 * Oracle   04_conv_explicit_ref.c, tests/unit/engine/cpu/device/test_cpu_ops.c.
 * Source   Graham, Engelcke, van der Maaten, CVPR 2018 (submanifold); Choy et al., CVPR
 *          2019 (gather, multiply, scatter).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CONV_EXPLICIT_H
#define VX_KERNELS_CONV_EXPLICIT_H

#include "kernels/activation.h"

#include <stdint.h>

struct vx_conv_args {
    int64_t n;
    int32_t v, ci, co;
    const int32_t *nbr;  /* (V, N), -1 empty */
    const float *in;     /* (N, Ci) */
    const float *weight; /* (V, Ci, Co) */
    const float *bias;   /* (Co) or NULL */
    enum vx_activation activation;
    float *out; /* (N, Co); never overlaps in */
};

void vx_conv_explicit_ref(const struct vx_conv_args *args);

#endif
