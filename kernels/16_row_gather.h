/* 16_row_gather - rows taken through a map and laid side by side.
 *
 * Math     out[i, w*C + c] = act(x)
 *          x    = in[nbr[v(w),i], c], or 0 where nbr[v(w),i] is -1
 *          v(w) = (x*Ky + y)*Kz + z for block w = x + Kx*(y + Ky*z)
 * Shapes   in (M,C)  nbr (V,N) i32, -1 empty  out (N, V*C), V = Kx*Ky*Kz
 *          M rows are read and N written; neither bounds the other
 * Types    f32; a number is copied, only an activation rounds.
 * Idea     One copy serves four layers.  With V = 1: unpool and nearest upsampling (the
 *          map names the parent's row), and channel_to_space, whose parents (P, G*C) are
 *          passed as (P*G, C): a child is a row of it.  With V offsets: space_to_channel,
 *          whose blocks have x fastest while offsets have z fastest.
 * Steps    1 row numbers   2 copy, or zeros   3 activation
 * Tiles    rows.  The blocks of a tile are filled one after the other: the map is read
 *          along its rows.
 * Cost     bytes 4*V*N of the map, and 8*N*V*C.
 * Limits   kernel has V = Kx*Ky*Kz <= 343; every entry of nbr < M; out overlaps no input.
 * Order    elements are independent.
 * Oracle   16_row_gather_ref.c, tests/unit/engine/cpu/device/test_cpu_sets.c.
 * Source   torch.nn.PixelUnshuffle and PixelShuffle, with the order of TRELLIS.2's
 *          SparseSpatial2Channel and SparseChannel2Spatial.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_ROW_GATHER_H
#define VX_KERNELS_ROW_GATHER_H

#include "kernels/activation.h"

#include <stdint.h>

struct vx_row_gather_args {
    int64_t n;
    int32_t v, c;
    int32_t kernel[3];  /* along x y z */
    const int32_t *nbr; /* (V, N), -1 empty */
    const float *in;    /* (M, C) */
    enum vx_activation activation;
    float *out; /* (N, V*C); never overlaps in */
};

void vx_row_gather_ref(const struct vx_row_gather_args *args);

#endif
