/* 29_weight_tile - the weights of a convolution in the order in which a stream of tiles needs them.
 *
 * Math     out[v,k,co,c'] = the S numbers weight[v, Lk + Sc .. Lk + Sc + S-1, co], with
 *          c' = c xor (co mod 8); zeros beyond ci
 * Shapes   in (V,Ci,Co)  out (V,K,Co,L), K = Ci/L rounded up; L = 64 channels and S = 8, of
 *          numbers of 8 bits L = 128 and S = 16
 * Types    16 or 8 bits, copied as they are.
 * Idea     The weights of L channels and any columns that lie together are one run of
 *          bytes, as wgmma reads them from shared memory: rows of 128 bytes, their chunks
 *          of 16 swizzled.  So one bulk copy brings them.
 * Steps    a thread for each chunk; neighbours take neighbouring columns.
 * Cost     bytes: all weights read, V*K*128*Co written, once for each model.
 * Limits   Ci, Co multiples of VX_CHANNELS_UNIT.
 * Order    exact.
 * Oracle   29_weight_tile_ref.c.
 * Source   -
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_WEIGHT_TILE_H
#define VX_KERNELS_WEIGHT_TILE_H

#include <stdint.h>

#include "kernels/both.h"

#define VX_WEIGHT_TILE_THREADS 256
#define VX_WEIGHT_TILE_LINE    128 /* bytes of a column */

struct vx_weight_tile_args {
    int64_t v;
    int32_t ci, co;
    int32_t number_bytes; /* 2 or 1 */
    const void *in;       /* (V, ci, co) */
    void *out;            /* (V, K, co, L) */
};

/* K: lines of a column. */
VX_BOTH int32_t vx_weight_tile_blocks(int32_t ci, int32_t number_bytes)
{
    const int32_t channels = VX_WEIGHT_TILE_LINE / number_bytes;
    return (ci + channels - 1) / channels;
}

#endif
