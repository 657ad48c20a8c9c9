/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/network/network_layers.h"

#include <stdio.h>
#include <string.h>

/* Room for a set, or a hint with two names, in an error sentence. */
#define TEXT_BYTES (VX_SET_STRIDE_BYTES + 2 * VX_NAME_SHOWN + 64)

i32 vx_network_set(const struct vx_network *network, i32 layer)
{
    return layer == VX_LAYER_FEATS ? 0 : network->layers[layer].set;
}

/* "set 1 (stride 2x2x2, made by layer "down")" */
static const char *set_text(const struct vx_network *network, i32 index,
                            char out[TEXT_BYTES])
{
    const struct vx_set *set = &network->sets[index];
    char stride[VX_SET_STRIDE_BYTES];
    if (set->layer < 0)
        snprintf(out, TEXT_BYTES, "set 0 (the request's)");
    else
        snprintf(out, TEXT_BYTES, "set %d (stride %s, made by layer \"%.*s\")", index,
                 vx_set_stride_text(set, stride), VX_NAME_SHOWN,
                 network->layers[set->layer].name);
    return out;
}

/* True if all voxels of `made` are children of a coarser set, as without "onto", and they could be
 * those on which the layer `target` lies: then *text says so. */
static bool onto_hint(const struct vx_network *network, i32 made, i32 target,
                      char text[TEXT_BYTES])
{
    const struct vx_set *set = &network->sets[made];
    const struct vx_set *other = &network->sets[vx_network_set(network, target)];
    if (set->key.rule != VX_SET_EXPAND || target >= set->layer) return false;
    if (memcmp(set->down, other->down, sizeof set->down) ||
        memcmp(set->up, other->up, sizeof set->up))
        return false;
    snprintf(
        text, TEXT_BYTES, "; set \"onto\": \"%.*s\" in layer \"%.*s\"", VX_NAME_SHOWN,
        target == VX_LAYER_FEATS ? network->feats_name : network->layers[target].name,
        VX_NAME_SHOWN, network->layers[set->layer].name);
    return true;
}

/* The inputs of an add, a mul or a concat must lie on one set. */
static vx_status check_inputs(const struct vx_layer_reader *reader,
                              const struct vx_layer *layer)
{
    const struct vx_network *network = reader->network;
    char first[TEXT_BYTES], other[TEXT_BYTES], hint[TEXT_BYTES] = "";
    for (i32 i = 1; i < layer->inputs_count; i++) {
        i32 set = vx_network_set(network, layer->inputs[i]);
        if (set == layer->set) continue;
        if (!onto_hint(network, set, layer->inputs[0], hint))
            onto_hint(network, layer->set, layer->inputs[i], hint);
        VX_FAIL_WHY(
            reader->why, INVALID_ARGUMENT, "the inputs of a layer lie on two sets",
            "line %d: expected inputs on one set of voxels, got %s and %s%s", layer->line,
            set_text(network, layer->set, first), set_text(network, set, other), hint);
    }
    return VX_OK;
}

/* Ops that undo another layer: from its output's set back to its input's. */
static vx_status settle_of(const struct vx_layer_reader *reader, struct vx_layer *layer)
{
    const struct vx_network *network = reader->network;
    const struct vx_layer *of = &network->layers[layer->of];
    i32 from = vx_network_set(network, of->inputs[0]);
    char expected[TEXT_BYTES], got[TEXT_BYTES];
    VX_ENSURE_WHY(of->set != from, reader->why, INVALID_ARGUMENT,
                  "a layer undoes one that is not strided",
                  "line %d: \"of\": expected a layer that changes the set of voxels, and "
                  "\"%.*s\" has stride 1",
                  layer->line, VX_NAME_SHOWN, of->name);
    VX_ENSURE_WHY(layer->set == of->set, reader->why, INVALID_ARGUMENT,
                  "a layer's input lies on another set than the layer that it undoes",
                  "line %d: expected an input on the set of \"%.*s\", %s, got %s",
                  layer->line, VX_NAME_SHOWN, of->name,
                  set_text(network, of->set, expected),
                  set_text(network, layer->set, got));
    layer->set = from;
    if (layer->op != VX_OP_UNPOOL) return VX_OK;
    for (int axis = 0; axis < 3; axis++)
        VX_ENSURE_WHY(
            of->kernel[axis] == of->stride[axis] && !of->padding[axis] &&
                of->dilation[axis] == 1,
            reader->why, INVALID_ARGUMENT, "unpool needs voxels with one parent each",
            "line %d: \"of\": unpool needs a layer whose kernel is as wide as "
            "its stride, without padding or dilation, and \"%.*s\" has kernel %d, "
            "stride %d, padding %d, dilation %d along column %d of coords",
            layer->line, VX_NAME_SHOWN, of->name, of->kernel[axis], of->stride[axis],
            of->padding[axis], of->dilation[axis], axis + 1);
    return VX_OK;
}

