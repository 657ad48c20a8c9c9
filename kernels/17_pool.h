/* 17_pool - the largest, the mean or the sum of a row's neighbours, or of all rows of a
 * sample.
 *
 * Math     pool         out[i,c] = act(over v with nbr[v,i] >= 0 of in[nbr[v,i],c])
 *          global_pool  out[s,c] = over r in starts[s] .. starts[s+1] - 1 of in[rows[r],c]
 *          max   the largest; NaN if any is NaN
 *          sum   their sum
 *          avg   their sum, divided by how many there are
 *          Of nothing at all each of them is 0.
 * Shapes   pool         in (M,C)  nbr (V,N) i32, -1 empty  out (N,C); M and N differ
 *          global_pool  in (N,C)  starts (S+1) i64  rows (N) i32  out (S,C); S samples
 *          Device: pool alone, with nbr (N,S), S >= V; in and out rows of Cp channels
 * Types    f32 in and out.  pool sums in f32, global_pool in f64; the references sum in
 *          f64 and round once.  Device: in and out VX_TYPE (F32, F16, BF16; TF32 as F32).
 * Idea     pool: a row's neighbours are listed, then summed a vector of channels at a
 *          time, so that a sum stays in a register.  global_pool: the rows of a sample
 *          are cut into chunks, each becomes a row of f64, and those become one.
 * Steps    pool         1 list   2 sum   3 divide (avg), activation
 *          global_pool  1 a row for each chunk   2 one row   3 divide (avg)
 * Tiles    pool: rows.  global_pool: chunks, whose number follows from C and from the
 *          rows of the sample.  Device: pointwise.h; a thread has 16 bytes of a row and four
 *          neighbours in flight.
 * Cost     flops 1 per element read.  bytes: pool 4*V*N + 4*C*(pairs + N);
 *          global_pool 4*N*(C + 1) + 4*S*C.
 * Limits   1 <= V <= 343; every entry of nbr < M; starts begins with 0 and never falls;
 *          out overlaps no input.  Device: padding of in is not used, that of out is 0.
 * Order    pool: from 0 on, offsets in rising v.  global_pool: rows of a chunk in the
 *          order of `rows`, then chunks.  So the bits of a row of out depend on the rows
 *          that it is made from and on nothing else.
 * Oracle   17_pool_ref.c, tests/unit/engine/cpu/device/test_cpu_sets.c; device:
 *          17_pool_device_ref.c, tests/oracle/cases_windows.c.
 * Source   torch.nn.MaxPool3d (NaN); MinkowskiEngine 0.5: MinkowskiAvgPooling divides by
 *          the neighbours that exist.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_POOL_H
#define VX_KERNELS_POOL_H

#include "kernels/activation.h"

#include <stdint.h>

enum vx_pool_mode { VX_POOL_MAX, VX_POOL_AVG, VX_POOL_SUM };

struct vx_pool_args {
    int64_t n;
    int32_t v, c;
    enum vx_pool_mode mode;
    const int32_t *nbr; /* (V, N), -1 empty */
    const float *in;    /* (M, C) */
    enum vx_activation activation;
    float *out;                    /* (N, C); never overlaps in */
    int32_t in_stride, out_stride; /* elements from a row to the next; 0: C */
};

struct vx_global_pool_args {
    int64_t samples;
    int32_t c;
    enum vx_pool_mode mode;
    const int64_t *starts; /* (S+1) places in rows */
    const int32_t *rows;   /* (N) row numbers, sample by sample */
    const float *in;       /* (N, C) */
    float *out;            /* (S, C); never overlaps in */
};

struct vx_pool_device_args {
    int64_t n;
    int32_t v, nbr_stride;         /* offsets, and entries of a row of nbr */
    int32_t c, cp;                 /* real channels, and those of a row */
    int32_t mode;                  /* enum vx_pool_mode */
    int32_t activation;            /* enum vx_activation */
    const int32_t *nbr;            /* (N, nbr_stride), -1 empty */
    const void *in;                /* (M, cp) */
    void *out;                     /* (N, cp); never overlaps in */
    int32_t in_stride, out_stride; /* elements from a row to the next; 0: cp */
};

void vx_pool_ref(const struct vx_pool_args *args);
void vx_global_pool_ref(const struct vx_global_pool_args *args);

#endif
