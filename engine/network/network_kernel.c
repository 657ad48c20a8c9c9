/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/network/network_layers.h"

#include <stdio.h>
#include <string.h>

/* One size, of one axis or of all. */
static vx_status read_size(const struct vx_json *value, const struct vx_axes_key *key,
                           struct vx_why *why, i32 *size)
{
    i64 number = 0;
    bool whole = vx_json_whole(value, &number);
    char got[32];
    if (whole)
        snprintf(got, sizeof got, "%lld", (long long)number);
    else if (value->kind == VX_JSON_F64)
        snprintf(got, sizeof got, "%g", value->real);
    else
        snprintf(got, sizeof got, "%s", vx_json_kind_name(value->kind));
    VX_ENSURE_WHY(whole && number >= key->least && number <= key->most, why,
                  INVALID_ARGUMENT, "a size is out of range",
                  "line %d: \"%s\": expected integers from %d to %d, got %s", value->line,
                  key->name, key->least, key->most, got);
    *size = (i32)number;
    return VX_OK;
}

vx_status vx_network_parse_axes(const struct vx_json *value,
                                const struct vx_axes_key *key, struct vx_why *why,
                                i32 axes[3])
{
    if (value->kind != VX_JSON_LIST) {
        VX_TRY(read_size(value, key, why, axes));
        axes[1] = axes[2] = axes[0];
        return VX_OK;
    }
    VX_ENSURE_WHY(
        value->count == 3, why, INVALID_ARGUMENT,
        "expected one integer or three, one for each axis",
        "line %d: \"%s\": expected one integer, or three for columns 1 to 3 of coords, "
        "got %d",
        value->line, key->name, value->count);
    i32 *axis = axes;
    VX_JSON_EACH(child, value)
    {
        VX_TRY(read_size(child, key, why, axis));
        axis++;
    }
    return VX_OK;
}

/* Reads the axes of a key that must be there. */
static vx_status need_axes(const struct vx_layer_reader *reader,
                           const struct vx_json *object, const struct vx_axes_key *key,
                           i32 axes[3])
{
    const struct vx_json *value = vx_json_find(object, key->name);
    VX_ENSURE_WHY(value, reader->why, INVALID_ARGUMENT, "a layer lacks a key",
                  "line %d: the key \"%s\" is missing", object->line, key->name);
    return vx_network_parse_axes(value, key, reader->why, axes);
}

/* Counts the offsets of the layer's kernel, which the key `key` gives. */
static vx_status kernel_offsets(const struct vx_layer_reader *reader, const char *key,
                                struct vx_layer *layer)
{
    const i32 *k = layer->kernel;
    VX_ENSURE_WHY(
        layer->op != VX_OP_SUBM_CONV || (k[0] & k[1] & k[2] & 1), reader->why,
        INVALID_ARGUMENT, "a submanifold kernel is odd along every axis",
        "line %d: \"kernel\": expected odd sizes, got %dx%dx%d; sparse_conv with "
        "\"stride\": 1 and \"rule\": \"floor\" takes even ones",
        layer->line, k[0], k[1], k[2]);
    i64 v = (i64)k[0] * k[1] * k[2];
    VX_ENSURE_WHY(v <= VX_KERNEL_OFFSETS_MAX, reader->why, INVALID_ARGUMENT,
                  "a kernel has too many offsets",
                  "line %d: \"%s\": expected at most %d voxels in the kernel or block, "
                  "got %dx%dx%d = %lld",
                  layer->line, key, VX_KERNEL_OFFSETS_MAX, k[0], k[1], k[2],
                  (long long)v);
    layer->v = (i32)v;
    return VX_OK;
}

/* MinkowskiEngine's: an odd kernel is centred, an even one begins at the voxel. */
static void centre(struct vx_layer *layer)
{
    for (int axis = 0; axis < 3; axis++) {
        i32 k = layer->kernel[axis];
        layer->padding[axis] = k % 2 ? (k - 1) / 2 * layer->dilation[axis] : 0;
    }
}

/* The padding with the rule "floor".  A pool whose kernel is its stride has the voxels of
 * a block in MinkowskiEngine, odd sizes too, and ignores the dilation. */
