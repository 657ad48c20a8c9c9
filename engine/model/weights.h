/* weights - the numbers of a network, checked and laid out as kernels want them.
 *
 * The file holds tensors as PyTorch wrote them; kernels want (V, Ci, Co) and (Co) in f32
 * with the batch norms folded in.  Checking comes first and touches no number, so that a
 * wrong file is refused before memory is taken.
 *
 *   VX_TRY(vx_weights_check(network, file, &why));
 *   VX_TRY(vx_weights_open(graph, file, progress, &why, &weights));
 *   const struct vx_node_weights *w = vx_weights_get(weights, node_index);
 *   vx_weights_close(&weights);
 *
 * Owner    the caller; one block until close.  The file may be closed after open.
 * Thread   any (the loading thread); after open it is only read.
 * Limits   what memory there is; building takes one tensor more than the result.
 * Fails    INVALID_ARGUMENT: a missing tensor, a wrong shape, a shape with
 *          several readings, an unusable dtype, a bias or a norm's weight that the file has
 *          and the layer leaves out, a variance below zero; RESOURCE_EXHAUSTED.  The why names file, tensor, layer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_WEIGHTS_H
#define VX_ENGINE_MODEL_WEIGHTS_H

#include "engine/engine.h"
#include "engine/model/fuse.h"
#include "engine/model/safetensors.h"

/* Of one node, on a 64-byte line each; NULL = the node has none. */
struct vx_node_weights {
    const f32 *weight; /* SUBM_CONV (V, Ci, Co), LINEAR (Ci, Co), norms (C): scale */
    const f32 *bias;   /* SUBM_CONV, LINEAR (Co), norms (C): shift */
};

struct vx_weights;

/* Also settles the layout of layers that say none, by the shape of their weight. */
VX_MUST_USE vx_status vx_weights_check(const struct vx_network *network,
                                       const struct vx_safetensors *file,
                                       struct vx_why *why);
/* Bytes that open will keep.  Pure. */
i64 vx_weights_bytes(const struct vx_graph *graph);
/* The file must have passed vx_weights_check for this network.  `progress` may be NULL.
 */
VX_MUST_USE vx_status vx_weights_open(const struct vx_graph *graph,
                                      const struct vx_safetensors *file,
                                      const struct vx_progress *progress,
                                      struct vx_why *why, struct vx_weights **weights);
void vx_weights_close(struct vx_weights **weights);
const struct vx_node_weights *vx_weights_get(const struct vx_weights *weights, i32 node);

#endif
