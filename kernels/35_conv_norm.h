/* 35_conv_norm - a convolution, or linear layer, and the layer norm of its rows in one pass.
 *
 * Math     x[i,:]   = bias + residual[i,:] + sum over v with nbr[i,v] >= 0 of
 *                     in[nbr[i,v],:] . weight[v,:,:]                    rounded to the type
 *          out[i,:] = act(layer_norm(x[i,:]))
 * Shapes   as 06_conv_masked; norm's weight, bias (C) or NULL
 * Types    those of 06_conv_masked.  Sums in f32; rounded where the two launches that it stands
 *          for round: its answers have the same bits as theirs.
 * Idea     Where a tile has all columns, a row's mean and squares are sums inside one block,
 *          and x is never stored: one write and one read of N rows fewer, and a launch.
 *          Both sums have one order, whatever the tile is: eight columns, then a tree over
 *          these eights, neighbours first (norm_row.cuh).
 * Steps    1 as 06_conv_masked, up to the sums
 *          2 bias and residual, rounded to vectors of 16 bytes
 *          3 mean, then squares: in tiles that begin and end a row belongs to a group of
 *            lanes as in layer norm (norm_tile.cuh); in a stream to four lanes, which have
 *            every fourth vector and the tree's upper levels each for itself
 *            (norm_stream_sm90.cuh)
 *          4 multiply-add, activation, store
 * Tiles    those of 06_conv_masked: the same text but for the ends of tiles, so a layer may
 *          take the tile that was measured without the norm.
 * Cost     flops as 06_conv_masked, and 7 per element of out; bytes 4*N*C fewer than the two
 *          launches.
 * Limits   as 06_conv_masked; Co <= VX_TILE_CO; one group, no pairs; no activation and no
 *          partial sums before the norm.  C of the Co columns are real.
 * Order    as 06_conv_masked, then as layer norm (12_norm.h): the bits of a row depend on the
 *          layer alone.
 * Oracle   35_conv_norm_ref.c; tests/oracle also compares all bits with the two launches.
 * Source   Ba, Kiros and Hinton 2016; the rest is ours.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CONV_NORM_H
#define VX_KERNELS_CONV_NORM_H

#include "kernels/06_conv_masked.h"
#include "kernels/12_norm.h"

/* The two launches that it stands for. */
struct vx_conv_norm_args {
    /* The first: the ends of tiles, which are given it, find the norm behind it. */
    struct vx_conv_device_args conv;
    /* cp is conv's co; its n, rows and strides are not read: conv.out is written. */
    struct vx_layer_norm_device_args norm;
};

#endif