static vx_status settle_floor(const struct vx_layer_reader *reader,
                              struct vx_layer *layer)
{
    const i32 *k = layer->kernel, *s = layer->stride, *d = layer->dilation;
    bool block = !vx_op_is_conv(layer->op) && !memcmp(k, s, sizeof layer->kernel);
    VX_ENSURE_WHY(!block || (d[0] == 1 && d[1] == 1 && d[2] == 1), reader->why,
                  INVALID_ARGUMENT, "a pool of blocks has no dilation",
                  "line %d: \"dilation\": with the rule \"floor\" a pool whose kernel is "
                  "its stride has the voxels of a block; expected 1, got %dx%dx%d",
                  layer->line, d[0], d[1], d[2]);
    if (!block) centre(layer);
    return VX_OK;
}

#define RULES "\"spconv\" or \"floor\""
static vx_status parse_rule(const struct vx_layer_reader *reader,
                            const struct vx_json *object, struct vx_layer *layer)
{
    static const struct vx_axes_key padding_key = {"padding", 0, VX_PADDING_MAX};
    const struct vx_json *padding = vx_json_find(object, "padding"), *rule;
    VX_TRY(vx_network_need_word(object, "rule", RULES, reader->why, &rule));
    bool floor = !strcmp(rule->text, "floor");
    VX_ENSURE_WHY(floor || !strcmp(rule->text, "spconv"), reader->why, INVALID_ARGUMENT,
                  "a rule is not known",
                  "line %d: \"rule\": expected " RULES ", got \"%.*s\"", rule->line,
                  VX_NAME_SHOWN, rule->text);
    layer->rule = floor ? VX_SET_FLOOR : VX_SET_SPCONV;
    VX_ENSURE_WHY(!floor || !padding, reader->why, INVALID_ARGUMENT,
                  "rule floor has no padding",
                  "line %d: \"padding\": with the rule \"floor\" it follows from the "
                  "kernel; leave it out",
                  padding ? padding->line : 0);
    if (floor) return settle_floor(reader, layer);
    if (!padding) return VX_OK;
    return vx_network_parse_axes(padding, &padding_key, reader->why, layer->padding);
}

/* Whether `layer` may undo `of`. */
static bool undoes(const struct vx_layer *layer, const struct vx_layer *of)
{
    bool samples = of->rule == VX_SET_SAMPLES && layer->op == VX_OP_UNPOOL;
    bool strided = of->rule == VX_SET_FLOOR || of->rule == VX_SET_SPCONV;
    return (strided && of->op != VX_OP_VOXELIZE) || samples;
}

/* As vx_network_nearest, of the layers that `of` may name. */
static const char *nearest_undone(const struct vx_network *network,
                                  const struct vx_layer *layer, const char *name,
                                  char out[VX_NEAREST_BYTES])
{
    const char *names[VX_LAYERS_MAX] = {NULL};
    i32 self = (i32)(layer - network->layers), count = 0;
    for (i32 i = 0; i < self; i++)
        if (undoes(layer, &network->layers[i])) names[count++] = network->layers[i].name;
    if (!count) return "; no layer above it is strided";
    return vx_nearest_text(name, names, (size_t)count, out);
}

/* A layer above this one, or the features, by the name in key `of`, `onto`, `occupancy` or
 * `keep`. */
static vx_status parse_layer(const struct vx_layer_reader *reader,
                             const struct vx_json *name, const struct vx_layer *layer,
                             i32 *found)
{
    const struct vx_network *network = reader->network;
    char nearest[VX_NEAREST_BYTES];
    i32 self = (i32)(layer - network->layers);
    VX_TRY(vx_json_check_kind(name, VX_JSON_TEXT, reader->why));
    *found = VX_LAYER_FEATS;
    if (!strcmp(name->text, network->feats_name)) return VX_OK;
    *found = vx_network_find(network, name->text);
    bool of = !strcmp(name->key, "of");
    VX_ENSURE_WHY(*found >= 0, reader->why, INVALID_ARGUMENT, "a layer is not known",
                  "line %d: \"%s\": unknown layer \"%.*s\"%s", name->line, name->key,
                  VX_NAME_SHOWN, name->text,
                  of ? nearest_undone(network, layer, name->text, nearest)
                     : vx_network_nearest(network, self, name->text, nearest));
    VX_ENSURE_WHY(*found < self, reader->why, INVALID_ARGUMENT,
                  "a layer uses a later layer",
                  "line %d: \"%s\": \"%.*s\" is %s; expected a layer above this one",
                  name->line, name->key, VX_NAME_SHOWN, name->text,
                  *found == self ? "the layer itself" : "a later layer");
    return vx_layer_check_read(reader, name, *found);
}

