/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/fuse.h"

#include "engine/base/check.h"

enum vx_activation vx_activation_of_op(enum vx_op op)
{
    switch (op) {
    case VX_OP_RELU: return VX_ACTIVATION_RELU;
    case VX_OP_SILU: return VX_ACTIVATION_SILU;
    case VX_OP_GELU: return VX_ACTIVATION_GELU;
    case VX_OP_SIGMOID: return VX_ACTIVATION_SIGMOID;
    default: return VX_ACTIVATION_NONE;
    }
}

/* How often each layer's value is read, by layers and by outputs. */
static void fuse_count_uses(const struct vx_network *network, i32 *uses)
{
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        for (i32 j = 0; j < layer->inputs_count; j++)
            if (layer->inputs[j] != VX_LAYER_FEATS) uses[layer->inputs[j]]++;
    }
    for (i32 i = 0; i < network->outputs_count; i++) uses[network->outputs[i].layer]++;
}

static bool node_takes_norm(const struct vx_node *node)
{
    bool linear = node->layer->op == VX_OP_SUBM_CONV || node->layer->op == VX_OP_LINEAR;
    return linear && !node->norm && node->activation == VX_ACTIVATION_NONE;
}

static bool node_takes_activation(const struct vx_node *node)
{
    return node->layer->op != VX_OP_CONCAT && node->activation == VX_ACTIVATION_NONE;
}

/* Tries to make the layer part of the node that produces its only input. */
static bool fuse_into(struct vx_node *node, const struct vx_layer *layer,
                      const struct vx_fuse_options *options)
{
    enum vx_activation activation = vx_activation_of_op(layer->op);
    if (layer->op == VX_OP_BATCH_NORM && options->fold_norms && node_takes_norm(node)) {
        node->norm = layer;
        return true;
    }
    if (activation != VX_ACTIVATION_NONE && options->fuse_activations &&
        node_takes_activation(node)) {
        node->activation = activation;
        return true;
    }
    return false;
}

vx_status vx_fuse_build(const struct vx_network *network,
                        const struct vx_fuse_options *options, struct vx_arena *arena,
                        const struct vx_graph **graph)
{
    i32 uses[VX_LAYERS_MAX] = {0};
    size_t layers_count = (size_t)network->layers_count;
    struct vx_graph *made = vx_arena_take(arena, sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "the memory for a graph is full");
    made->network = network;
    made->nodes = vx_arena_take_array(arena, layers_count, sizeof *made->nodes);
    i32 *node_of = vx_arena_take_array(arena, layers_count, sizeof *node_of);
    VX_ENSURE(made->nodes && node_of, RESOURCE_EXHAUSTED,
              "the memory for a graph is full");
    made->node_of = node_of;
    fuse_count_uses(network, uses);
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        i32 producer = layer->inputs[0];
        bool alone = producer != VX_LAYER_FEATS && uses[producer] == 1;
        if (alone && fuse_into(&made->nodes[node_of[producer]], layer, options)) {
            node_of[i] = node_of[producer];
            continue;
        }
        struct vx_node *node = &made->nodes[made->nodes_count];
        node->layer = layer;
        node->activation = vx_activation_of_op(layer->op);
        node->inputs_count = layer->inputs_count;
        for (i32 j = 0; j < layer->inputs_count; j++)
            node->inputs[j] = layer->inputs[j] == VX_LAYER_FEATS
                                  ? VX_LAYER_FEATS
                                  : node_of[layer->inputs[j]];
        node_of[i] = made->nodes_count++;
    }
    for (i32 i = 0; i < network->outputs_count; i++)
        made->outputs[i] = node_of[network->outputs[i].layer];
    *graph = made;
    return VX_OK;
}
