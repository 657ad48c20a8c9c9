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
 * A device that has more to decide before weights are read goes step by step: begin, fit,
 * finish.  What it adds to a model is its own to release before close.
 *
 * Owner    the caller; after open nothing in it changes but `warmed`.
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
#include "kernels/kernel.h"

#define VX_MODEL_MAGIC 0x76784d4fu /* "vxMO" */

struct vx_safetensors;
struct vx_gpu_model;

struct vx_model {
    u32 magic;
    enum vx_number number; /* what it is computed in; f32 on the CPU */
    struct vx_signature signature;
    const struct vx_network *network;
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    struct vx_weights *weights;  /* in f32; NULL when a GPU has its own */
    struct vx_safetensors *file; /* from begin to finish */
    struct vx_gpu_model *gpu;    /* NULL on the CPU */
    char *notes;                 /* from finish on (notes.h) */
    i64 warmed;  /* pieces of its warm-up that the device has run; the device thread's */
    void *block; /* of the arena that holds network, graph and plan */
};

struct vx_model_options {
    size_t device_bytes; /* for activations; 0 = no device, nothing to fit */
    size_t cache_bytes;  /* for a geometry; likewise */
    const struct vx_progress *progress;
};

VX_MUST_USE vx_status vx_model_open(const struct vx_model_source *source,
                                    const struct vx_model_options *options,
                                    struct vx_why *why, struct vx_model **model);

/* Reads the description and checks the weights file; for a GPU, residuals are fused and
 * tensors padded and of the network's precision. */
VX_MUST_USE vx_status vx_model_begin(const struct vx_model_source *source, bool gpu,
                                     struct vx_why *why, struct vx_model **model);
/* Checks what the file promises against the room there is, one room a call; what it does not
 * promise becomes what fits. */
struct vx_model_room {
    size_t bytes;                               /* 0 = no device, nothing to fit */
    size_t (*need)(const void *context, i64 n); /* of N voxels; never falls with N */
    const void *context;
    const char *memory, *setting; /* what it is, and what says how much there is of it */
    const char *what;             /* that needs them, for the sentence */
};
VX_MUST_USE vx_status vx_model_fit(struct vx_model *model,
                                   const struct vx_model_room *room, struct vx_why *why);
/* Reads the weights, notes what is odd about them, and closes their file. */
VX_MUST_USE vx_status vx_model_finish(struct vx_model *model,
                                      const struct vx_progress *progress,
                                      struct vx_why *why);
void vx_model_close(struct vx_model **model);

#endif