/* Takes over the kernel of the layer that this one undoes. */
static vx_status parse_of(const struct vx_layer_reader *reader,
                          const struct vx_json *object, struct vx_layer *layer)
{
    const struct vx_json *name;
    VX_TRY(vx_network_need(object, "of", VX_JSON_TEXT, reader->why, &name));
    VX_TRY(parse_layer(reader, name, layer, &layer->of));
    VX_ENSURE_WHY(layer->of != VX_LAYER_FEATS, reader->why, INVALID_ARGUMENT,
                  "a layer undoes one that is not strided",
                  "line %d: \"of\": expected a strided convolution or a pool, and "
                  "\"%.*s\" is an input",
                  name->line, VX_NAME_SHOWN, name->text);
    const struct vx_layer *of = &reader->network->layers[layer->of];
    VX_ENSURE_WHY(
        undoes(layer, of), reader->why, INVALID_ARGUMENT,
        "a layer undoes one that is not strided",
        "line %d: \"of\": expected a strided convolution or a pool, and \"%.*s\" "
        "is %s",
        name->line, VX_NAME_SHOWN, of->name, vx_op_name(of->op));
    memcpy(layer->kernel, of->kernel, sizeof layer->kernel);
    memcpy(layer->stride, of->stride, sizeof layer->stride);
    memcpy(layer->padding, of->padding, sizeof layer->padding);
    memcpy(layer->dilation, of->dilation, sizeof layer->dilation);
    layer->v = of->rule == VX_SET_SAMPLES ? 1 : of->v;
    return VX_OK;
}

/* The layer of the logits that say which voxels there are. */
static vx_status parse_by(const struct vx_layer_reader *reader,
                          const struct vx_json *name, struct vx_layer *layer)
{
    VX_TRY(parse_layer(reader, name, layer, &layer->by));
    VX_ENSURE_WHY(layer->by != VX_LAYER_FEATS, reader->why, INVALID_ARGUMENT,
                  "the logits of a set are an input",
                  "line %d: \"%s\": expected a layer, whose result are logits, and "
                  "\"%.*s\" is an input",
                  name->line, name->key, VX_NAME_SHOWN, name->text);
    return VX_OK;
}

/* Of all children of a block those with a logit above 0. */
static vx_status parse_occupancy(const struct vx_layer_reader *reader,
                                 const struct vx_json *name, struct vx_layer *layer)
{
    VX_ENSURE_WHY(
        layer->onto == VX_LAYER_NONE, reader->why, INVALID_ARGUMENT,
        "a layer has both \"onto\" and \"occupancy\"",
        "line %d: \"occupancy\" and \"onto\" both say which children there are: "
        "expected one of them",
        name->line);
    layer->rule = VX_SET_LIVE;
    return parse_by(reader, name, layer);
}

/* A global pool reads the rows of a sample, and so has no kernel to count. */
static void parse_samples(struct vx_layer *layer)
{
    layer->rule = VX_SET_SAMPLES;
    for (int axis = 0; axis < 3; axis++)
        layer->kernel[axis] = layer->stride[axis] = layer->dilation[axis] = 1;
}

/* Ops between the children and the parents of a block of `stride` voxels. */
static vx_status parse_block(const struct vx_layer_reader *reader,
                             const struct vx_json *object, struct vx_layer *layer)
{
    const struct vx_json *occupancy = vx_json_find(object, "occupancy");
    bool down = layer->op == VX_OP_DOWNSAMPLE || layer->op == VX_OP_SPACE_TO_CHANNEL;
    layer->rule = down ? VX_SET_FLOOR : VX_SET_EXPAND;
    memcpy(layer->kernel, layer->stride, sizeof layer->kernel);
    if (occupancy) VX_TRY(parse_occupancy(reader, occupancy, layer));
    return kernel_offsets(reader, "stride", layer);
}

static vx_status parse_prune(const struct vx_layer_reader *reader,
                             const struct vx_json *object, struct vx_layer *layer)
{
    const struct vx_json *name, *top = vx_json_find(object, "top");
    i64 number;
    VX_TRY(vx_network_need(object, "keep", VX_JSON_TEXT, reader->why, &name));
    layer->rule = VX_SET_KEEP;
    layer->v = 1;
    for (int axis = 0; axis < 3; axis++)
        layer->kernel[axis] = layer->stride[axis] = layer->dilation[axis] = 1;
    if (top) {
        VX_TRY(vx_json_read_i64(top, 1, VX_VOXELS_MAX, reader->why, &number));
        layer->top = (i32)number;
    }
    return parse_by(reader, name, layer);
}

