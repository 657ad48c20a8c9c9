/* 18_group_norm - group norm and instance norm over the voxels of a sample.
 *
 * Math     out[i,c] = act(x * weight[c] + bias[c])
 *          x  = (in[i,c] - m) / sqrt(s + eps)
 *          m  = mean of in[j,d] over the rows j of i's sample and the channels d of c's
 *               group, those with d / (C/groups) = c / (C/groups)
 *          s  = mean over the same of (in[j,d] - m)^2
 * Shapes   in, out (N,C)  weight (C) or NULL  bias (C) or NULL
 *          starts (S+1) i64, S samples; rows (N) i32: sample s has the rows
 *          rows[starts[s]] .. rows[starts[s+1] - 1]
 *          Device: rows of Cp channels; starts i32 and count (1) i32, S, as 23_key_order
 *          makes them; partial (T,C) f64, a row for each chunk: chunk j of sample s is in
 *          row starts[s] / VX_SAMPLE_CHUNK + s + j; mean, scale (S,groups) f64
 * Types    f32 in and out; sums and differences in f64, one rounding at the end (and one
 *          more by an activation).  Device: in and out VX_TYPE (F32, F16, BF16; TF32 as
 *          F32), sums and differences f64, the rest f32.
 * Idea     With groups = C it is instance norm, with groups = 1 a layer norm over all
 *          voxels.  A sample is passed over three times: mean, squares of differences,
 *          result.  E[x^2] - m^2 would save a pass and lose all digits when the mean is
 *          large.  The rows of a sample are cut into chunks, each becomes a row of sums
 *          by channel, and those are added.  The host of a device does not know how many
 *          samples there are: it launches a block for each chunk that there might be, and a
 *          block finds its chunk by binary search in `starts`.  Chunks of consecutive
 *          samples get different rows of `partial`, because rounding down loses less than
 *          the one that each sample adds.
 * Steps    1 sums   2 means   3 sums of squares   4 scales   5 multiply-add, activation
 *          Device: group_sums, group_means; both again with squares = 1; group_apply.
 * Tiles    chunks of rows, whose number follows from C and from the rows of the sample.
 *          Device: chunks of VX_SAMPLE_CHUNK rows, counted from a sample's first.
 * Cost     flops 6 per element; bytes 4*N*C read three times and written once, 12*N of
 *          row numbers.  Device: 16*C bytes more for each chunk, twice.
 * Limits   C a multiple of groups >= 1; eps >= 0; starts begins with 0 and never falls;
 *          no row twice.  Device: no sample without rows, S <= samples_max,
 *          T = vx_sample_slots; padding of in is not used, that of out is 0.
 * Order    rows of a chunk in the order of `rows`, then chunks, then the channels of a
 *          group: the bits of a sample depend on its own rows and their order.  Device: a
 *          thread has rows of a chunk at equal distances, threads are added in their order,
 *          then the channels of a group, then chunks, both in a fixed tree.
 * Oracle   18_group_norm_ref.c, tests/unit/engine/cpu/device/test_cpu_sets.c; device:
 *          18_group_norm_device_ref.c, tests/oracle/cases_samples.c.
 * Source   Wu and He, ECCV 2018; Ulyanov, Vedaldi and Lempitsky 2016 (instance norm);
 *          torch.nn.GroupNorm.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_GROUP_NORM_H
#define VX_KERNELS_GROUP_NORM_H

#include "kernels/activation.h"
#include "kernels/both.h"
#include "kernels/sample_rows.h"

#include <stdint.h>

struct vx_group_norm_args {
    int64_t samples;
    int32_t c, groups;
    float eps;
    const int64_t *starts; /* (S+1) places in rows */
    const int32_t *rows;   /* (N) row numbers, sample by sample */
    const float *in;       /* (N, C) */
    const float *weight;   /* (C) or NULL: 1 */
    const float *bias;     /* (C) or NULL: 0 */
    enum vx_activation activation;
    float *out; /* (N, C); may be in */
};

/* The most blocks of group_means, each with one group of one sample after the other. */
#define VX_GROUP_NORM_BLOCKS 2048

/* Of group_sums, group_means and group_apply.  Behind ';' is the kernel that writes. */
struct vx_group_norm_device_args {
    int64_t n;           /* rows of all samples */
    int32_t samples_max; /* S is not above it; >= 1 */
    int32_t c, cp;       /* real channels, and those of a row */
    int32_t groups;
    int32_t squares;    /* sums, means: 0: of numbers; 1: of squares of differences */
    int32_t activation; /* enum vx_activation */
    float eps;
    const int32_t *starts; /* (S+1) places in rows */
    const int32_t *count;  /* (1): S */
    const int32_t *rows;   /* (N) row numbers, sample by sample */
    const void *in;        /* (N, cp) */
    double *partial;       /* (vx_sample_slots, c); sums: first channels of groups */
    double *mean;          /* (S, groups); means with squares 0 */
    double *scale;         /* (S, groups); means with squares 1 */
    const float *weight;   /* (c) or NULL: 1 */
    const float *bias;     /* (c) or NULL: 0 */
    void *out;             /* (N, cp); apply; may be in */
    int32_t in_stride;     /* elements from a row of in to the next; 0: cp */
};

/* Blocks of group_means. */
VX_BOTH int32_t vx_group_norm_blocks(const struct vx_group_norm_device_args *args)
{
    int64_t groups = (int64_t)args->samples_max * args->groups;
    return (int32_t)(groups < VX_GROUP_NORM_BLOCKS ? groups : VX_GROUP_NORM_BLOCKS);
}

/* The samples of the arguments. */
VX_BOTH struct vx_sample_rows
vx_group_norm_rows(const struct vx_group_norm_device_args *args)
{
    struct vx_sample_rows rows = {args->n, args->samples_max, args->starts, args->count,
                                  args->rows};
    return rows;
}

void vx_group_norm_ref(const struct vx_group_norm_args *args);

#endif
