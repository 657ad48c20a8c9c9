/* blas - the vendor's matrix product (cuBLAS), for the algorithm EXPLICIT (conv.h).
 *
 * The library is opened with dlopen.  It chooses the order of summation and may change it
 * with the number of rows.  AUTO never uses it, because a request must have the same bits
 * alone and in a batch.
 *
 *   VX_TRY(vx_blas_gpu_open(gpu, NULL, &why, &blas));
 *   VX_TRY(vx_blas_gpu_multiply(blas, stream, &product, &why));
 *   vx_blas_gpu_close(&blas);
 *
 * Owner    the caller.
 * Thread   device.
 * Limits   CUDA; sizes below 2^31.
 * Fails    open: NOT_FOUND no library; RESOURCE_EXHAUSTED its workspace does not fit.
 *          multiply: INTERNAL with the library's number.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_BLAS_H
#define VX_ENGINE_GPU_BLAS_H

#include "engine/gpu/driver/gpu.h"

struct vx_blas_gpu;

/* out (rows, columns) f32 = left (rows, depth) . right (depth, columns), row-major. */
struct vx_blas_product {
    i64 rows;
    i32 depth, columns;
    enum vx_number type; /* of left and right */
    const void *left, *right;
    f32 *out;
};

/* `library`: path of libcublas; NULL = searched. */
VX_MUST_USE vx_status vx_blas_gpu_open(struct vx_gpu *gpu, const char *library,
                                       struct vx_why *why, struct vx_blas_gpu **blas);
void vx_blas_gpu_close(struct vx_blas_gpu **blas);
VX_MUST_USE vx_status vx_blas_gpu_multiply(struct vx_blas_gpu *blas,
                                           struct vx_gpu_stream *stream,
                                           const struct vx_blas_product *product,
                                           struct vx_why *why);

#endif
