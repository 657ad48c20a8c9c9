/* model_kernels - lists every binary that a model can launch.
 *
 * All of them are made ready before the model serves.
 *
 *   struct vx_gpu_wanted wanted = {.count = 0};
 *   VX_TRY(vx_gpu_wanted_model(&wanted, choices, voxels_max, &why));
 *   VX_TRY(vx_kernel_set_ready(set, wanted.list, wanted.count, progress, &why));
 *
 * Owner    the caller's struct; specs and tiles are static.
 * Thread   any; pure.
 * Limits   VX_GPU_WANTED_MAX binaries.
 * Fails    RESOURCE_EXHAUSTED more than that.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_KERNELS_H
#define VX_ENGINE_GPU_MODEL_KERNELS_H

#include "engine/gpu/model/model_choice.h"

/* 31 sizes of a dozen distinct layers, three kernels each, mostly of the same tiles. */
#define VX_GPU_WANTED_MAX 1024

struct vx_gpu_wanted {
    struct vx_jit_wanted list[VX_GPU_WANTED_MAX];
    i32 count;
};

/* Kernels that make one pass over the rows, and are not tuned. */
enum vx_gpu_pass {
    VX_GPU_ROWS_IN,
    VX_GPU_ROWS_OUT,
    VX_GPU_ACTIVATION,
    VX_GPU_ADD,
    VX_GPU_AFFINE,
    VX_GPU_ARGMAX,
    VX_GPU_BATCH_NORM,
    VX_GPU_CONCAT,
    VX_GPU_CONV_GROUP,
    VX_GPU_CURVE,
    VX_GPU_DEVOXELIZE,
    VX_GPU_GROUP_APPLY,
    VX_GPU_GROUP_SUMS,
    VX_GPU_LAYER_NORM,
    VX_GPU_MUL,
    VX_GPU_POOL,
    VX_GPU_ROW_GATHER,
    VX_GPU_SAMPLE_CHUNKS,
    VX_GPU_SAMPLE_POOL,
    VX_GPU_SOFTMAX,
    VX_GPU_TO_DENSE,
    VX_GPU_VOXEL_MEAN,
    VX_GPU_PASSES_COUNT
};
/* The binary of a pass over tensors of `type`. */
struct vx_jit_wanted vx_gpu_pass_wanted(enum vx_gpu_pass pass, enum vx_number type);

/* Adds all binaries that requests of up to N voxels launch. */
VX_MUST_USE vx_status vx_gpu_wanted_model(struct vx_gpu_wanted *wanted,
                                          const struct vx_gpu_choices *choices, i64 n,
                                          struct vx_why *why);

#endif
