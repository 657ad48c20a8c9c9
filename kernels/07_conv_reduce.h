/* 07_conv_reduce - adds up the partial sums of a convolution, and does its epilogue.
 *
 * Math     conv_reduce  out[i,:] = act(sum + bias + residual[i,:])
 *                       sum      = sum over the groups g in which row i has an offset, of
 *                                  partial[g,i,:]
 *          pair_reduce  out[i,:] = act(sum + bias + residual[i,:])
 *                       sum      = sum over v with places[i,v] >= 0, of
 *                                  partial[places[i,v],:]
 * Shapes   conv_reduce  partial (G,N,Co) f32  masks (N,W) u32, NULL: all groups are there
 *          pair_reduce  partial (pairs,Co) f32  places (N,S) i32, S = V rounded up to 4
 *          both         bias (Co) f32 or NULL  residual, out (N,Co), each with a stride
 * Types    residual and out VX_TYPE (F32, F16, BF16; TF32 as F32); partial, bias and sums
 *          f32, one rounding at the end.
 * Idea     Splitting a convolution by groups of offsets gives more tiles, whose rows
 *          agree better on their offsets; adding the groups in a pass of its own, instead
 *          of with atomics, keeps the order of the sum.  A group in which a row has no
 *          offset may be unwritten and is not read.  A thread has four channels, whatever
 *          the type: the f32 partial sums are most of the bytes.
 * Steps    1 find which parts are there
 *          2 load them in rising order, several in flight
 *          3 bias, residual, activation, store
 * Tiles    pointwise.h.
 * Cost     bytes 4*Co*(parts that are there), out and residual N*Co elements each, masks
 *          4*N*W or places 4*N*S.
 * Limits   as 06_conv_masked; pairs < 2^31.  Tensors begin at multiples of 16 bytes.
 *          out may be residual.
 * Order    the sum begins with the first part that is there, and parts follow rising;
 *          then bias, then residual.  The bits of a row depend on its own parts alone.  A
 *          sum without parts is 0.
 * Oracle   07_conv_reduce_ref.c.
 * Source   split-K of dense matrix products, CUTLASS; spconv 2 (groups by mask).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CONV_REDUCE_H
#define VX_KERNELS_CONV_REDUCE_H

#include "kernels/06_conv_masked.h"

/* conv_reduce takes a struct vx_conv_device_args and reads only n, v, words, co, groups,
 * activation, used, masks, bias, partial, and residual and out with their strides. */

struct vx_pair_reduce_args {
    int64_t n;
    int32_t v;          /* offsets of the kernel */
    int32_t nbr_stride; /* entries of one row of places: V rounded up to 4 */
    int32_t co;         /* padded channels */
    int32_t residual_stride,
        out_stride;        /* elements from a row to the next: co, or more */
    int32_t activation;    /* enum vx_activation */
    int32_t used;          /* columns that are real, 0 = all: the rest become zeros */
    const int32_t *places; /* (N, nbr_stride): row of partial, or -1 */
    const float *partial;  /* (pairs, co) */
    const float *bias;     /* (co) or NULL */
    const void *residual;  /* (N, residual_stride) or NULL */
    void *out;             /* (N, out_stride); may be residual */
};

#endif
