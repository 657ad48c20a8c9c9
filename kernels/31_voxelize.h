/* 31_voxelize - the mean of the points in each voxel.
 *
 * Math     out[v,c] = act(sum over the points r of voxel v of in[r,c], divided by how many
 *          there are); of none: act(0)
 *          words[r] = the row of the voxel of point r, M if it has none
 * Shapes   order, voxels (N)  in (N,C)  out (M,C)
 *          device: nbr (N,S)  words, order (N)  in (N,Cp)  out (M,Cp)
 * Types    in and out f32; device: VX_TYPE (F32, F16, BF16; TF32 as F32).  Sums in f64, one
 *          division and one rounding at the end.
 * Idea     A sum whose order is that of `order`: the points of a voxel stand together in
 *          it, so that each voxel is a chain of its own, of any length.  A device makes
 *          the order when it runs: points in canonical order, sorted by words (05_mask_order).
 * Steps    CPU: zeros; find where voxels begin in `order`; add up, divide, store
 *          voxel_words  a thread writes the word of a point
 *          voxel_mean   a thread has some channels of a voxel: it finds the voxel's places by
 *                       bisection, adds up 4 points at a time, divides, applies the activation;
 *                       a voxel of more than VX_VOXEL_ALONE points is of all threads of its
 *                       block, a chunk each: by one thread a million points in one voxel took
 *                       0.7 s, in which the device was theirs
 * Tiles    CPU: places of `order`; device: voxels.
 * Cost     flops N*C; bytes 4*N*C + 8*N read, 4*M*C written (CPU: twice); device: those of the
 *          type, 16*N for the words, and 2 log2(N) look-ups for each voxel.
 * Limits   order is a permutation, in which the points of a voxel stand together, on a device
 *          ascending by word; voxels of points that count nowhere are -1.  The CPU applies no
 *          activation.
 * Order    the bits of a voxel depend on its own points and their order alone: a device adds chunks
 *          of VX_VOXEL_CHUNK, however many threads sum them.
 * Oracle   31_voxelize_ref.c, 31_voxelize_device_ref.c, tests/oracle/cases_points.c,
 *          tests/unit/engine/cpu/device/test_cpu_points.c.
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

#define VX_VOXEL_THREADS 256 /* of voxel_words */
/* Points are summed in chunks of so many, whose sums are added in their order. */
#define VX_VOXEL_CHUNK 128
/* A voxel of more is of all threads of a block of voxel_mean. */
#define VX_VOXEL_ALONE 2048

struct vx_voxel_words_args {
    int64_t n, m;
    int32_t nbr_stride;
    const int32_t *nbr; /* (N, nbr_stride): the row of each point's voxel, -1 = none */
    uint64_t *words;    /* (N) out */
};

struct vx_voxelize_device_args {
    int64_t n, m;
    int32_t c, cp;         /* real channels, and those of a row */
    int32_t activation;    /* enum vx_activation */
    const int32_t *order;  /* (N) points, ascending by word */
    const uint64_t *words; /* (N) by point */
    const void *in;        /* (N, cp) */
    void *out;             /* (M, cp) */
};

void vx_voxelize_ref(const struct vx_voxelize_args *args);

#endif
