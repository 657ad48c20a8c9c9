/* 04_conv_gather - the left operand of the explicit GEMM: a row's neighbours in a line.
 *
 * Math     panel[r, v*Ci + c] = in[nbr[first + r, v], c], 0 where there is no neighbour
 * Shapes   in (N,Ci), its rows in_stride apart  nbr (N,S) i32, S = V rounded up to 4  panel (rows, V*Ci)
 * Types    VX_TYPE, in and panel.
 * Idea     What im2col is to images.  The panel is V times as large as the features, so
 *          it is made and multiplied a slice of rows at a time.  The first rung of the
 *          ladder: every later one avoids this copy.
 * Steps    1 read the neighbour's row number
 *          2 copy 16 bytes or write zeros
 * Tiles    none: a thread takes any 16 bytes of the panel.
 * Cost     bytes: the panel written once, its entries with a neighbour read once.
 * Limits   Ci a multiple of VX_CHANNELS_UNIT; the panel at most 2^31 times 16 bytes.
 * Order    exact.
 * Oracle   04_conv_gather_ref.c, tests/oracle.
 * Source   Chellapilla et al. 2006 (convolution by matrix product).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CONV_GATHER_H
#define VX_KERNELS_CONV_GATHER_H

#include <stdint.h>

#define VX_GATHER_THREADS 256

struct vx_conv_gather_args {
    int64_t first, rows; /* this slice: rows first .. first + rows - 1 of the map */
    int32_t v, nbr_stride, ci;
    int32_t in_stride;  /* elements from a row of in to the next: ci, or more */
    const int32_t *nbr; /* (N, nbr_stride) */
    const void *in;     /* (N, in_stride) */
    void *panel;        /* (rows, V*ci) */
};

#endif
