/* model - a network made ready for a device: description, plan, weights, signature.
 *
 * Loading is parse, check, fuse, plan, lay out, in that order, so that what is wrong is
 * said before memory is taken.  Nothing here touches a device: it runs on the main thread
 * while the device thread serves other models.
 *
 *   VX_TRY(vx_model_open(&source, &options, &why, &model));
 *   vx_exec_run(exec, model->plan, model->weights, item);
 *   vx_model_close(&model);
 *
 * Owner    the caller; after open nothing in it changes.
 * Thread   open, close: any; read: any.
 * Limits   engine/base/limits.h.
 * Fails    NOT_FOUND, INVALID_ARGUMENT, DATA_LOSS for its files; RESOURCE_EXHAUSTED
 *          when the model, or the voxels it promises to take, do not fit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_MODEL_H
#define VX_ENGINE_MODEL_MODEL_H

#include "engine/engine.h"
#include "engine/model/weights.h"
#include "engine/plan/plan.h"

#define VX_MODEL_MAGIC 0x76784d4fu /* "vxMO" */

struct vx_model {
    u32 magic;
    struct vx_signature signature;
    const struct vx_network *network;
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    struct vx_weights *weights;
    void *block; /* of the arena that holds network, graph and plan */
};

struct vx_model_options {
    size_t device_bytes; /* for activations; 0 = no device, nothing to fit */
    const struct vx_progress *progress;
};

VX_MUST_USE vx_status vx_model_open(const struct vx_model_source *source,
                                    const struct vx_model_options *options,
                                    struct vx_why *why, struct vx_model **model);
void vx_model_close(struct vx_model **model);

#endif