/* The layer of the logits lies on the input's set, before it is expanded or pruned, with one
 * logit for each voxel that may be there. */
static vx_status check_by(const struct vx_layer_reader *reader,
                          const struct vx_layer *layer)
{
    const struct vx_network *network = reader->network;
    const struct vx_layer *by = &network->layers[layer->by];
    bool keep = layer->rule == VX_SET_KEEP;
    const char *key = keep ? "keep" : "occupancy";
    char input[TEXT_BYTES], got[TEXT_BYTES];
    VX_ENSURE_WHY(by->set == layer->set, reader->why, INVALID_ARGUMENT,
                  "the logits lie on another set than the input",
                  "line %d: \"%s\": expected a layer on the set of the input, %s, and "
                  "\"%.*s\" lies on %s",
                  layer->line, key, set_text(network, layer->set, input), VX_NAME_SHOWN,
                  by->name, set_text(network, by->set, got));
    VX_ENSURE_WHY(
        by->channels == layer->v, reader->why, INVALID_ARGUMENT,
        "the logits have the wrong number of channels",
        "line %d: \"%s\": expected a layer of %d channel%s, a logit for each %s, "
        "and \"%.*s\" has %d",
        layer->line, key, layer->v, layer->v > 1 ? "s" : "",
        keep ? "voxel" : "child of a voxel", VX_NAME_SHOWN, by->name, by->channels);
    return VX_OK;
}

/* From a coarse set onto the finer one of a layer above, or of the request. */
static vx_status settle_onto(const struct vx_layer_reader *reader, struct vx_layer *layer)
{
    const struct vx_network *network = reader->network;
    i32 onto = vx_network_set(network, layer->onto);
    const struct vx_set *fine = &network->sets[onto],
                        *coarse = &network->sets[layer->set];
    char stride[VX_SET_STRIDE_BYTES], from[TEXT_BYTES], to[TEXT_BYTES];
    struct vx_set shown = {.up = {1, 1, 1}};
    memcpy(shown.down, layer->stride, sizeof shown.down);
    for (int axis = 0; axis < 3; axis++) {
        i64 left = (i64)fine->down[axis] * layer->stride[axis] * coarse->up[axis];
        VX_ENSURE_WHY(left == (i64)coarse->down[axis] * fine->up[axis], reader->why,
                      INVALID_ARGUMENT, "two sets do not meet",
                      "line %d: \"onto\": stride %s does not lead from %s to %s",
                      layer->line, vx_set_stride_text(&shown, stride),
                      set_text(network, layer->set, from), set_text(network, onto, to));
    }
    layer->set = onto;
    return VX_OK;
}

