/* 14_rows - from a request's features to rows of the device, and from those to an answer.
 *
 * Math     rows_in   out[r,c]       = convert(in[rows[r],c]) for c < C, 0 for C <= c < Cp
 *          rows_out  out[rows[r],c] = convert(in[r,c]) for c < C
 * Shapes   request side (N,C), device side (N,Cp)
 *          rows (N), or NULL: rows[r] = r
 * Types    request side F32, F16 or BF16, a field of the arguments; device side VX_TYPE
 *          (F32, F16, BF16; TF32 as F32).  convert as in 13_elementwise: to the nearest,
 *          ties to even, overflow to infinity; NaN stays NaN, but its bits may change.
 * Idea     Conversion, padding and the permutation to brick order are one pass over
 *          memory.  A thread keeps its channels and steps down the rows; it reads the
 *          numbers of several rows first, then the rows, then stores.
 * Steps    1 row numbers   2 loads   3 convert, store.
 * Tiles    pointwise.h.
 * Cost     bytes: N*C of the request's type, N*Cp of VX_TYPE (rows_out: N*C), 4*N.
 * Limits   Cp a multiple of 16 and >= C >= 1; rows is a permutation of 0..N-1.  The
 *          device side begins at a multiple of 16 bytes, the request side at any multiple
 *          of its number's size.  The request side is accessed 16 bytes at a time if its
 *          address and its row length are multiples of 16 bytes, else number by number.
 *          out overlaps neither in nor rows.
 * Order    elements are independent.
 * Oracle   14_rows_ref.c.
 * Source   -
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_ROWS_H
#define VX_KERNELS_ROWS_H

#include <stdint.h>

/* For rows_in and rows_out. */
struct vx_rows_args {
    int64_t n;
    int32_t c, cp;
    int32_t number;      /* enum vx_number of the request side: F32, F16 or BF16 */
    const int32_t *rows; /* (N) the request's row for each device row, or NULL */
    const void *in;
    void *out;
};

#endif
