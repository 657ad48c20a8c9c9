/* model_load - loads a model for one GPU: all steps that do not need the device thread.
 *
 *   VX_TRY(vx_gpu_model_open(&load, &source, progress, &why, &model));
 *   model->gpu->choices, model->gpu->weights ...
 *   vx_gpu_model_close(gpu, &model);
 *
 * Owner    the caller owns the model; the load is borrowed for the call.
 * Thread   open: the loading thread; close: device.
 * Limits   load.bytes of device memory for a request.
 * Fails    as vx_model_open, vx_kernel_set_ready; RESOURCE_EXHAUSTED with the numbers
 *          when the weights are more than the device has free.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_LOAD_H
#define VX_ENGINE_GPU_MODEL_LOAD_H

#include "engine/base/text/coords_ref.h"
#include "engine/gpu/model/model_kernels.h"
#include "engine/gpu/model/model_tune.h"
#include "engine/gpu/model/model_weights.h"
#include "engine/model/model.h"

struct vx_gpu_model {
    struct vx_gpu_choices *choices;
    struct vx_gpu_weights *weights;
    struct vx_gpu_tune tune;        /* what is still to be measured */
    struct vx_coords_ref maps_name; /* hash of the plan's sets and maps, for the store */
    /* The layout of the round that is being launched.  The device thread writes it; load
     * uses it to compute sizes. */
    struct vx_gpu_places places;
    /* (VX_BATCH_ITEMS_MAX + 1, the plan's maps); the join's are last. */
    struct vx_gpu_map *maps;
    struct vx_gpu_map *sorted;      /* one per entry of places.sorted */
    struct vx_gpu_ordered *ordered; /* (VX_BATCH_ITEMS_MAX + 1, the plan's), as maps */
    /* Of the followed maps, as the last round has counted; 0 = none has. */
    f32 fills[VX_GPU_FILLS_MAX];
};

/* What loading needs of a device.  After open nothing of it changes, except the table
 * that `pick` reads under the tuner's lock. */
struct vx_gpu_load {
    struct vx_gpu *gpu;
    const struct vx_pick *pick;
    enum vx_tune_mode tune;
    struct vx_gpu_tuner tuner;
    size_t bytes;
};
VX_MUST_USE vx_status vx_gpu_model_open(const struct vx_gpu_load *load,
                                        const struct vx_model_source *source,
                                        const struct vx_progress *progress,
                                        struct vx_why *why, struct vx_model **model);
void vx_gpu_model_close(struct vx_gpu *gpu, struct vx_model **model);

/* Adds to `wanted` the kernels that a model launches on the device that `pick` describes,
 * for requests of up to the model's voxels_max.  Needs no device.  `wanted` may already
 * have kernels of other models. */
VX_MUST_USE vx_status vx_gpu_model_kernels(const struct vx_model_source *source,
                                           const struct vx_pick *pick, struct vx_why *why,
                                           struct vx_gpu_wanted *wanted);

#endif
