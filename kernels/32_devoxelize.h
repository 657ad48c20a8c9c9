/* 32_devoxelize - voxels to points: trilinear interpolation of the voxels around a point.
 *
 * Math     with p the coordinates of a point, q = p / stride, and corner k of its cell,
 *          k = (kx*2 + ky)*2 + kz, each 0 or 1, at floor(q) + (kx, ky, kz):
 *          w[k]   = product over the axes of 1 - |q - (floor(q) + k)|, 0 where voxels has
 *                   no row; a row of weight 0 is not read
 *          out[r] = act(sum over k of w[k] / (sum of w + 1e-8) * in[voxels[k,r]])
 *          of the point in row r; so 0 where the cell has no voxel
 * Shapes   keys, rows (N)  voxels (8,N)  in (M,C)  out (N,C)
 *          device: nbr (N,S), S >= 8  in (M,Cp)  out (N,Cp)
 * Types    u64 keys; f32; device: VX_TYPE (F32, F16, BF16; TF32 as F32), weights and sums in
 *          f32, one rounding at the end.
 * Idea     A weighted sum of up to 8 rows; the weights follow from the key.
 * Steps    1 weights and rows of a point   2 their sum
 * Tiles    points, in the order of keys; on a device a thread has some channels of a point.
 * Cost     flops 16*N*C; bytes up to 32*N*C + 44*N read, 4*N*C written.
 * Limits   1 <= stride <= 4096; rows is a permutation.
 * Order    of the corners; so the bits of a point depend on its own voxels alone.
 * Oracle   32_devoxelize_ref.c, 32_devoxelize_device_ref.c, tests/oracle/cases_points.c,
 *          tests/unit/engine/cpu/device/test_cpu_points.c.
 * Source   SPVCNN (Tang et al., ECCV 2020): voxel_to_point of spvnas, calc_ti_weights of
 *          TorchSparse 1.4 to 2.1, whose 1e-8 this has, too: at stride 16 a lone corner
 *          counts up to 4e-5 less than 1.  There the points have coordinates of f32.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_DEVOXELIZE_H
#define VX_KERNELS_DEVOXELIZE_H

#include "kernels/10_activation.h"

#include <stdint.h>

#define VX_CORNERS 8
/* Added to the sum of weights by which they are divided. */
#define VX_CORNERS_EPS 1e-8

struct vx_devoxelize_args {
    int64_t n; /* points */
    int32_t c;
    int32_t stride[3];     /* points in a voxel along x y z */
    const uint64_t *keys;  /* (N) vx_key_pack */
    const int32_t *rows;   /* (N) the point with each key */
    const int32_t *voxels; /* (8, N) by point: the rows at the corners, -1 = none */
    const float *in;       /* (M, C) */
    enum vx_activation activation;
    float *out; /* (N, C) */
};

struct vx_devoxelize_device_args {
    int64_t n;
    int32_t c, cp;        /* real channels, and those of a row */
    int32_t activation;   /* enum vx_activation */
    int32_t nbr_stride;   /* entries of a row of nbr */
    int32_t stride[3];    /* as above */
    const uint64_t *keys; /* (N) */
    const int32_t *rows;  /* (N) */
    const int32_t *nbr;   /* (N, nbr_stride) by point, -1 = none */
    const void *in;       /* (M, cp) */
    void *out;            /* (N, cp) */
};

void vx_devoxelize_ref(const struct vx_devoxelize_args *args);

#endif
