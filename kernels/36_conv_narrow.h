/* 36_conv_narrow - a convolution of few channels in, as of a network's first layer.
 *
 * Math     out[i, o] = act(sum + bias[o] + residual[i, o])
 *          sum = sum over v with nbr[i,v] >= 0 and k < Ci, of in[nbr[i,v], k] * weight[v, k, o]
 * Shapes   in (M,Cip)  nbr (N,S) i32, -1 empty, S >= V, a multiple of 4  weight (V,R,Cp), of
 *          which the first Ci of an offset's R rows are read  bias (Cp) f32 or NULL
 *          residual, out (N,Cp)
 * Types    in, weight, residual and out VX_TYPE (F16, BF16; TF32 as F32); bias and sums f32, one
 *          rounding at the end.
 * Idea     A matrix instruction takes VX_STEP terms of a sum.  Where an offset has 4 channels
 *          that is 4 offsets of a step of 16, not one and padding.  An operand is laid out so that a
 *          lane's terms are channels of one neighbour that follow each other in memory: it
 *          loads them from there into its registers.  No shared memory, no stages, and rows in
 *          any order: a tile of 32 rows skips what none of them has, and pairs are so few bytes
 *          here that to sort the rows by their masks costs more than it saves.
 * Steps    1 a block lays its VX_NARROW_COLUMNS columns of the weights out in shared memory as
 *            the lanes want their right operands, then stays
 *          2 a wave takes a tile of 32 rows: entries of the map, a group of steps ahead; the
 *            neighbours of a group, all in flight together; products
 *          3 bias, residual, activation, store
 * Tiles    VX_SLOT, the channels that an offset has room for; VX_OFFSETS at most, whose weights
 *          fill the shared memory.
 * Cost     flops 2*N*V*VX_SLOT*Co at most; bytes 4*N*S, a sector of 32 bytes for each pair from
 *          the caches, out and residual.
 * Limits   a device with matrix instructions for the type; Ci <= VX_SLOT; 1 <= V <= VX_OFFSETS; every entry of
 *          nbr < M; rows of in, weight, residual and out are multiples of 16 elements.  Channels of
 *          in from Ci to VX_SLOT are finite.  Padding of out becomes 0.  out may be
 *          residual and overlaps nothing else.
 * Order    of a sum: steps of VX_STEP terms, v from one group of steps to the next rising; within
 *          a step as the instruction adds.  The bits of a row depend on its own neighbours alone: a
 *          step without any adds zeros.
 * Oracle   36_conv_narrow_ref.c, tests/oracle/cases_windows.c.
 * Source   Choy et al. CVPR 2019 (MinkUNet: a first layer of 5^3 offsets and 3 or 4 channels); Yan
 *          et al. 2018 (SECOND: of 3^3 and 4).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CONV_NARROW_H
#define VX_KERNELS_CONV_NARROW_H

#include "kernels/activation.h"
#include "kernels/both.h"

#include <stdint.h>

#define VX_NARROW_THREADS 256
#define VX_NARROW_ROWS    32  /* of a wave's tile */
#define VX_NARROW_COLUMNS 32  /* of a block */
#define VX_NARROW_SHARE   256 /* rows of a block's first tiles */
struct vx_conv_narrow_args {
    int64_t n;
    int32_t v, nbr_stride;   /* offsets, and entries of a row of nbr */
    int32_t ci, weight_rows; /* R */
    int32_t co, cp;          /* channels of out, and with their padding */
    int32_t in_stride, out_stride, residual_stride; /* elements from a row to the next */
    int32_t activation;                             /* enum vx_activation */
    int32_t blocks;       /* on the device at once, for one block's columns */
    const int32_t *nbr;   /* (N, nbr_stride), -1 empty */
    const void *in;       /* (M, in_stride) */
    const void *weight;   /* (V, weight_rows, cp) */
    const float *bias;    /* (cp) or NULL */
    const void *residual; /* (N, residual_stride) or NULL */
    void *out;            /* (N, out_stride); may be residual */
};

/* Blocks in a row of the grid. */
VX_BOTH int64_t vx_conv_narrow_blocks(const struct vx_conv_narrow_args *args)
{
    const int64_t count = (args->n + VX_NARROW_SHARE - 1) / VX_NARROW_SHARE;
    return count < args->blocks ? count : args->blocks;
}

#if !defined(VX_DEVICE) /* the host's */
#include "kernels/number.h"

struct vx_tile;
struct vx_caps;
/* The smallest tile for real channels; NULL: the kernel does not fit them, or the device. */
const struct vx_tile *vx_conv_narrow_tile(int32_t ci, int32_t v, enum vx_number type,
                                          const struct vx_caps *caps);
#endif

#endif
