/* 04_conv_explicit - sparse convolution over any map, as one matrix product per offset.
 *
 * Math     out[i,:] = act(bias + sum over v with nbr[v,i] >= 0 of
 *                         in[nbr[v,i],:] . weight[v,:,:])
 *          with groups, channel o of out reads only the channels of in of its own group:
 *          in[nbr[v,i], g*(Ci/groups) + k] * weight[v,k,o] for k < Ci/groups,
 *          g = o / (Co/groups)
 * Shapes   in (M,Ci)  weight (V,Ci/groups,Co)  bias (Co) or NULL  nbr (V,N) i32, -1 empty
 *          out (N,Co)
 *          M rows are read and N written: the same set in a submanifold convolution,
 *          another one where a layer changes the set
 * Types    f32 everywhere; the reference sums in f64 and rounds once.
 * Idea     For one offset the rows that have a neighbour are gathered into a dense panel;
 *          panel times weight[v] is an ordinary matrix product, and its rows are added to
 *          the rows of out that they belong to.  Only rows with a neighbour are
 *          multiplied: the gather is the only overhead.  Submanifold, strided, inverse and
 *          transposed convolutions differ in their maps alone.  A group is a convolution
 *          of its own channels.  Depthwise (groups = Ci = Co) has no matrix: a row of out
 *          is summed in registers from its neighbours times a row of weights each.
 * Steps    1 out = bias
 *          2 for each v: compact the present rows, gather, multiply, scatter-add
 *          3 activation
 * Tiles    rows of out per tile, so that gathered panel and tile stay in the nearest
 *          cache.
 * Cost     flops 2*Ci*Co/groups*pairs;
 *          bytes 4*(pairs*(Ci + 2*Co) + V*Ci*Co/groups + N*Co) + 4*V*N.
 * Limits   1 <= V <= 343; every entry of nbr < M; Ci and Co multiples of groups; out
 *          overlaps no input.
 * Order    bias first, then offsets in rising v, channels in rising ci: the bits of a row
 *          depend on nothing but its own inputs.
 * Oracle   04_conv_explicit_ref.c, tests/unit/engine/cpu/device/test_cpu_ops.c; groups and
 *          M other than N: test_cpu_sets.c.
 * Source   Graham, Engelcke, van der Maaten, CVPR 2018 (submanifold); Choy et al., CVPR
 *          2019 (gather, multiply, scatter, other sets); Howard et al. 2017 (depthwise).
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
    int32_t groups;      /* 0 and 1: dense */
    const int32_t *nbr;  /* (V, N), -1 empty */
    const float *in;     /* (M, Ci) */
    const float *weight; /* (V, Ci/groups, Co) */
    const float *bias;   /* (Co) or NULL */
    enum vx_activation activation;
    float *out;                    /* (N, Co); never overlaps in */
    int32_t in_stride, out_stride; /* elements from a row to the next; 0: Ci, Co */
};

void vx_conv_explicit_ref(const struct vx_conv_args *args);

#endif
