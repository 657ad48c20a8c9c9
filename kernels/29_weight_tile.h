/* 29_weight_tile - the weights of a convolution in the order in which a stream of tiles needs them.
 *
 * Math     out[v,k,co,c'] = the 8 numbers weight[v, 64k + 8c .. 64k + 8c + 7, co], with
 *          c' = c xor (co mod 8); zeros beyond ci
 * Shapes   in (V,Ci,Co)  out (V,K,Co,64), K = Ci/64 rounded up
 * Types    16 bits, copied as they are.
 * Idea     The weights of 64 channels and any columns that lie together are one run of
 *          bytes, as wgmma reads them from shared memory: rows of 128 bytes, their chunks
 *          of 16 swizzled.  So one bulk copy brings them.
 * Steps    a thread for each chunk; neighbours take neighbouring columns.
 * Cost     bytes 2*V*Ci*Co read, 2*V*K*64*Co written, once for each model.
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

#define VX_WEIGHT_TILE_THREADS  256
#define VX_WEIGHT_TILE_CHANNELS 64

struct vx_weight_tile_args {
    int64_t v;
    int32_t ci, co;
    const uint16_t *in; /* (V, ci, co) */
    uint16_t *out;      /* (V, K, co, 64) */
};

/* K: blocks of 64 channels. */
VX_BOTH int32_t vx_weight_tile_blocks(int32_t ci)
{
    return (ci + VX_WEIGHT_TILE_CHANNELS - 1) / VX_WEIGHT_TILE_CHANNELS;
}

#endif
