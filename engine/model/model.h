/* model - a loaded network: description, plan, weights, signature.
 *
 * Loading parses, checks, fuses, plans and lays out, in that order, so that errors are
 * found before memory is taken.  Nothing here touches a device: it runs on the main
 * thread while the device thread serves other models.
 *
 *   VX_TRY(vx_model_open(&source, &why, &model));
 *   vx_exec_run(exec, model->plan, model->weights, item);
 *   vx_model_close(&model);
 *
 * A GPU has more to decide before the weights are read, so it calls begin, fit and finish
 * instead of open.  It releases what it has added to a model (`gpu`) before close.
 *
 * Owner    the caller; after open only `warmed` changes.
 * Thread   open, close: any; read: any.
 * Limits   engine/base/limits.h.
 * Fails    NOT_FOUND, INVALID_ARGUMENT, DATA_LOSS for its files; RESOURCE_EXHAUSTED when
 *          the model, or a request of limits.voxels_max voxels, does not fit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_MODEL_H
#define VX_ENGINE_MODEL_MODEL_H

#include "engine/device.h"
#include "engine/plan/plan.h"
#include "engine/signature.h"
#include "engine/weights/weights.h"
#include "kernels/kernel.h"

#define VX_MODEL_MAGIC 0x76784d4fu /* "vxMO" */

struct vx_safetensors;
struct vx_gpu_model;

struct vx_model {
    u32 magic;
    enum vx_number number; /* the type of the computation; f32 on the CPU */
    struct vx_signature signature;
    const struct vx_network *network;
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    struct vx_weights *weights;  /* in f32; NULL for a GPU, which has its own */
    struct vx_safetensors *file; /* from begin to finish */
    struct vx_gpu_model *gpu;    /* NULL on the CPU */
    char *notes;                 /* from finish on (notes.h) */
    i64 warmed;  /* warm-up steps that have run; written by the device thread */
    void *block; /* memory of the arena that holds network, graph and plan */
};

/* Both steps below at once, for no device. */
VX_MUST_USE vx_status vx_model_open(const struct vx_model_source *source,
                                    struct vx_why *why, struct vx_model **model);

/* Reads the description, checks the weights file and plans.  For a GPU the graph has
 * fused residuals, and the plan has padded tensors in the network's precision. */
VX_MUST_USE vx_status vx_model_begin(const struct vx_model_source *source, bool gpu,
                                     struct vx_why *why, struct vx_model **model);
/* Checks the model against one kind of memory.  limits.voxels_max or a warm-up size that
 * network.json sets must fit, else RESOURCE_EXHAUSTED; where it sets none, the signature
 * gets the most that fits. */
struct vx_model_room {
    size_t bytes; /* of this memory; 0 = no device, do not check */
    /* Bytes that a request of N voxels needs; never falls as N grows. */
    size_t (*need)(const void *context, i64 n);
    const void *context;
    const char *memory;  /* its name */
    enum vx_bound bound; /* the setting that gives its size */
    const char *what;    /* what needs the bytes, for the error sentence */
};
VX_MUST_USE vx_status vx_model_fit(struct vx_model *model,
                                   const struct vx_model_room *room, struct vx_why *why);
/* Reads the weights, writes the notes, and closes the weights file. */
VX_MUST_USE vx_status vx_model_finish(struct vx_model *model,
                                      const struct vx_progress *progress,
                                      struct vx_why *why);
void vx_model_close(struct vx_model **model);

#endif
