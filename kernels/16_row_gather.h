/* 16_row_gather - rows taken through a map and laid side by side.
 *
 * Math     out[i, w*C + c] = act(x)
 *          x    = in[nbr[v(w),i], c], or 0 where nbr[v(w),i] is -1
 *          v(w) = (x*Ky + y)*Kz + z for block w = x + Kx*(y + Ky*z)
 *          Device: x = in[e / B, (e mod B)*C + c] with e = nbr[i,v(w)], or 0 where e is -1
 * Shapes   in (M,C)  nbr (V,N) i32, -1 empty  out (N, V*C), V = Kx*Ky*Kz
 *          M rows are read and N written; neither bounds the other
 *          Device: nbr (N,S), S >= V; in and out rows of Cp channels each, of which B*C and
 *          V*C are real
 * Types    f32; a number is copied, only an activation rounds.  Device: VX_TYPE (F32, F16,
 *          BF16; TF32 as F32).
 * Idea     One copy serves four layers.  With V = 1: unpool and nearest upsampling (the
 *          map names the parent's row), and channel_to_space, whose parents (P, G*C) are
 *          passed as (P*G, C): a child is a row of it.  With V offsets: space_to_channel,
 *          whose blocks have x fastest while offsets have z fastest.  On the device a
 *          parent's row has padding behind its children, so that a child has to be found in
 *          it: B = G, and the map is 22_level_map's CHILD.  A thread keeps its column and
 *          finds where it comes from once for all rows.
 * Steps    1 row numbers   2 copy, or zeros   3 activation
 * Tiles    rows.  The blocks of a tile are filled one after the other: the map is read
 *          along its rows.  Device: pointwise.h.
 * Cost     bytes 4*V*N of the map, and 8*N*V*C (device: read and write of N*Cp elements;
 *          16 bytes at a time if C is a multiple of 16 bytes).
 * Limits   kernel has V = Kx*Ky*Kz <= 343; every entry of nbr < M; out overlaps no input.
 *          Device: every entry < M*B; padding of in is not read, that of out is 0.
 * Order    elements are independent.
 * Oracle   16_row_gather_ref.c, tests/unit/engine/cpu/device/test_cpu_sets.c; device:
 *          16_row_gather_device_ref.c, tests/oracle/cases_windows.c.
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
    float *out;                    /* (N, V*C); never overlaps in */
    int32_t in_stride, out_stride; /* elements from a row to the next; 0: C, V*C */
};

struct vx_row_gather_device_args {
    int64_t n;
    int32_t v, c;       /* blocks of a row of out, and real channels of each */
    int32_t kernel[3];  /* along x y z */
    int32_t blocks;     /* blocks of a row of in: 1, or the children of a CHILD map */
    int32_t nbr_stride; /* entries of a row of nbr */
    int32_t in_cp,
        cp; /* elements from a row of in to the next; channels of a row of out */
    int32_t activation; /* enum vx_activation */
    const int32_t *nbr; /* (N, nbr_stride), -1 empty */
    const void *in;     /* (M, in_cp) */
    void *out;          /* (N, cp); never overlaps in */
    int32_t out_stride; /* elements from a row of out to the next; 0: cp */
};

void vx_row_gather_ref(const struct vx_row_gather_args *args);

#endif
