/* pointwise_spec - what the descriptions of the pointwise kernels share, and their
 * references.
 *
 * Owner    -
 * Thread   any.
 * Limits   as pointwise.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_POINTWISE_SPEC_H
#define VX_KERNELS_POINTWISE_SPEC_H

#include "kernels/13_elementwise.h"
#include "kernels/kernel.h"
#include "kernels/pointwise.h"

#define VX_POINTWISE_TYPES                                                               \
    (1u << VX_NUMBER_F32 | 1u << VX_NUMBER_F16 | 1u << VX_NUMBER_BF16 |                  \
     1u << VX_NUMBER_TF32)

static inline int32_t vx_pointwise_threads(const struct vx_tile *tile)
{
    (void)tile; /* there is one */
    return VX_POINTWISE_THREADS;
}

/* A grid whose blocks take `part` of `count` each. */
static inline struct vx_grid vx_pointwise_grid(int64_t count, int64_t part)
{
    return (struct vx_grid){(uint32_t)((count + part - 1) / part), 1, 1};
}

/* Each takes the argument struct of its kernel, in host memory. */
void vx_activation_device_ref(const void *pointer, enum vx_number type);
void vx_batch_norm_device_ref(const void *pointer, enum vx_number type);
void vx_layer_norm_device_ref(const void *pointer, enum vx_number type);
void vx_add_device_ref(const void *pointer, enum vx_number type);
void vx_mul_device_ref(const void *pointer, enum vx_number type);
void vx_affine_device_ref(const void *pointer, enum vx_number type);
void vx_concat_device_ref(const void *pointer, enum vx_number type);
void vx_curve_device_ref(const void *pointer, enum vx_number type);
void vx_row_gather_device_ref(const void *pointer, enum vx_number type);
void vx_pool_device_ref(const void *pointer, enum vx_number type);
void vx_conv_group_ref(const void *pointer, enum vx_number type);
void vx_group_sums_ref(const void *pointer, enum vx_number type);
void vx_group_means_ref(const void *pointer, enum vx_number type);
void vx_group_apply_ref(const void *pointer, enum vx_number type);
void vx_sample_chunks_ref(const void *pointer, enum vx_number type);
void vx_sample_pool_ref(const void *pointer, enum vx_number type);
void vx_voxel_words_ref(const void *pointer, enum vx_number type);
void vx_voxel_mean_ref(const void *pointer, enum vx_number type);
void vx_devoxelize_device_ref(const void *pointer, enum vx_number type);
void vx_softmax_device_ref(const void *pointer, enum vx_number type);
void vx_argmax_device_ref(const void *pointer, enum vx_number type);
void vx_dense_check_ref(const void *pointer, enum vx_number type);
void vx_dense_cells_ref(const void *pointer, enum vx_number type);
void vx_to_dense_device_ref(const void *pointer, enum vx_number type);
void vx_rows_in_ref(const void *pointer, enum vx_number type);
void vx_rows_out_ref(const void *pointer, enum vx_number type);
void vx_conv_reduce_ref(const void *pointer, enum vx_number type);
void vx_pair_reduce_ref(const void *pointer, enum vx_number type);

#endif