/* Between the set of points and a coarser one: the stride is what leads there. */
static vx_status settle_points(const struct vx_layer_reader *reader,
                               struct vx_layer *layer)
{
    const struct vx_network *network = reader->network;
    const bool down = layer->op == VX_OP_VOXELIZE;
    const i32 onto = vx_network_set(network, layer->onto);
    const i32 points = down ? layer->set : onto, voxels = down ? onto : layer->set;
    const struct vx_set *fine = &network->sets[points], *coarse = &network->sets[voxels];
    char from[TEXT_BYTES], to[TEXT_BYTES];
    for (int axis = 0; axis < 3; axis++) {
        /* One of the two is 0 for a voxel that stands for a whole sample. */
        i64 steps = (i64)coarse->down[axis] * fine->up[axis];
        i64 step = (i64)fine->down[axis] * coarse->up[axis];
        bool whole = step && steps && steps % step == 0;
        VX_ENSURE_WHY(whole && steps / step <= VX_POINT_STRIDE_MAX, reader->why,
                      INVALID_ARGUMENT, "points do not lie in the voxels of a set",
                      "line %d: %s: along column %d the stride of the voxels, %s, is no "
                      "multiple, 1 to %d, of the stride of the points, %s",
                      layer->line, vx_op_name(layer->op), axis + 1,
                      set_text(network, voxels, to), VX_POINT_STRIDE_MAX,
                      set_text(network, points, from));
        layer->stride[axis] = (i32)(steps / step);
    }
    layer->set = onto;
    return VX_OK;
}

/* True behind finer voxels, which no shape of the request's bounds. */
static bool is_behind_finer(const struct vx_network *network, i32 set)
{
    for (; set > 0; set = network->sets[set].key.from)
        if (vx_set_size(&network->sets[set].key, 0, 1) == 0) return true;
    return false;
}

/* spconv's shape of the output of a window. */
static vx_status spconv_shape(const struct vx_layer_reader *reader,
                              const struct vx_layer *layer, i32 shape[3])
{
    const struct vx_set *from = &reader->network->sets[layer->set];
    const bool lost = is_behind_finer(reader->network, layer->set);
    char text[TEXT_BYTES];
    for (int axis = 0; axis < 3; axis++) {
        i32 reach = layer->dilation[axis] * (layer->kernel[axis] - 1);
        i64 left = (i64)from->shape[axis] + 2 * (i64)layer->padding[axis] - reach - 1;
        VX_ENSURE_WHY(
            from->shape[axis] || !lost, reader->why, INVALID_ARGUMENT,
            "rule spconv needs a spatial shape",
            "line %d: the rule \"spconv\" needs the spatial shape of %s, which "
            "has none: it is lost where a layer makes finer voxels; use another "
            "\"rule\" behind it",
            layer->line, set_text(reader->network, layer->set, text));
        VX_ENSURE_WHY(from->shape[axis], reader->why, INVALID_ARGUMENT,
                      "rule spconv needs a spatial shape",
                      "line %d: the rule \"spconv\" needs the spatial shape of %s: set "
                      "\"inputs\": {\"coords\": {\"spatial_shape\": [X, Y, Z]}}",
                      layer->line, set_text(reader->network, layer->set, text));
        VX_ENSURE_WHY(
            left >= 0, reader->why, INVALID_ARGUMENT,
            "a kernel is larger than the spatial shape",
            "line %d: along column %d of coords the spatial shape has %d "
            "voxels, %lld with the padding of both sides, and the kernel reaches over %d",
            layer->line, axis + 1, from->shape[axis], (long long)left + reach + 1,
            reach + 1);
        i64 size = left / layer->stride[axis] + 1;
        VX_ENSURE_WHY(size <= VX_AXIS_MAX + 1, reader->why, INVALID_ARGUMENT,
                      "the spatial shape of a set exceeds the range of coordinates",
                      "line %d: along column %d of coords its set has %lld voxels; "
                      "expected at most %d, the range of coordinates: set a smaller "
                      "\"padding\" or \"spatial_shape\"",
                      layer->line, axis + 1, (long long)size, VX_AXIS_MAX + 1);
        shape[axis] = (i32)size;
    }
    return VX_OK;
}

static bool all_are(const i32 axes[3], i32 value)
{
    return axes[0] == value && axes[1] == value && axes[2] == value;
}