#define POINT_MODES "\"trilinear\" or \"nearest\""
static vx_status parse_point_mode(const struct vx_layer_reader *reader,
                                  const struct vx_json *object, struct vx_layer *layer)
{
    const struct vx_json *mode;
    VX_TRY(vx_network_need_word(object, "mode", POINT_MODES, reader->why, &mode));
    layer->trilinear = !strcmp(mode->text, "trilinear");
    VX_ENSURE_WHY(layer->trilinear || !strcmp(mode->text, "nearest"), reader->why,
                  INVALID_ARGUMENT, "a mode is not known",
                  "line %d: \"mode\": expected " POINT_MODES ", got \"%.*s\"", mode->line,
                  VX_NAME_SHOWN, mode->text);
    if (!layer->trilinear) return VX_OK;
    for (int axis = 0; axis < 3; axis++) layer->kernel[axis] = 2;
    layer->v = 8;
    return VX_OK;
}

/* Points to voxels and back.  With `onto` the stride follows from the sets, later. */
static vx_status parse_points(const struct vx_layer_reader *reader,
                              const struct vx_json *object, struct vx_layer *layer)
{
    static const struct vx_axes_key stride_key = {"stride", 1, VX_POINT_STRIDE_MAX};
    const struct vx_json *stride = vx_json_find(object, "stride");
    const struct vx_json *onto = vx_json_find(object, "onto");
    bool back = layer->op == VX_OP_DEVOXELIZE;
    for (int axis = 0; axis < 3; axis++)
        layer->kernel[axis] = layer->stride[axis] = layer->dilation[axis] = 1;
    layer->v = 1;
    if (back) VX_TRY(parse_point_mode(reader, object, layer));
    if (back) layer->onto = VX_LAYER_FEATS;
    VX_ENSURE_WHY(back || !stride != !onto, reader->why, INVALID_ARGUMENT,
                  "voxelize needs \"stride\" or \"onto\"",
                  "line %d: expected either \"stride\" or \"onto\", got %s", object->line,
                  stride ? "both" : "neither");
    if (onto) return parse_layer(reader, onto, layer, &layer->onto);
    if (back) return VX_OK;
    layer->rule = VX_SET_FLOOR;
    return vx_network_parse_axes(stride, &stride_key, reader->why, layer->stride);
}

vx_status vx_layer_parse_kernel(const struct vx_layer_reader *reader,
                                const struct vx_json *object, struct vx_layer *layer)
{
    static const struct vx_axes_key kernel = {"kernel", 1, VX_KERNEL_AXIS_MAX};
    static const struct vx_axes_key dilation = {"dilation", 1, VX_DILATION_MAX};
    static const struct vx_axes_key stride = {"stride", 1, VX_STRIDE_MAX};
    const struct vx_json *onto = vx_json_find(object, "onto");
    const struct vx_json *dilated = vx_json_find(object, "dilation");
    u32 keys = reader->keys;
    layer->of = layer->onto = layer->by = VX_LAYER_NONE;
    if (vx_op_is_points(layer->op)) return parse_points(reader, object, layer);
    if (keys & KEY_KEEP) return parse_prune(reader, object, layer);
    if (keys & KEY_OF) return parse_of(reader, object, layer);
    if (layer->op == VX_OP_GLOBAL_POOL) parse_samples(layer);
    if (!(keys & (KEY_KERNEL | KEY_STRIDE))) return VX_OK;
    for (int axis = 0; axis < 3; axis++) layer->stride[axis] = layer->dilation[axis] = 1;
    if (keys & KEY_STRIDE) VX_TRY(need_axes(reader, object, &stride, layer->stride));
    if (onto) VX_TRY(parse_layer(reader, onto, layer, &layer->onto));
    if (!(keys & KEY_KERNEL)) return parse_block(reader, object, layer);
    VX_TRY(need_axes(reader, object, &kernel, layer->kernel));
    VX_TRY(kernel_offsets(reader, "kernel", layer));
    if (dilated)
        VX_TRY(vx_network_parse_axes(dilated, &dilation, reader->why, layer->dilation));
    if (keys & KEY_RULE) return parse_rule(reader, object, layer);
    if (layer->op == VX_OP_TRANSPOSED_CONV) {
        layer->rule = VX_SET_EXPAND;
        centre(layer);
    }
    return VX_OK;
}
