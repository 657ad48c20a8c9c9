/* 35_e4m3_rows - rows rounded to numbers of 8 bits, for a convolution that multiplies those.
 *
 * Math     q = e4m3(in[i,c] / scale), to the nearest, ties to even, at most 448 (e4m3.h)
 *          bytes:  out[i,c] = q
 *          else:   out[i,c] = q * scale, at most the largest number of VX_TYPE
 * Shapes   in (N,Cp), a row may be part of a longer one; out (N,Cp)
 * Types    in VX_TYPE (F32, F16, BF16; TF32 as F32); out bytes, or VX_TYPE for devices that
 *          cannot multiply bytes: their convolutions see the same numbers.
 * Idea     Nothing to compute: as fast as memory.  The scale is a power of two, so that only
 *          e4m3 rounds.
 * Steps    1 read   2 round   3 write.
 * Tiles    pointwise.h.
 * Cost     bytes: N*Cp of VX_TYPE, and N*Cp or as many again.
 * Limits   Cp and in_stride multiples of VX_CHANNELS_UNIT; scale 2^-60 to 2^60; out overlaps
 *          no input.  In F16 q * scale ends at 65504 and loses what is below 2^-24.
 * Order    elements are independent.
 * Oracle   35_e4m3_rows_ref.c.
 * Source   e4m3.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_E4M3_ROWS_H
#define VX_KERNELS_E4M3_ROWS_H

#include <stdint.h>

#include "kernels/both.h"

/* The largest number of F16, and of the other types: q * scale is below 2^69. */
#define VX_E4M3_F16_MOST 65504.0f
#define VX_E4M3_ANY_MOST 1e30f

/* NaN stays NaN. */
VX_BOTH float vx_e4m3_in(float x, float most)
{
    return x > most ? most : x < -most ? -most : x;
}

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
