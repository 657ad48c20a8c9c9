/* 33_mlp - layer norm, linear, activation, linear and residual of a row in one pass.
 *
 * Math     x        = norm ? layer_norm(in[i,:]) : in[i,:]              rounded to the type
 *          h        = act(bias_up + x . up)                             rounded to the type
 *          out[i,:] = act'(bias_down + residual[i,:] + h . down)
 * Shapes   in (N,Ci)  up (Ci,H)  down (H,Co)  residual, out (N,Co)
 * Types    VX_TYPE: F16, BF16 with wgmma.  Sums in f32; rounded where the launches that it
 *          stands for round: its answers have the same bits as theirs.
 * Idea     The hidden rows, four times as wide as the others, are never stored: the sums of
 *          64 hidden columns lie in registers as wgmma wants its left operand, so a
 *          warpgroup rounds them and multiplies them by their rows of `down` at once.
 *          What moves is the weights, through a ring that never drains over tiles; the
 *          rows stay in shared memory while all weights pass by.
 * Steps    a block stays, and takes every so many-th tile of 128 rows.
 *          1 three warps normalise the rows of the next tile into shared memory, while a
 *            fourth sends for weights: 64 columns of up, 64 rows of down, in turn
 *          2 two warpgroups of 64 rows: products with up for the next 64 hidden columns,
 *            while those of the present ones with down run; activation in between
 *          3 the end of a tile is that of a convolution (stream_store_sm90.cuh)
 * Tiles    128 rows; VX_MLP_CI input and VX_TILE_CO output channels at most, of which only
 *          those that exist are read; VX_STAGES of the ring.
 * Cost     flops 2*N*H*(Ci + Co); bytes 2*N*(Ci + 2*Co) and, from the second-level cache, all
 *          weights for each tile.
 * Limits   sm_90a; VX_MLP_NARROW < Ci <= VX_MLP_CI, Co <= VX_TILE_CO, multiples of
 *          VX_CHANNELS_UNIT; H a multiple of VX_MLP_HIDDEN up to VX_MLP_HIDDEN_MAX, none of
 *          it padding.
 * Order    as layer norm (12_norm.h), then as a convolution of one offset, twice.
 * Oracle   33_mlp_ref.c; tests/oracle also compares all bits with the three launches.
 * Source   Dao 2023 (FlashAttention-2: one product's result as the next one's operand in
 *          registers); Liu et al. CVPR 2022 (ConvNeXt, the block it is for).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MLP_H
#define VX_KERNELS_MLP_H

#include "kernels/06_conv_masked.h"
#include "kernels/12_norm.h"

#define VX_MLP_ROWS       128
#define VX_MLP_HIDDEN     64   /* columns that are in work at a time */
#define VX_MLP_HIDDEN_MAX 3072 /* their biases stay in shared memory */
#define VX_MLP_NARROW     64 /* rows of so few channels have fewer lanes in layer norm */

/* The three launches that it stands for.  Only the first layer's `in` is read and only the
 * last one's `out` is written: the tensors in between may be NULL. */
struct vx_mlp_args {
    /* c 0: there is none, and its `in` passes as it is. */
    struct vx_layer_norm_device_args norm;
    /* V 1, no map; up: no residual, all columns used. */
    struct vx_conv_device_args up, down;
};

#if !defined(VX_DEVICE) /* the host's */
struct vx_tile;
/* The smallest tile for padded channels; NULL: the kernel does not fit them. */
const struct vx_tile *vx_mlp_tile(int32_t ci, int32_t hidden, int32_t co);
#endif

#endif
