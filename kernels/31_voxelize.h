/* 31_voxelize - the mean of the points in each voxel.
 *
 * Math     out[v,c] = sum over the points r with voxels[r] = v of in[r,c], divided by how
 *          many there are; 0 where there is none
 * Shapes   order, voxels (N)  in (N,C)  out (M,C)
 * Types    f32; sums in f64, one division and one rounding at the end.
 * Idea     A sum whose order is that of `order`: the points of a voxel stand together in
 *          it, so that each voxel is a chain of its own, of any length.
 * Steps    1 zeros   2 find where voxels begin in `order`   3 add up, divide, store
 * Tiles    places of `order`; a voxel belongs to the tile in which it begins.
 * Cost     flops N*C; bytes 4*N*C + 8*N read, 8*M*C written.
 * Limits   order is a permutation, in which the points of a voxel stand together; voxels of
 *          points that count nowhere are -1, others lie in 0 .. M - 1.
 * Order    the bits of a voxel depend on its own points and their order alone.
 * Oracle   31_voxelize_ref.c, tests/unit/engine/cpu/device/test_cpu_points.c.
 * Source   SPVCNN (Tang et al., ECCV 2020): point_to_voxel of spvnas.  It has points that no
 *          voxel has left out in TorchSparse 1.4; with TorchSparse 2.1 it adds them to row
 *          0, which this does not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_VOXELIZE_H
#define VX_KERNELS_VOXELIZE_H

#include <stdint.h>

struct vx_voxelize_args {
    int64_t n, m; /* points, voxels */
    int32_t c;
    const int32_t *order;  /* (N) rows of points */
    const int32_t *voxels; /* (N) the row of each point's voxel, -1 = none */
    const float *in;       /* (N, C) */
    float *out;            /* (M, C) */
};

void vx_voxelize_ref(const struct vx_voxelize_args *args);

#endif
