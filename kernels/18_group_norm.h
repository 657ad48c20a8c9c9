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
 * Types    f32 in and out; sums and differences in f64, one rounding at the end (and one
 *          more by an activation).
 * Idea     With groups = C it is instance norm, with groups = 1 a layer norm over all
 *          voxels.  A sample is passed over three times: mean, squares of differences,
 *          result.  E[x^2] - m^2 would save a pass and lose all digits when the mean is
 *          large.  The rows of a sample are cut into chunks, each becomes a row of sums
 *          by channel, and those are added.
 * Steps    1 sums   2 means   3 sums of squares   4 scales   5 multiply-add, activation
 * Tiles    chunks of rows, whose number follows from C and from the rows of the sample.
 * Cost     flops 6 per element; bytes 4*N*C read three times and written once, 12*N of
 *          row numbers.
 * Limits   C a multiple of groups >= 1; eps >= 0; starts begins with 0 and never falls;
 *          no row twice.
 * Order    rows of a chunk in the order of `rows`, then chunks, then the channels of a
 *          group: the bits of a sample depend on its own rows and their order.
 * Oracle   18_group_norm_ref.c, tests/unit/engine/cpu/device/test_cpu_sets.c.
 * Source   Wu and He, ECCV 2018; Ulyanov, Vedaldi and Lempitsky 2016 (instance norm);
 *          torch.nn.GroupNorm.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_GROUP_NORM_H
#define VX_KERNELS_GROUP_NORM_H

#include "kernels/activation.h"

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

void vx_group_norm_ref(const struct vx_group_norm_args *args);

#endif
