/* model_launch - puts one request on a stream: geometry, features, layers, outputs.
 *
 * Nothing here waits or allocates, and nothing depends on what the device finds: a
 * request whose coordinates are bad runs through like any other, inside its own memory,
 * and is refused when its flags have come back.
 *
 *   struct vx_gpu_request request = {.gpu = gpu, .queue = {set, stream, NULL}, ...};
 *   VX_TRY(vx_gpu_request_geometry(&request, item, &why));
 *   VX_TRY(vx_gpu_request_feats(&request, item, &why));
 *   VX_TRY(vx_gpu_request_layers(&request, &why));
 *   VX_TRY(vx_gpu_request_outputs(&request, item, &why));
 *   (wait for the stream)
 *
 * Owner    the caller; all is borrowed until the stream has passed it.
 * Thread   device.
 * Limits   places must have been made for the item's voxels, and must fit the block.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_LAUNCH_H
#define VX_ENGINE_GPU_MODEL_LAUNCH_H

#include "engine/gpu/model_choice.h"
#include "engine/gpu/model_kernels.h"
#include "engine/gpu/model_weights.h"

struct vx_gpu_request {
    struct vx_gpu *gpu;
    struct vx_gpu_queue queue;
    const struct vx_gpu_choices *choices;
    const struct vx_gpu_places *places;
    const struct vx_gpu_weights *weights;
    u8 *block;               /* device memory that the places count from */
    struct vx_gpu_map *maps; /* (VX_LAYERS_MAX) overwritten */
    struct vx_gpu_index index;
};

VX_MUST_USE vx_status vx_gpu_request_geometry(struct vx_gpu_request *request,
                                              const struct vx_item *item,
                                              struct vx_why *why);
/* item->feats NULL: zeros. */
VX_MUST_USE vx_status vx_gpu_request_feats(const struct vx_gpu_request *request,
                                           const struct vx_item *item,
                                           struct vx_why *why);
VX_MUST_USE vx_status vx_gpu_request_layers(const struct vx_gpu_request *request,
                                            struct vx_why *why);
/* Those that are wanted. */
VX_MUST_USE vx_status vx_gpu_request_outputs(const struct vx_gpu_request *request,
                                             const struct vx_item *item,
                                             struct vx_why *why);
void *vx_gpu_request_tensor(const struct vx_gpu_request *request, i32 tensor);

#endif
