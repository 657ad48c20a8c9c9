/* 06_conv_masked - submanifold sparse convolution as a masked implicit GEMM.
 *
 * Math     out[i,:]       = act(bias + residual[i,:] + sum over v with nbr[i,v] >= 0 of
 *                               in[nbr[i,v],:] . weight[v,:,:])
 *          split:
 *          partial[g,i,:] = the same sum over the offsets of group g alone; conv_reduce
 *                           (07_conv_reduce) adds the groups and does the rest
 *          pairs:
 *          partial[p,:]   = in[in_rows[p],:] . weight[v,:,:] for each pair p of offset v;
 *                           pair_reduce (07_conv_reduce) adds them and does the rest
 * Shapes   in (N,Ci)  weight (V,Ci,Co)  bias (Co)  residual, out (N,Co); a row of in,
 *          residual or out may be part of a longer one: each has a stride
 *          nbr (N,S) i32, S = V rounded up to 4, -1 empty
 *          masks (N,W) u32, W = V/32 rounded up
 *          order (G,N)  block_masks (G,B,W), B = N/32 rounded up  neighbours (V,N)
 *          partial (G,N,Co) or (pairs,Co) f32
 * Types    VX_TYPE: F16, BF16 with tensor cores; TF32 (stored as F32) with tensor cores;
 *          F32 with fused multiply-add; E4M3 (stored as F16) with tensor cores: in and
 *          weight are numbers of 8 bits (e4m3.h), a sum is multiplied by its column's
 *          scale first.  Sums in f32; bias and residual added in f32, one
 *          rounding at the end.
 * Idea     A GEMM with M = N and K = V*Ci whose left operand is never stored: a tile of
 *          rows gathers what it needs.  Rows are visited in `order`, sorted by mask
 *          (05_mask_order), so that the rows of one tile need the same offsets.  A tile
 *          walks only the union of its masks, and inside it a warp multiplies only if one
 *          of its own rows has the offset.  The walk over (offset, block of channels) is
 *          one pipeline, which drains only after every WALK offsets (conv_tile.cuh).
 * Steps    1 union of the tile's block masks
 *          2 neighbour rows of the tile to shared memory, WALK offsets at a time
 *          3 for each present offset and block of Ci: cp.async of gathered rows and
 *            weights, VX_STAGES deep; multiply
 *          4 epilogue through `order`
 *          On Hopper 16-bit types are multiplied by wgmma (tile_wgmma_sm90.cuh), all
 *          else by mma.sync (tile_mma.cuh); the rest is one text (conv_tile.cuh).  Tiles
 *          of VX_MULTIPLY_STREAM are one stream for blocks that stay (tile_stream_sm90.cuh): the
 *          same products in the same order, fetched by warps of their own.
 * Tiles    VX_TILE_N rows x VX_TILE_CO columns x VX_TILE_CI of the sum, VX_STAGES,
 *          VX_WARPS_N x VX_WARPS_CO warps, VX_BLOCKS on one processor; which of them a
 *          device runs is in 06_conv_masked_spec.c.
 * Cost     flops 2*Ci*Co*(rows x union of masks); bytes from the second-level cache: per
 *          tile and offset VX_TILE_N*Ci + Ci*VX_TILE_CO elements.
 * Limits   Ci, Co and strides multiples of VX_CHANNELS_UNIT, Ci of E4M3 of 32; V <= 343;
 *          N < 2^31.  Offsets of elements have 64 bits: N*Ci may exceed 2^31.
 * Order    offsets in rising v, channels in rising ci, always in the same steps of one
 *          instruction (wgmma, mma or fma): the bits of a row depend on that, its own
 *          inputs, type, Ci, V and groups, and on nothing else.  An empty neighbour adds
 *          exact zeros.
 * Oracle   06_conv_masked_ref.c, tests/oracle.
 * Source   Graham et al. CVPR 2018 (submanifold); spconv 2 (mask sort); TorchSparse++
 *          (Tang et al. MICRO 2023).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CONV_MASKED_H
#define VX_KERNELS_CONV_MASKED_H

#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/mask.h"

/* What a tile multiplies with: values of the macro VX_MULTIPLY. */
#define VX_MULTIPLY_MMA    0 /* NVIDIA: mma.sync, of f32 fused multiply-adds */
#define VX_MULTIPLY_WGMMA  1 /* Hopper */
#define VX_MULTIPLY_STREAM 2 /* Hopper: wgmma by blocks that stay */
#define VX_MULTIPLY_MFMA   3 /* AMD CDNA, waves of 64 lanes */
#define VX_MULTIPLY_WMMA   4 /* AMD RDNA 3 and 4, waves of 32 lanes */
#define VX_MULTIPLY_FMA    5 /* AMD without a matrix instruction for the type */

