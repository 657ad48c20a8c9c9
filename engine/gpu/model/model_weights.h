/* model_weights - the weights of one model in the layout that the device's kernels read.
 *
 * The loading thread lays them out on the host in one block: convolutions and linear
 * layers as (V, Cip, Cop) of the model's type, padded with zeros, so that the padded
 * channels of a row add nothing; biases and norms as f32 of padded channels.  The device
 * thread then copies the block to the device, once.  Where convolutions may stream
 * (conv.h), it tiles their weights there, beside it.
 *
 *   VX_TRY(vx_gpu_weights_open(plan, type, weights, &why, &mine));     (loading thread)
 *   VX_TRY(vx_gpu_weights_upload(mine, &queue, &why));                 (device thread)
 *   struct vx_gpu_weight weight = vx_gpu_weight_get(mine, node);
 *   vx_gpu_weights_close(&mine, gpu);                                  (device thread)
 *
 * Owner    the caller; the plan outlives it, the f32 weights may be closed after open.
 * Thread   as above.
 * Limits   memory of host and device.
 * Fails    RESOURCE_EXHAUSTED with the bytes; INVALID_ARGUMENT a weight beyond the type.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_WEIGHTS_H
#define VX_ENGINE_GPU_MODEL_WEIGHTS_H

#include "engine/gpu/conv/conv.h"
#include "engine/plan/plan.h"
#include "engine/weights/weights.h"

struct vx_gpu_weights;

/* On the device; NULL = the node has none. */
struct vx_gpu_weight {
    /* Convolution, linear (V, Cip, Cop), of E4M3 bytes; norms (Cp) f32: scale. */
    const void *weight;
    const void *tiled; /* the same, tiled, for convolutions that may stream */
    const f32 *scale;  /* of E4M3: (Cop), of a column's weights times its input's */
    const f32 *bias;   /* (Cop) or (Cp): shift */
};

struct vx_gpu_weights_want {
    const struct vx_plan *plan;
    const enum vx_number *numbers; /* by node: what a convolution multiplies */
};
VX_MUST_USE vx_status vx_gpu_weights_open(const struct vx_gpu_weights_want *want,
                                          const struct vx_weights *weights,
                                          struct vx_why *why,
                                          struct vx_gpu_weights **made);
/* Of a device where convolutions may stream; before upload. */
void vx_gpu_weights_tile(struct vx_gpu_weights *weights);
VX_MUST_USE vx_status vx_gpu_weights_upload(struct vx_gpu_weights *weights,
                                            const struct vx_gpu_queue *queue,
                                            struct vx_why *why);
/* `gpu` may be NULL for weights that were never uploaded. */
void vx_gpu_weights_close(struct vx_gpu_weights **weights, struct vx_gpu *gpu);
/* True once uploaded. */
bool vx_gpu_weights_there(const struct vx_gpu_weights *weights);
size_t vx_gpu_weights_bytes(const struct vx_gpu_weights *weights);
struct vx_gpu_weight vx_gpu_weight_get(const struct vx_gpu_weights *weights, i32 node);

#endif