/* True if the set of the result is that of the input: every voxel makes itself. */
static bool keeps_set(const struct vx_layer *layer)
{
    if (layer->rule == VX_SET_SAMPLES || layer->by != VX_LAYER_NONE) return false;
    if (!all_are(layer->stride, 1)) return false;
    if (layer->rule == VX_SET_FLOOR) return true;
    return all_are(layer->kernel, 1) && all_are(layer->padding, 0);
}

/* A set by logits waits for their layer, and then its size must be read. */
static void set_stage(const struct vx_network *network, struct vx_set *set)
{
    if (!vx_set_is_predicted(&set->key)) return;
    i32 stage = network->layers[set->key.by].stage;
    if (set->stage < stage) set->stage = stage;
    set->stage++;
}

static vx_status set_add(const struct vx_layer_reader *reader, struct vx_layer *layer,
                         const struct vx_set_key *key)
{
    struct vx_network *network = reader->network;
    i32 found = vx_sets_find(network->sets, network->sets_count, key);
    if (found < 0) {
        VX_ENSURE_WHY(network->sets_count < VX_SETS_MAX, reader->why, INVALID_ARGUMENT,
                      "a network has too many sets",
                      "line %d: expected at most %d sets of voxels, and this layer makes "
                      "one more",
                      layer->line, VX_SETS_MAX);
        found = network->sets_count++;
        vx_set_init(&network->sets[found], network->sets, key,
                    (i32)(layer - network->layers));
        set_stage(network, &network->sets[found]);
    }
    const struct vx_set *set = &network->sets[found];
    for (int axis = 0; axis < 3; axis++)
        VX_ENSURE_WHY(set->down[axis] <= VX_SET_STRIDE_MAX &&
                          set->up[axis] <= VX_SET_STRIDE_MAX,
                      reader->why, INVALID_ARGUMENT, "the stride of a set is too large",
                      "line %d: the stride of its set against the request: expected at "
                      "most %d along an axis",
                      layer->line, VX_SET_STRIDE_MAX);
    layer->set = found;
    return VX_OK;
}

/* The set that the layer's rule makes from its input's. */
static vx_status settle_rule(const struct vx_layer_reader *reader, struct vx_layer *layer)
{
    struct vx_set_key key = {.rule = layer->rule, .from = layer->set};
    if (keeps_set(layer)) return VX_OK;
    memcpy(key.stride, layer->stride, sizeof key.stride);
    for (int axis = 0; axis < 3; axis++) {
        bool floor = layer->rule == VX_SET_FLOOR;
        key.kernel[axis] = floor ? 1 : layer->kernel[axis];
        key.dilation[axis] = key.kernel[axis] == 1 ? 1 : layer->dilation[axis];
        key.padding[axis] = floor ? 0 : layer->padding[axis];
    }
    if (layer->rule == VX_SET_SPCONV) VX_TRY(spconv_shape(reader, layer, key.shape));
    if (layer->by != VX_LAYER_NONE) {
        VX_TRY(check_by(reader, layer));
        key.by = layer->by;
        key.top = layer->top;
    }
    return set_add(reader, layer, &key);
}

/* A voxel that stands for a whole sample has no parent and no children. */
static vx_status check_samples(const struct vx_layer_reader *reader,
                               const struct vx_layer *layer)
{
    const struct vx_network *network = reader->network;
    bool samples = network->sets[layer->set].key.rule == VX_SET_SAMPLES;
    bool leaves = layer->rule && !keeps_set(layer);
    if (layer->onto != VX_LAYER_NONE)
        leaves = vx_network_set(network, layer->onto) != layer->set;
    char text[TEXT_BYTES];
    VX_ENSURE_WHY(!samples || !leaves, reader->why, INVALID_ARGUMENT,
                  "a layer makes a set from that of a global pool",
                  "line %d: %s has one voxel for each sample, and no set follows from "
                  "it: expected a layer that stays on it, or unpool",
                  layer->line, set_text(network, layer->set, text));
    return VX_OK;
}

