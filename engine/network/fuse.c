/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/fuse.h"

#include "engine/base/process/check.h"

#include <string.h>

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

/* How often each layer's value is read, by layers, sets and outputs. */
static void fuse_count_uses(const struct vx_network *network, i32 *uses)
{
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        for (i32 j = 0; j < layer->inputs_count; j++)
            if (layer->inputs[j] != VX_LAYER_FEATS) uses[layer->inputs[j]]++;
        if (layer->by >= 0) uses[layer->by]++;
    }
    for (i32 i = 0; i < network->outputs_count; i++) uses[network->outputs[i].layer]++;
}

/* A convolution or linear layer whose result is still only sums plus bias. */
static bool node_is_sum(const struct vx_node *node)
{
    bool linear = vx_op_is_conv(node->layer->op) || node->layer->op == VX_OP_LINEAR;
    return linear && !node->residual && node->activation == VX_ACTIVATION_NONE;
}

static bool node_takes_norm(const struct vx_node *node)
{
    return node_is_sum(node) && !node->norm;
}

static bool node_takes_activation(const struct vx_node *node)
{
    switch (node->layer->op) {
    case VX_OP_CONCAT:
    case VX_OP_SOFTMAX:
    case VX_OP_LEAKY_RELU:
    case VX_OP_SOFTPLUS:
    case VX_OP_TANH: return false; /* their kernels apply none */
    case VX_OP_MAX_POOL:           /* spconv's has a relu of its own */
        if (node->layer->rule == VX_SET_SPCONV) return false;
        /* fallthrough */
    default: return node->activation == VX_ACTIVATION_NONE;
    }
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

/* Fewer channels would be padded, in each of the rows, or children. */
#define GATHER_UNIT 16

/* Tries to make a product read the rows that its space_to_channel would put side by side. */
static bool fuse_gather(struct vx_node *node, const struct vx_layer *layer,
                        const struct vx_fuse_options *options)
{
    const struct vx_layer *gather = node->layer;
    bool product = layer->op == VX_OP_LINEAR ||
                   (layer->op == VX_OP_SUBM_CONV && layer->v == 1 && layer->groups == 1);
    if (!options->fuse_gathers || !product || gather->op != VX_OP_SPACE_TO_CHANNEL)
        return false;
    if (node->activation != VX_ACTIVATION_NONE || gather->v < 2) return false;
    if (gather->channels / gather->v % GATHER_UNIT) return false;
    node->gather = gather;
    node->layer = layer;
    return true;
}

i32 vx_node_channels_in(const struct vx_node *node)
{
    return node->layer->channels_in / (node->gather ? node->gather->v : 1);
}

i32 vx_node_panels(const struct vx_node *node)
{
    return node->live ? node->live->v : 1;
}

/* A graph while it is built. */
struct fuse {
    struct vx_graph *graph;
    const struct vx_fuse_options *options;
    i32 layers_done;
    i32 uses[VX_LAYERS_MAX];
};

/* The node of a layer's input, or VX_LAYER_FEATS. */
static i32 fuse_node(const struct fuse *fuse, i32 layer)
{
    return layer == VX_LAYER_FEATS ? VX_LAYER_FEATS : fuse->graph->node_of[layer];
}

/* Which operand of an add can take the other one as its residual: 0, 1, or -1 for none.
 * If both can, the later one, because it need not be moved. */
static i32 fuse_find_residual(const struct fuse *fuse, const struct vx_layer *add)
{
    i32 best = -1, best_node = -1;
    for (i32 j = 0; j < 2; j++) {
        i32 layer = add->inputs[j], node = fuse_node(fuse, layer);
        if (layer == VX_LAYER_FEATS || fuse->uses[layer] != 1) continue;
        if (!node_is_sum(&fuse->graph->nodes[node]) || node < best_node) continue;
        best = j;
        best_node = node;
    }
    return best;
}

/* Moves a node to the end; no node reads it yet. */
static void fuse_move_last(struct fuse *fuse, i32 index)
{
    struct vx_graph *graph = fuse->graph;
    struct vx_node moved = graph->nodes[index];
    i32 last = graph->nodes_count - 1;
    memmove(&graph->nodes[index], &graph->nodes[index + 1],
            (size_t)(last - index) * sizeof moved);
    graph->nodes[last] = moved;
    for (i32 i = index; i < last; i++)
        for (i32 j = 0; j < graph->nodes[i].inputs_count; j++)
            if (graph->nodes[i].inputs[j] > index) graph->nodes[i].inputs[j]--;
    for (i32 i = 0; i < fuse->layers_done; i++) {
        i32 *node = &graph->node_of[i];
        if (*node >= index) *node = *node == index ? last : *node - 1;
    }
}

/* Tries to make an add the residual of one of its operands. */
static bool fuse_residual(struct fuse *fuse, const struct vx_layer *add)
{
    if (!fuse->options->fuse_residuals || add->op != VX_OP_ADD) return false;
    i32 operand = fuse_find_residual(fuse, add);
    if (operand < 0) return false;
    i32 producer = fuse_node(fuse, add->inputs[operand]);
    /* The other operand must be computed before the producer runs. */
    if (fuse_node(fuse, add->inputs[1 - operand]) > producer)
        fuse_move_last(fuse, producer);
    i32 at = fuse_node(fuse, add->inputs[operand]);
    struct vx_node *node = &fuse->graph->nodes[at];
    node->residual = true;
    node->inputs[1] = fuse_node(fuse, add->inputs[1 - operand]);
    node->inputs_count = 2;
    fuse->graph->node_of[fuse->layers_done] = at;
    return true;
}

/* The layer whose logits say which children of a channel_to_space there are; -1: no layer
 * of its input's set says so. */
static i32 live_logits(const struct vx_network *network, const struct vx_layer *layer)
{
    const struct vx_set_key *key = &network->sets[layer->set].key;
    if (layer->op != VX_OP_CHANNEL_TO_SPACE || key->rule != VX_SET_LIVE) return -1;
    if (key->from != vx_network_set(network, layer->inputs[0])) return -1;
    return memcmp(key->stride, layer->stride, sizeof key->stride) ? -1 : key->by;
}

/* A product that can compute the channels of each child apart. */
static bool node_takes_live(const struct vx_node *node, const struct vx_layer *children)
{
    const bool conv = vx_op_is_conv(node->layer->op) && node->layer->groups == 1;
    if (!conv && node->layer->op != VX_OP_LINEAR) return false;
    if (node->residual || node->gather) return false;
    return children->v > 1 && children->v <= VX_FUSE_LIVE_MAX &&
           children->channels % GATHER_UNIT == 0;
}

/* Tries to make the product that a channel_to_space alone reads one of live children. */
static void fuse_live(struct fuse *fuse, const struct vx_layer *layer)
{
    const i32 product = layer->inputs[0];
    const i32 logits = live_logits(fuse->graph->network, layer);
    if (!fuse->options->fuse_live || logits < 0 || product == VX_LAYER_FEATS) return;
    if (fuse->uses[product] != 1) return;
    if (!node_takes_live(&fuse->graph->nodes[fuse_node(fuse, product)], layer)) return;
    /* The logits must be computed before the product runs. */
    if (fuse_node(fuse, logits) > fuse_node(fuse, product))
        fuse_move_last(fuse, fuse_node(fuse, product));
    struct vx_node *node = &fuse->graph->nodes[fuse_node(fuse, product)];
    node->live = layer;
    node->inputs[node->inputs_count++] = fuse_node(fuse, logits);
}

static void fuse_layer(struct fuse *fuse, const struct vx_layer *layer)
{
    struct vx_graph *graph = fuse->graph;
    i32 producer = layer->inputs[0];
    bool alone = producer != VX_LAYER_FEATS && fuse->uses[producer] == 1;
    i32 at = fuse_node(fuse, producer);
    if (layer->op == VX_OP_TO_DENSE) { /* the output reads its input */
        graph->node_of[fuse->layers_done] = at;
        return;
    }
    if (alone && (fuse_into(&graph->nodes[at], layer, fuse->options) ||
                  fuse_gather(&graph->nodes[at], layer, fuse->options))) {
        graph->node_of[fuse->layers_done] = at;
        return;
    }
    if (fuse_residual(fuse, layer)) return;
    fuse_live(fuse, layer);
    struct vx_node *node = &graph->nodes[graph->nodes_count];
    node->layer = layer;
    node->activation = vx_activation_of_op(layer->op);
    node->inputs_count = layer->inputs_count;
    for (i32 j = 0; j < layer->inputs_count; j++)
        node->inputs[j] = fuse_node(fuse, layer->inputs[j]);
    graph->node_of[fuse->layers_done] = graph->nodes_count++;
}

/* Fills the stage of every node; returns the largest. */
static i32 fuse_stages(struct vx_graph *graph)
{
    i32 most = 0;
    for (i32 i = 0; i < graph->nodes_count; i++) {
        struct vx_node *node = &graph->nodes[i];
        node->stage = graph->network->sets[node->layer->set].stage;
        for (i32 j = 0; j < node->inputs_count; j++) {
            i32 input = node->inputs[j];
            if (input == VX_LAYER_FEATS) continue;
            if (node->stage < graph->nodes[input].stage)
                node->stage = graph->nodes[input].stage;
        }
        if (most < node->stage) most = node->stage;
    }
    return most;
}

/* Puts the nodes in the order of their stages.  An input's stage is never above that of the
 * node that reads it, so it stays before it. */
static vx_status fuse_order(struct vx_graph *graph, struct vx_arena *arena)
{
    i32 places[VX_LAYERS_MAX], count = 0, last = fuse_stages(graph);
    if (!last) return VX_OK;
    struct vx_node *ordered =
        vx_arena_take_array(arena, (size_t)graph->nodes_count, sizeof *ordered);
    VX_ENSURE(ordered, RESOURCE_EXHAUSTED, "the memory for a graph is full");
    for (i32 stage = 0; stage <= last; stage++)
        for (i32 i = 0; i < graph->nodes_count; i++) {
            if (graph->nodes[i].stage != stage) continue;
            places[i] = count;
            ordered[count++] = graph->nodes[i];
        }
    for (i32 i = 0; i < graph->nodes_count; i++)
        for (i32 j = 0; j < ordered[i].inputs_count; j++)
            if (ordered[i].inputs[j] != VX_LAYER_FEATS)
                ordered[i].inputs[j] = places[ordered[i].inputs[j]];
    for (i32 i = 0; i < graph->network->layers_count; i++)
        if (graph->node_of[i] != VX_LAYER_FEATS)
            graph->node_of[i] = places[graph->node_of[i]];
    graph->nodes = ordered;
    return VX_OK;
}

vx_status vx_fuse_build(const struct vx_network *network,
                        const struct vx_fuse_options *options, struct vx_arena *arena,
                        const struct vx_graph **graph)
{
    struct fuse fuse = {.options = options};
    size_t layers_count = (size_t)network->layers_count;
    struct vx_graph *made = vx_arena_take(arena, sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "the memory for a graph is full");
    made->network = network;
    made->nodes = vx_arena_take_array(arena, layers_count, sizeof *made->nodes);
    made->node_of = vx_arena_take_array(arena, layers_count, sizeof *made->node_of);
    VX_ENSURE(made->nodes && made->node_of, RESOURCE_EXHAUSTED,
              "the memory for a graph is full");
    fuse.graph = made;
    fuse_count_uses(network, fuse.uses);
    for (; fuse.layers_done < network->layers_count; fuse.layers_done++)
        fuse_layer(&fuse, &network->layers[fuse.layers_done]);
    VX_TRY(fuse_order(made, arena));
    for (i32 i = 0; i < network->outputs_count; i++)
        made->outputs[i] = made->node_of[network->outputs[i].layer];
    *graph = made;
    return VX_OK;
}
