/* 28_to_dense_device - rows of voxels as a dense tensor, on a device.
 *
 * Math     out[b,c,x,y,z] = in[r,c] with r the row of voxel (first + b,x,y,z), or 0
 *          dense_check    key     = the smallest key of a job that lies outside of its shape
 *                         samples = 1 + the largest sample of a job
 *          dense_cells    cells[b,x,y,z] = r
 * Shapes   keys (N)  in (N,Cp)  cells (samples,X,Y,Z)  out (samples,C,X,Y,Z)
 *          of a job of dense_check: keys (N) or coords (N,4)
 * Types    u64 keys, i32 coords and cells; in VX_TYPE (F32, F16, BF16; TF32 as F32); out
 *          F32, F16 or BF16, one rounding.
 * Idea     Zeros and a scatter write a sector of memory for each number: 128 channels lie
 *          128 planes apart.  So the rows' numbers are scattered, one for each voxel, and
 *          then each number of the tensor is written once, whole lines of a channel at a
 *          time; a tile of voxels and channels is turned round in shared memory.
 *          A few samples at a time, so that the memory does not depend on their number.
 * Steps    dense_check  1 the least of each thread, of each block, of all
 *          dense_cells  1 the place of each voxel   2 its row
 *          to_dense     1 rows of the tile's voxels   2 their numbers, or zeros
 *                       3 channel by channel
 * Tiles    VX_DENSE_CELLS voxels along z, y, x by VX_DENSE_CHANNELS channels.
 * Cost     bytes: out and cells once, N*C of the type, 12*N; dense_check 8*N or 16*N.
 * Limits   cells are -1 before dense_cells, and found as vx_dense_nothing before
 *          dense_check; no voxel twice.  A voxel outside of shape or of the samples is
 *          left out.  samples*C*X*Y*Z < 2^31, or samples = 1; jobs < 2^16.
 * Order    exact.
 * Oracle   28_to_dense_device_ref.c, tests/oracle/cases_dense.c.
 * Source   spconv 2: SparseConvTensor.dense; OpenPCDet: PointPillarScatter.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TO_DENSE_DEVICE_H
#define VX_KERNELS_TO_DENSE_DEVICE_H

#include "kernels/01_coord_hash.h"

#include <stdint.h>

#define VX_DENSE_THREADS  256
#define VX_DENSE_CELLS    128
#define VX_DENSE_CHANNELS 32

/* One of both is NULL. */
struct vx_dense_job {
    int64_t n;
    const uint64_t *keys;  /* (n) which lies outside? */
    const int32_t *coords; /* (n, 4) how many samples are there? */
    int32_t shape[3];      /* of keys */
};
struct vx_dense_found {
    uint64_t key; /* VX_KEY_EMPTY: none lies outside */
    int32_t samples, unused;
};
/* A row of blocks (y) for each job. */
struct vx_dense_check_args {
    int64_t count; /* jobs */
    uint32_t blocks;
    const struct vx_dense_job *jobs; /* (count) in device memory */
    struct vx_dense_found *found;    /* (count) in and out */
};

struct vx_dense_cells_args {
    int64_t n;
    const uint64_t *keys; /* (n) */
    int32_t first, samples;
    int32_t shape[3];
    int32_t *cells; /* (samples, X, Y, Z) in and out */
};

struct vx_to_dense_device_args {
    int64_t samples;
    int32_t c, cp; /* real channels, and those of a row */
    int32_t shape[3];
    int32_t number; /* of out: F32, F16 or BF16 */
    const int32_t *cells;
    const void *in; /* (N, cp) */
    void *out;      /* (samples, C, X, Y, Z) */
};

VX_BOTH int64_t vx_dense_plane(const int32_t shape[3])
{
    return (int64_t)shape[0] * shape[1] * shape[2];
}

/* Tiles of one sample, a block each, along x; VX_DENSE_CHANNELS channels each, along y. */
VX_BOTH int64_t vx_dense_tiles(const struct vx_to_dense_device_args *args)
{
    return (vx_dense_plane(args->shape) + VX_DENSE_CELLS - 1) / VX_DENSE_CELLS;
}

/* The place of a voxel in its sample; -1: outside. */
VX_BOTH int64_t vx_dense_place(uint64_t key, const int32_t shape[3])
{
    int64_t place = 0;
    for (int axis = 0; axis < 3; axis++) {
        int32_t at = vx_key_axis(key, axis);
        if (at < 0 || at >= shape[axis]) return -1;
        place = place * shape[axis] + at;
    }
    return place;
}

VX_BOTH struct vx_dense_found vx_dense_nothing(void)
{
    struct vx_dense_found found = {VX_KEY_EMPTY, 0, 0};
    return found;
}

#endif
