/* weights - the weights of a network, checked and laid out for the kernels.
 *
 * The file holds tensors as PyTorch wrote them; kernels need (V, Ci, Co) and (Co) in f32,
 * with the batch norms folded in; those of layers in FP8 are rounded to e4m3 then, each
 * column with a scale of its own, and stay f32.  The check comes first and reads only shapes
 * and types, so that a wrong file is refused before memory is taken.
 *
 *   VX_TRY(vx_weights_check(network, file, &why));
 *   VX_TRY(vx_weights_open(graph, file, progress, &why, &weights));
 *   const struct vx_node_weights *w = vx_weights_get(weights, node_index);
 *   vx_weights_close(&weights);
 *
 * Owner    the caller; all weights are one block, freed by close.  The file may be closed
 *          after open.
 * Thread   any (the loading thread); after open the weights are only read.
 * Limits   the memory of the machine; open needs room for one more tensor than it keeps.
 * Fails    INVALID_ARGUMENT: a missing tensor, a wrong shape, a shape that allows several
 *          layouts, an unusable dtype, a bias or a norm's weight that is in the file but
 *          that the layer leaves out, a variance that is not above -eps;
 *          RESOURCE_EXHAUSTED.  The why names the file, the tensor and the layer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_WEIGHTS_H
#define VX_ENGINE_MODEL_WEIGHTS_H

#include "engine/device.h"
#include "engine/network/fuse.h"
#include "engine/weights/safetensors.h"

/* The weights of one node, each aligned to 64 bytes; NULL = the node has none. */
struct vx_node_weights {
    const f32 *weight; /* SUBM_CONV (V, Ci, Co), LINEAR (Ci, Co), norms (C): scale */
    const f32 *bias;   /* SUBM_CONV, LINEAR (Co), norms (C): shift */
};

struct vx_weights;

/* Checks the tensors of every layer, and decides layouts that are not set (layout.h); then
 * that each library makes the voxels of its layers (blocks.h). */
VX_MUST_USE vx_status vx_weights_check(const struct vx_network *network,
                                       const struct vx_safetensors *file,
                                       struct vx_why *why);
/* The bytes that open keeps.  Pure. */
i64 vx_weights_bytes(const struct vx_graph *graph);
/* The file has passed vx_weights_check for this network.  `progress` may be NULL. */
VX_MUST_USE vx_status vx_weights_open(const struct vx_graph *graph,
                                      const struct vx_safetensors *file,
                                      const struct vx_progress *progress,
                                      struct vx_why *why, struct vx_weights **weights);
void vx_weights_close(struct vx_weights **weights);
/* Valid until close. */
const struct vx_node_weights *vx_weights_get(const struct vx_weights *weights, i32 node);

#endif