static vx_status settle(const struct vx_layer_reader *reader, struct vx_layer *layer)
{
    if (layer->of != VX_LAYER_NONE) return settle_of(reader, layer);
    if (layer->onto != VX_LAYER_NONE && vx_op_is_points(layer->op))
        return settle_points(reader, layer);
    if (layer->onto != VX_LAYER_NONE) return settle_onto(reader, layer);
    return layer->rule ? settle_rule(reader, layer) : VX_OK;
}

vx_status vx_layer_settle_set(const struct vx_layer_reader *reader,
                              struct vx_layer *layer)
{
    layer->set = vx_network_set(reader->network, layer->inputs[0]);
    VX_TRY(check_inputs(reader, layer));
    VX_TRY(check_samples(reader, layer));
    VX_TRY(settle(reader, layer));
    layer->stage = reader->network->sets[layer->set].stage;
    for (i32 i = 0; i < layer->inputs_count; i++) {
        i32 input = layer->inputs[i];
        i32 stage = input == VX_LAYER_FEATS ? 0 : reader->network->layers[input].stage;
        if (layer->stage < stage) layer->stage = stage;
    }
    return VX_OK;
}

static enum vx_map_kind kind_of(const struct vx_network *network,
                                const struct vx_layer *layer)
{
    switch (layer->op) {
    case VX_OP_INVERSE_CONV:
    case VX_OP_TRANSPOSED_CONV: return VX_MAP_UP;
    case VX_OP_UNPOOL:
        return network->layers[layer->of].rule == VX_SET_SAMPLES ? VX_MAP_SAMPLE
                                                                 : VX_MAP_PARENT;
    case VX_OP_DEVOXELIZE: return layer->trilinear ? VX_MAP_CORNER : VX_MAP_PARENT;
    case VX_OP_VOXELIZE:
    case VX_OP_PRUNE:
    case VX_OP_UPSAMPLE: return VX_MAP_PARENT;
    case VX_OP_CHANNEL_TO_SPACE: return VX_MAP_CHILD;
    case VX_OP_SUBM_CONV: return VX_MAP_SUBM;
    default: return VX_MAP_DOWN;
    }
}

/* A window of stride 1 with its middle on the voxel is a submanifold one. */
static bool is_centred(const struct vx_layer *layer)
{
    for (int axis = 0; axis < 3; axis++) {
        i32 k = layer->kernel[axis];
        if (k % 2 == 0 || layer->padding[axis] != (k - 1) / 2 * layer->dilation[axis])
            return false;
    }
    return all_are(layer->stride, 1);
}

bool vx_layer_map(const struct vx_network *network, const struct vx_layer *layer,
                  struct vx_map_key *key)
{
    const i32 input = vx_network_set(network, layer->inputs[0]);
    const bool back = layer->op == VX_OP_VOXELIZE;
    *key = (struct vx_map_key){.kind = kind_of(network, layer),
                               .from = back ? layer->set : input,
                               .to = back ? input : layer->set};
    if (!layer->v) return false;
    bool one = vx_map_is_one(key);
    if (key->kind == VX_MAP_DOWN && key->from == key->to && is_centred(layer))
        key->kind = VX_MAP_SUBM;
    /* A dense convolution of one offset is a product of its own row. */
    bool dense = vx_op_is_conv(layer->op) && layer->groups == 1;
    if (key->kind == VX_MAP_SUBM && layer->v == 1 && dense) return false;
    for (int axis = 0; axis < 3; axis++) {
        key->kernel[axis] = one ? 1 : layer->kernel[axis];
        /* An axis of one offset has no dilation; equal maps must have equal keys. */
        key->dilation[axis] = key->kernel[axis] == 1 ? 1 : layer->dilation[axis];
        if (key->kind == VX_MAP_SUBM) continue;
        key->stride[axis] = layer->stride[axis];
        key->padding[axis] = layer->padding[axis];
    }
    return true;
}

bool vx_layer_order(const struct vx_network *network, const struct vx_layer *layer,
                    struct vx_map_key *key)
{
    if (layer->op != VX_OP_VOXELIZE || !vx_layer_map(network, layer, key)) return false;
    key->kind = VX_MAP_ORDER;
    key->from = key->to;
    return true;
}
