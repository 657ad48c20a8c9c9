/* 24_conv_group - a convolution in groups of channels, depthwise too, through any map.
 *
 * Math     out[i, g*Cog + o] = act(sum + bias[g*Cog + o] + residual[i, g*Cog + o])
 *          sum = sum over v with nbr[i,v] >= 0 and k < Cig, of
 *                in[nbr[i,v], g*Cig + k] * weight[v, k, g*Cog + o]
 * Shapes   in (M,Cip)  nbr (N,S) i32, -1 empty, S >= V  weight (V,Cig,Cp)  bias (Cp) f32 or
 *          NULL  residual, out (N,Cp); G groups of Cig channels in and Cog out
 * Types    in, weight, residual and out VX_TYPE (F32, F16, BF16; TF32 as F32); bias and
 *          sums f32, one rounding at the end.
 * Idea     Groups leave a matrix unit little to do: with C channels in groups of one a
 *          product of 16 x 16 would be 1/16 work and the rest zeros.  So a thread has 16
 *          bytes of the channels of a few rows, and weights are laid out along the
 *          channels of out, so that one load has them for all groups.  Depthwise, the
 *          channels of in are those of out: a vector is multiplied by a vector.
 * Steps    1 entries of the map, four offsets at a time (depthwise), or one
 *          2 multiply-add   3 bias, residual, activation, store
 * Tiles    pointwise.h.
 * Cost     flops 2*pairs*Cig*G*Cog; bytes: neighbours' rows (depthwise: once each), 4*N*S,
 *          out and residual; weights from cache.
 * Limits   1 <= V <= 343; every entry of nbr < M.  Tensors, bias too, begin at multiples of
 *          16 bytes; padding of in, weight and bias is not used, that of out is 0.  out may
 *          be residual and overlaps nothing else.  Few groups of many channels are better
 *          computed as convolutions of their own.
 * Order    one chain of sums from 0 on, v rising and then k; then bias, then residual.  The
 *          bits of a row depend on its own neighbours alone.
 * Oracle   24_conv_group_ref.c, tests/oracle/cases_windows.c.
 * Source   Krizhevsky et al. 2012 (groups); Chollet, Xception, CVPR 2017 (depthwise); torch's
 *          groups of Conv3d.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CONV_GROUP_H
#define VX_KERNELS_CONV_GROUP_H

#include "kernels/activation.h"

#include <stdint.h>

struct vx_conv_group_args {
    int64_t n;
    int32_t v, nbr_stride; /* offsets, and entries of a row of nbr */
    int32_t groups;
    int32_t cig, cog;     /* channels of one group, in and out */
    int32_t in_cp, cp;    /* channels of a row of in, and of out */
    int32_t activation;   /* enum vx_activation */
    const int32_t *nbr;   /* (N, nbr_stride), -1 empty */
    const void *in;       /* (M, in_cp) */
    const void *weight;   /* (V, cig, cp) */
    const float *bias;    /* (cp) or NULL */
    const void *residual; /* (N, cp) or NULL */
    void *out;            /* (N, cp); may be residual */
};

#endif
