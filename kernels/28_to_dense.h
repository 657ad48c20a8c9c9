/* 28_to_dense - rows of voxels as a dense tensor, with 0 where there is no voxel.
 *
 * Math     out[b,c,x,y,z] = in[r,c] with r the row of the voxel (b,x,y,z), or 0
 * Shapes   keys (N)  rows (N)  in (M,C)  out (samples,C,X,Y,Z)
 * Types    u64 keys; in f32; out F32, F16 or BF16, one rounding.
 * Idea     Zeros, then each row to its places.  With the channels of x outside of those of
 *          y and z, out is also (samples, C*X, Y, Z), so that a bird's-eye view is the same
 *          bytes.
 * Steps    1 fill with zeros   2 scatter
 * Tiles    rows.
 * Cost     bytes: all of out once, and once more the places of voxels; 4*N*C + 12*N read.
 * Limits   every voxel lies in 0 .. shape - 1 and its sample below `samples`; no voxel
 *          twice.  C*X*Y*Z < 2^31.
 * Order    exact.
 * Oracle   28_to_dense_ref.c, tests/unit/engine/cpu/device/test_cpu_dense.c.
 * Source   spconv 2: SparseConvTensor.dense; OpenPCDet: HeightCompression.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TO_DENSE_H
#define VX_KERNELS_TO_DENSE_H

#include "kernels/number.h"

#include <stdint.h>

struct vx_to_dense_args {
    int64_t n;
    int32_t c, samples;
    int32_t shape[3];
    const uint64_t *keys; /* (N) vx_key_pack */
    const int32_t *rows;  /* (N) the row of `in` of each key */
    const float *in;      /* (M, C) */
    enum vx_number type;  /* of out */
    void *out;            /* (samples, C, X, Y, Z) */
};

void vx_to_dense_ref(const struct vx_to_dense_args *args);

#endif
