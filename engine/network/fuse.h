/* fuse - turns the layers of a network into the nodes of a graph, which are launched.
 *
 * A network is what a person wrote; a graph has fewer nodes and the same answers, except
 * for rounding.  A layer is fused into the node before it only if nothing else reads the
 * value in between:
 *
 *   batch norm   after a convolution or linear layer: becomes part of its weights.  For
 *                y = x W + b and s = gamma / sqrt(var + eps):
 *                    W' = W s
 *                    b' = (b - mean) s + beta
 *   activation   after any node but a concat: is applied while its rows are written
 *   linear       (or a convolution of one offset) after space_to_channel: becomes a
 *                convolution over that one's map, whose rows are never put side by side
 *                (GPUs only, and of multiples of 16 channels: others would be padded)
 *   product      (convolution or linear) before channel_to_space onto predicted voxels:
 *                computes the channels of live children alone (GPUs only, and where a child
 *                has a multiple of 16 channels: others would be padded)
 *   to_dense     of any node: is how an output of it is written
 *   add          after a convolution or linear layer: becomes that node's residual, which
 *                is read while the rows are written (GPUs only)
 *
 * A layer whose result says which voxels a set has (set_key.h) is read by that set.  Nodes
 * are in the order of their stages, those of one stage in the order of the network.
 *
 *   struct vx_fuse_options all = {.fold_norms = true, .fuse_activations = true};
 *   VX_TRY(vx_fuse_build(network, &all, &arena, &graph));
 *
 * Owner    lives in the arena; points into the network, which must outlive it.
 * Thread   any; pure.
 * Limits   no more nodes than layers; VX_FUSE_ARENA_BYTES is always enough.
 * Fails    RESOURCE_EXHAUSTED when the arena is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_FUSE_H
#define VX_ENGINE_MODEL_FUSE_H

#include "engine/network/network.h"
#include "kernels/10_activation.h"

/* VX_LAYERS_MAX nodes of less than 128 bytes, with an index each. */
#define VX_FUSE_ARENA_BYTES (192 << 10)
/* Children of a voxel, at most, whose channels are computed apart. */
#define VX_FUSE_LIVE_MAX 8

/* Serving uses the first two, and the others on devices whose convolutions take a
 * residual, any map, and rows in an order that lacks some; tests switch them off to
 * compare. */
struct vx_fuse_options {
    bool fold_norms;
    bool fuse_activations;
    bool fuse_residuals;
    bool fuse_gathers;
    bool fuse_live;
};

struct vx_node {
    const struct vx_layer *layer; /* gives the op, the kernel and the weights */
    const struct vx_layer *norm;  /* the batch norm folded into its weights, or NULL */
    /* The space_to_channel that it reads the rows of, or NULL: then its weights are those of
     * a convolution with that layer's kernel. */
    const struct vx_layer *gather;
    /* The channel_to_space that alone reads it, of predicted voxels, or NULL: then channels
     * of children that are not there need not be computed.  Which are there say the logits,
     * its last input. */
    const struct vx_layer *live;
    enum vx_activation activation;
    bool residual; /* the second input is added before the activation */
    i32 stage;     /* of its set and its inputs, the largest: sets.h */
    i32 inputs_count;
    i32 inputs[VX_LAYER_INPUTS_MAX]; /* earlier nodes, or VX_LAYER_FEATS */
};

struct vx_graph {
    const struct vx_network *network;
    struct vx_node *nodes;
    i32 nodes_count;
    /* By layer: the node it became, or is part of.  Of TO_DENSE, which is no node: its
     * input's, or VX_LAYER_FEATS. */
    i32 *node_of;
    i32 outputs[VX_OUTPUTS_MAX]; /* the node of each output of the network */
};

VX_MUST_USE vx_status vx_fuse_build(const struct vx_network *network,
                                    const struct vx_fuse_options *options,
                                    struct vx_arena *arena,
                                    const struct vx_graph **graph);

/* The channels of a row that a product reads: of one offset, if it has several. */
i32 vx_node_channels_in(const struct vx_node *node);
/* The parts of its channels that are computed apart: the children of its `live`, or 1. */
i32 vx_node_panels(const struct vx_node *node);

/* NONE for an op that is not an activation. */
enum vx_activation vx_activation_of_op(enum vx_op op);

#endif
