/* 35_e4m3_rows - rows rounded to numbers of 8 bits, for a convolution that multiplies those.
 *
 * Math     q = e4m3(in[i,c] / scale), to the nearest, ties to even, at most 448 (e4m3.h)
 *          bytes:  out[i,c] = q
 *          else:   out[i,c] = q * scale
 * Shapes   in (N,Cp), a row may be part of a longer one; out (N,Cp)
 * Types    in VX_TYPE (F32, F16, BF16; TF32 as F32); out bytes, or VX_TYPE for devices that
 *          cannot multiply bytes: their convolutions see the same numbers.
 * Idea     Nothing to compute: as fast as memory.  The scale is a power of two, so that only
 *          e4m3 rounds.
 * Steps    1 read   2 round   3 write.
 * Tiles    pointwise.h.
 * Cost     bytes: N*Cp of VX_TYPE, and N*Cp or as many again.
 * Limits   Cp and in_stride multiples of VX_CHANNELS_UNIT; scale 2^-60 to 2^60; out overlaps
 *          no input.  In F16 numbers below 2^-24 of q * scale are lost.
 * Order    elements are independent.
 * Oracle   35_e4m3_rows_ref.c.
 * Source   e4m3.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_E4M3_ROWS_H
#define VX_KERNELS_E4M3_ROWS_H

#include <stdint.h>

struct vx_e4m3_rows_args {
    int64_t n;
    int32_t cp;
    int32_t in_stride;    /* elements from a row to the next; 0: cp */
    int32_t bytes;        /* 1: out has numbers of 8 bits; 0: of VX_TYPE */
    float scale, inverse; /* inverse = 1 / scale */
    const void *in;       /* (N, in_stride) */
    void *out;            /* (N, cp) */
};

#endif
