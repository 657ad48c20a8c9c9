/* 30_sample_pool - the largest, the mean or the sum of all rows of a sample, on a device.
 *
 * Math     out[places[s],c] = act(over the rows r of sample s of in[r,c])
 *          max   the largest; NaN if any is NaN
 *          sum   their sum
 *          avg   their sum, divided by how many there are
 * Shapes   in (N,Cp)  out (S,Cp)  starts (S+1)  count (1), S  rows (N)  places (S)
 *          partial (T,C) f64, a row for each chunk: sample_rows.h
 * Types    in and out VX_TYPE (F32, F16, BF16; TF32 as F32); between them f64, and one
 *          rounding at the end.
 * Idea     As 18_group_norm: the rows of a sample are cut into chunks, each becomes a row
 *          of `partial`, and those become one.  The host does not know how many samples
 *          there are: it launches a block for each chunk that there might be.
 * Steps    sample_chunks  a block makes one row of `partial`
 *          sample_pool    a block makes 32 channels of one sample: each wave takes every
 *                         8th chunk, then the waves are joined; divide, activation
 * Tiles    chunks of VX_SAMPLE_CHUNK rows, counted from a sample's first.
 * Cost     flops 1 per element; bytes N*Cp of the type and 4*N of row numbers read, 16*C
 *          for each chunk.
 * Limits   no sample without rows, S <= samples_max, T = vx_sample_slots; padding of in is
 *          not used, that of out is 0.  `places` has no place twice.
 * Order    as 18_group_norm: the bits of a sample depend on its own rows and their order.
 * Oracle   30_sample_pool_ref.c, tests/oracle/cases_samples.c.
 * Source   MinkowskiEngine 0.5: MinkowskiGlobalMaxPooling, MinkowskiGlobalAvgPooling,
 *          MinkowskiGlobalSumPooling.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_SAMPLE_POOL_H
#define VX_KERNELS_SAMPLE_POOL_H

#include "kernels/17_pool.h"
#include "kernels/sample_rows.h"

/* Channels of a block of sample_pool, and the most blocks. */
#define VX_SAMPLE_POOL_WIDE   32
#define VX_SAMPLE_POOL_BLOCKS 2048

/* Of both kernels.  Behind ';' is the kernel that writes. */
struct vx_sample_pool_args {
    int64_t n;           /* rows of all samples */
    int32_t samples_max; /* S is not above it; >= 1 */
    int32_t c, cp;       /* real channels, and those of a row */
    int32_t mode;        /* enum vx_pool_mode */
    int32_t activation;  /* enum vx_activation; pool */
    const int32_t *starts;
    const int32_t *count;
    const int32_t *rows;
    const int32_t *places; /* (S) row of out; pool */
    const void *in;        /* (N, cp); chunks */
    double *partial;       /* (vx_sample_slots, c); chunks */
    void *out;             /* (S, cp); pool */
    int32_t in_stride;     /* elements from a row of in to the next; 0: cp */
};

VX_BOTH struct vx_sample_rows vx_sample_pool_rows(const struct vx_sample_pool_args *args)
{
    struct vx_sample_rows rows = {args->n, args->samples_max, args->starts, args->count,
                                  args->rows};
    return rows;
}

/* Parts of a row that are blocks of their own. */
VX_BOTH int32_t vx_sample_pool_parts(const struct vx_sample_pool_args *args)
{
    return (args->cp + VX_SAMPLE_POOL_WIDE - 1) / VX_SAMPLE_POOL_WIDE;
}

/* Blocks of sample_pool. */
VX_BOTH int32_t vx_sample_pool_blocks(const struct vx_sample_pool_args *args)
{
    int64_t work = (int64_t)args->samples_max * vx_sample_pool_parts(args);
    return (int32_t)(work < VX_SAMPLE_POOL_BLOCKS ? work : VX_SAMPLE_POOL_BLOCKS);
}

#endif