/* The arguments of every convolution on a device.  `groups` divides the offsets: 1 = all
 * together; Kx = planes of equal kx; Kx*Ky = columns of equal kx and ky.  Group g has the
 * offsets [g*V/groups, (g+1)*V/groups). */
struct vx_conv_device_args {
    int64_t n;
    int32_t v;          /* offsets of the kernel */
    int32_t words;      /* 32-bit words of one mask */
    int32_t nbr_stride; /* entries of one row of nbr: V rounded up to 4 */
    int32_t ci, co;     /* padded channels, multiples of VX_CHANNELS_UNIT */
    int32_t in_stride;  /* elements from a row to the next: ci, or more */
    int32_t residual_stride, out_stride; /* the same: co, or more */
    int32_t groups;                      /* divides V */
    int32_t activation;                  /* enum vx_activation */
    int32_t used;   /* columns that are real, 0 = all; the rest of out becomes zeros */
    int32_t blocks; /* that stay, for tiles that stream */
    const int32_t *nbr;    /* (N, nbr_stride); NULL = V is 1, a row its own neighbour */
    const uint32_t *masks; /* (N, words) */
    const int32_t *order;  /* (groups, N); NULL = rows as they are */
    const uint32_t *block_masks; /* (groups, blocks of 32, words); NULL = every offset */
    /* For tiles that stream, of 128 and of 256 rows: a list, dealt to `blocks` (order_tiles,
     * 05_mask_order.h); NULL = as they are. */
    const int32_t *tiles[2];
    /* For tiles that stream: (V, N), nbr in the order of the rows (05_mask_order.h); NULL =
     * read from nbr. */
    const int32_t *neighbours;
    const void *in;       /* (N, in_stride), ci of each row are read */
    const void *weight;   /* (V, ci, co) */
    const void *tiled;    /* the same as 29_weight_tile.h says; NULL = not there */
    const float *bias;    /* (co) or NULL */
    const void *residual; /* (N, residual_stride) or NULL */
    /* (N, out_stride), co of each row are written: these overlap no input, but may be
     * residual. */
    void *out;
    float *partial; /* (groups, N, co) when the sums are split, or NULL */
    /* For pairs (08_pair_list.h): groups is V, and row p of partial is that of pair p. */
    const int32_t *starts;  /* (V+1) or NULL: where each offset's pairs begin */
    const int32_t *in_rows; /* (pairs): the row of `in` of each pair */
    /* For E4M3: (co), what the sum of a column is multiplied by; in, weight and tiled have
     * numbers of 8 bits, and in_stride counts them. */
    const float *scale;
};

/* Present offsets whose neighbour rows a tile has in shared memory at once: enough for the 27
 * of 3^3, and one lane of a warp each.  With 32, two blocks of 128x128x64 would no longer fit
 * the 228 KiB of a Hopper processor. */
#define VX_CONV_WALK 28
/* V of the largest kernel, 343, rounded up. */
#define VX_CONV_OFFSETS 344
/* Bytes of what a tile that streams has behind its stages: barriers. */
#define VX_STREAM_MORE_BYTES 512
/* Bytes of struct tile_memory (conv_tile.cuh) for tiles of `n_` rows: row numbers, neighbour
 * rows, the list of present offsets, three counts. */
#define VX_CONV_MEMORY_BYTES(n_)                                                         \
    (4 * (n_) + 4 * VX_CONV_WALK * ((n_) + 1) + 3 * VX_CONV_OFFSETS + 12)

#endif
