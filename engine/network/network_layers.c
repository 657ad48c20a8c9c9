/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/network_layers.h"

#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/network/op_hint.h"

#include <stdio.h>
#include <string.h>

/* PyTorch's default, for both norms. */
#define EPS_DEFAULT 1e-5
#define EPS_MAX     1.0

static const char *const key_names[] = {"name",     "op",      "input",    "inputs",
                                        "channels", "kernel",  "dilation", "bias",
                                        "layout",   "tensors", "affine",   "eps"};
enum key {
    KEY_NAME = 1 << 0,
    KEY_OP = 1 << 1,
    KEY_INPUT = 1 << 2,
    KEY_INPUTS = 1 << 3,
    KEY_CHANNELS = 1 << 4,
    KEY_KERNEL = 1 << 5,
    KEY_DILATION = 1 << 6,
    KEY_BIAS = 1 << 7,
    KEY_LAYOUT = 1 << 8,
    KEY_TENSORS = 1 << 9,
    KEY_AFFINE = 1 << 10,
    KEY_EPS = 1 << 11,
};
#define KEYS_COMMON (KEY_NAME | KEY_OP | KEY_INPUT | KEY_INPUTS)

static const struct op_row {
    i32 inputs_min, inputs_max;
    u32 keys;
} op_rows[] = {
#define VX_ROW(name_, word_, inputs_min_, inputs_max_, keys_)                            \
    {inputs_min_, inputs_max_, keys_},
#include "engine/network/ops.def"
#undef VX_ROW
};
static const char *const op_names[] = {
#define VX_ROW(name_, word_, inputs_min_, inputs_max_, keys_) word_,
#include "engine/network/ops.def"
#undef VX_ROW
};
static const char *const role_names[VX_TENSORS_PER_LAYER] = {
    "weight", "bias", "running_mean", "running_var"};

/* State while layers are read. */
struct reader {
    struct vx_network *network;
    struct vx_arena *arena;
    struct vx_why *why;
};

const char *vx_op_name(enum vx_op op)
{
    return op_names[op];
}

const char *vx_tensor_role_name(enum vx_tensor_role role)
{
    return role_names[role];
}

vx_status vx_network_check_keys(const struct vx_json *object,
                                const struct vx_words *known, struct vx_why *why)
{
    char nearest[VX_NEAREST_BYTES];
    VX_TRY(vx_json_check_kind(object, VX_JSON_OBJECT, why));
    VX_JSON_EACH(member, object)
    {
        bool found = false;
        for (size_t i = 0; i < known->count && !found; i++)
            found = known->list[i] && !strcmp(known->list[i], member->key);
        VX_ENSURE_WHY(found, why, INVALID_ARGUMENT, "a key in network.json is not known",
                      "line %d: unknown key \"%.*s\"%s", member->line, VX_NAME_SHOWN,
                      member->key,
                      vx_nearest_text(member->key, known->list, known->count, nearest));
    }
    return VX_OK;
}

vx_status vx_network_need(const struct vx_json *object, const char *key,
                          enum vx_json_kind kind, struct vx_why *why,
                          const struct vx_json **member)
{
    *member = vx_json_find(object, key);
    VX_ENSURE_WHY(*member, why, INVALID_ARGUMENT, "a key is missing in network.json",
                  "line %d: the key \"%s\" is missing", object->line, key);
    return vx_json_check_kind(*member, kind, why);
}

i32 vx_network_find(const struct vx_network *network, const char *name)
{
    for (i32 i = 0; i < network->layers_count; i++)
        if (!strcmp(network->layers[i].name, name)) return i;
    return -1;
}

const char *vx_network_nearest(const struct vx_network *network, i32 below,
                               const char *name, char *out)
{
    const char *names[VX_LAYERS_MAX + 1] = {NULL};
    if (below < network->layers_count) names[0] = network->feats_name;
    for (i32 i = 0; i < below; i++) names[i + 1] = network->layers[i].name;
    return vx_nearest_text(name, names, (size_t)below + 1, out);
}

/* Reads all names first, so that an error can say that an input is a later layer. */
static vx_status parse_names(struct reader *reader, const struct vx_json *list)
{
    struct vx_network *network = reader->network;
    VX_JSON_EACH(object, list)
    {
        VX_TRY(vx_json_check_kind(object, VX_JSON_OBJECT, reader->why));
        char name[VX_NAME_BYTES];
        const struct vx_json *member;
        VX_TRY(vx_network_need(object, "name", VX_JSON_TEXT, reader->why, &member));
        VX_TRY(vx_json_read_name(member, reader->why, name, sizeof name));
        i32 same = vx_network_find(network, name);
        VX_ENSURE_WHY(same < 0, reader->why, INVALID_ARGUMENT,
                      "two layers have the same name",
                      "line %d: layer \"%s\": the name is taken by the layer on line %d",
                      member->line, name, network->layers[same < 0 ? 0 : same].line);
        bool is_input =
            !strcmp(name, network->feats_name) || !strcmp(name, network->coords_name);
        VX_ENSURE_WHY(
            !is_input, reader->why, INVALID_ARGUMENT, "a layer has the name of an input",
            "line %d: layer \"%s\": the name is taken by an input", member->line, name);
        struct vx_layer *layer = &network->layers[network->layers_count++];
        layer->name = member->text;
        layer->line = object->line;
    }
    return VX_OK;
}

static vx_status layer_op(const struct reader *reader, const struct vx_json *object,
                          struct vx_layer *layer)
{
    char hint[VX_OP_HINT_BYTES];
    const struct vx_json *member;
    VX_TRY(vx_network_need(object, "op", VX_JSON_TEXT, reader->why, &member));
    for (layer->op = 0; layer->op < VX_OPS_COUNT; layer->op++)
        if (!strcmp(op_names[layer->op], member->text)) return VX_OK;
    VX_FAIL_WHY(reader->why, INVALID_ARGUMENT, "an op in network.json is not known",
                "line %d: unknown op \"%.*s\"%s", member->line, VX_NAME_SHOWN,
                member->text, vx_op_hint(member->text, hint));
}

/* Refuses keys of other libraries, with a hint at our key or at what to do. */
static vx_status layer_foreign_keys(const struct reader *reader,
                                    const struct vx_json *object,
                                    const char *const mine[VX_COUNT(key_names)])
{
    char hint[VX_OP_HINT_BYTES];
    VX_JSON_EACH(member, object)
    {
        bool found = !vx_key_hint(member->key, hint)[0];
        for (size_t i = 0; i < VX_COUNT(key_names) && !found; i++)
            found = mine[i] && !strcmp(mine[i], member->key);
        VX_ENSURE_WHY(found, reader->why, INVALID_ARGUMENT,
                      "a key in network.json is not known",
                      "line %d: unknown key \"%.*s\"%s", member->line, VX_NAME_SHOWN,
                      member->key, hint);
    }
    return VX_OK;
}

static vx_status layer_keys(const struct reader *reader, const struct vx_json *object,
                            const struct vx_layer *layer)
{
    const char *mine[VX_COUNT(key_names)] = {NULL};
    u32 keys = op_rows[layer->op].keys | KEYS_COMMON;
    for (size_t i = 0; i < VX_COUNT(key_names); i++) {
        if (keys >> i & 1) mine[i] = key_names[i];
        const struct vx_json *member = vx_json_find(object, key_names[i]);
        VX_ENSURE_WHY(mine[i] || !member, reader->why, INVALID_ARGUMENT,
                      "a key does not belong to its layer's op",
                      "line %d: the key \"%s\" does not belong to %s", member->line,
                      key_names[i], vx_op_name(layer->op));
    }
    VX_TRY(layer_foreign_keys(reader, object, mine));
    return vx_network_check_keys(object, &(struct vx_words){mine, VX_COUNT(mine)},
                                 reader->why);
}

static vx_status layer_input(const struct reader *reader, const struct vx_json *name,
                             struct vx_layer *layer)
{
    const struct vx_network *network = reader->network;
    char nearest[VX_NEAREST_BYTES];
    i32 self = (i32)(layer - network->layers), found = VX_LAYER_FEATS;
    VX_TRY(vx_json_check_kind(name, VX_JSON_TEXT, reader->why));
    if (strcmp(name->text, network->feats_name) != 0) {
        found = vx_network_find(network, name->text);
        VX_ENSURE_WHY(
            strcmp(name->text, network->coords_name) != 0, reader->why, INVALID_ARGUMENT,
            "coords cannot be the input of a layer",
            "line %d: expected a layer or \"%s\" as input, got \"%s\", which has "
            "coordinates and no features",
            name->line, network->feats_name, name->text);
        VX_ENSURE_WHY(found >= 0, reader->why, INVALID_ARGUMENT, "an input is not known",
                      "line %d: unknown input \"%.*s\"%s", name->line, VX_NAME_SHOWN,
                      name->text, vx_network_nearest(network, self, name->text, nearest));
        VX_ENSURE_WHY(
            found < self, reader->why, INVALID_ARGUMENT, "a layer uses a later layer",
            "line %d: input \"%.*s\" is %s; a layer may only use layers above it",
            name->line, VX_NAME_SHOWN, name->text,
            found == self ? "the layer itself" : "a later layer");
    }
    layer->inputs[layer->inputs_count++] = found;
    return VX_OK;
}

static vx_status layer_inputs(const struct reader *reader, const struct vx_json *object,
                              struct vx_layer *layer)
{
    const struct op_row *row = &op_rows[layer->op];
    const struct vx_json *one = vx_json_find(object, "input");
    const struct vx_json *many = vx_json_find(object, "inputs");
    VX_ENSURE_WHY(!one != !many, reader->why, INVALID_ARGUMENT,
                  "a layer needs \"input\" or \"inputs\"",
                  "line %d: expected either \"input\" or \"inputs\", got %s",
                  object->line, one ? "both" : "neither");
    if (many) VX_TRY(vx_json_check_kind(many, VX_JSON_LIST, reader->why));
    i32 count = many ? many->count : 1;
    char expected[32];
    if (row->inputs_min == row->inputs_max)
        snprintf(expected, sizeof expected, "%d", row->inputs_min);
    else
        snprintf(expected, sizeof expected, "%d to %d", row->inputs_min, row->inputs_max);
    VX_ENSURE_WHY(count >= row->inputs_min && count <= row->inputs_max, reader->why,
                  INVALID_ARGUMENT, "a layer has the wrong number of inputs",
                  "line %d: expected %s input%s for %s, got %d", object->line, expected,
                  row->inputs_max > 1 ? "s" : "", vx_op_name(layer->op), count);
    if (one) return layer_input(reader, one, layer);
    VX_JSON_EACH(name, many) VX_TRY(layer_input(reader, name, layer));
    return VX_OK;
}

/* Reads one integer for all axes, or three, for columns 1 to 3 of coords. */
static vx_status layer_axes(const struct reader *reader, const struct vx_json *value,
                            i32 max, i32 axes[3])
{
    i64 number;
    if (value->kind != VX_JSON_LIST) {
        VX_TRY(vx_json_read_i64(value, 1, max, reader->why, &number));
        axes[0] = axes[1] = axes[2] = (i32)number;
        return VX_OK;
    }
    VX_ENSURE_WHY(
        value->count == 3, reader->why, INVALID_ARGUMENT,
        "expected one integer or three, one for each axis",
        "line %d: \"%s\": expected one integer, or three for columns 1 to 3 of coords, "
        "got %d",
        value->line, value->key, value->count);
    i32 *axis = axes;
    VX_JSON_EACH(child, value)
    {
        VX_TRY(vx_json_read_i64(child, 1, max, reader->why, &number));
        *axis++ = (i32)number;
    }
    return VX_OK;
}

static vx_status layer_kernel(const struct reader *reader, const struct vx_json *object,
                              struct vx_layer *layer)
{
    const struct vx_json *kernel = vx_json_find(object, "kernel");
    const struct vx_json *dilation = vx_json_find(object, "dilation");
    VX_ENSURE_WHY(kernel, reader->why, INVALID_ARGUMENT, "a convolution needs a kernel",
                  "line %d: the key \"kernel\" is missing", object->line);
    VX_TRY(layer_axes(reader, kernel, VX_KERNEL_AXIS_MAX, layer->kernel));
    const i32 *k = layer->kernel;
    VX_ENSURE_WHY(k[0] & k[1] & k[2] & 1, reader->why, INVALID_ARGUMENT,
                  "a submanifold kernel is odd along every axis",
                  "line %d: \"kernel\": expected odd sizes, got %dx%dx%d", kernel->line,
                  k[0], k[1], k[2]);
    i64 v = (i64)k[0] * k[1] * k[2];
    VX_ENSURE_WHY(v <= VX_KERNEL_OFFSETS_MAX, reader->why, INVALID_ARGUMENT,
                  "a kernel has too many offsets",
                  "line %d: \"kernel\": expected at most %d offsets, got %dx%dx%d = %lld",
                  kernel->line, VX_KERNEL_OFFSETS_MAX, k[0], k[1], k[2], (long long)v);
    layer->v = (i32)v;
    layer->dilation[0] = layer->dilation[1] = layer->dilation[2] = 1;
    if (dilation) VX_TRY(layer_axes(reader, dilation, VX_DILATION_MAX, layer->dilation));
    return VX_OK;
}

static vx_status layer_layout(const struct reader *reader, const struct vx_json *value,
                              struct vx_layer *layer)
{
    const i32 *k = layer->kernel, *d = layer->dilation;
    const char *text;
    if (!value) return VX_OK;
    VX_TRY(vx_json_read_text(value, reader->why, &text));
    VX_ENSURE_WHY(vx_layout_find(text, &layer->layout), reader->why, INVALID_ARGUMENT,
                  "a weight layout is not known",
                  "line %d: \"layout\": expected one of %s, got \"%.*s\"", value->line,
                  vx_layout_words(), VX_NAME_SHOWN, text);
    bool dilated = false;
    for (i32 i = 0; i < 3; i++) dilated = dilated || (k[i] > 1 && d[i] > 1);
    VX_ENSURE_WHY(
        !dilated || layer->layout != VX_LAYOUT_TORCHSPARSE, reader->why, INVALID_ARGUMENT,
        "TorchSparse 2 does not dilate",
        "line %d: \"dilation\": TorchSparse 2 computes every dilation as 1: set "
        "1; for weights of TorchSparse 1.4, which does dilate, set layout "
        "\"minkowski\" (same order)",
        value->line);
    layer->layout_said = true;
    return VX_OK;
}

/* The tensors that the layer has, with PyTorch's names: LAYER.weight, LAYER.bias, ... */
static vx_status layer_tensors_default(const struct reader *reader,
                                       struct vx_layer *layer)
{
    bool conv = layer->op == VX_OP_SUBM_CONV || layer->op == VX_OP_LINEAR;
    bool batch = layer->op == VX_OP_BATCH_NORM;
    const bool has[VX_TENSORS_PER_LAYER] = {
        [VX_TENSOR_WEIGHT] = conv || layer->affine,
        [VX_TENSOR_BIAS] = layer->bias || layer->affine,
        [VX_TENSOR_RUNNING_MEAN] = batch,
        [VX_TENSOR_RUNNING_VAR] = batch,
    };
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++) {
        if (!has[role]) continue;
        char name[VX_NAME_BYTES + 16];
        int length = snprintf(name, sizeof name, "%s.%s", layer->name, role_names[role]);
        layer->tensors[role] = vx_arena_copy_text(reader->arena, name, (size_t)length);
        VX_ENSURE(layer->tensors[role], RESOURCE_EXHAUSTED,
                  "the memory for a network is full");
    }
    return VX_OK;
}

static vx_status layer_tensors(const struct reader *reader, const struct vx_json *named,
                               struct vx_layer *layer)
{
    VX_TRY(layer_tensors_default(reader, layer));
    if (!named) return VX_OK;
    const char *known[VX_TENSORS_PER_LAYER];
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++)
        known[role] = layer->tensors[role] ? role_names[role] : NULL;
    VX_TRY(vx_network_check_keys(named, &(struct vx_words){known, VX_COUNT(known)},
                                 reader->why));
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++) {
        const struct vx_json *name = vx_json_find(named, role_names[role]);
        if (name) VX_TRY(vx_json_read_text(name, reader->why, &layer->tensors[role]));
    }
    return VX_OK;
}

/* Reads the keys that only some ops have; layer_keys has refused all others. */
static vx_status layer_attributes(const struct reader *reader,
                                  const struct vx_json *object, struct vx_layer *layer)
{
    u32 keys = op_rows[layer->op].keys;
    const struct vx_json *value;
    if (keys & KEY_CHANNELS) {
        i64 channels;
        VX_TRY(vx_network_need(object, "channels", VX_JSON_I64, reader->why, &value));
        VX_TRY(vx_json_read_i64(value, 1, VX_CHANNELS_MAX, reader->why, &channels));
        layer->channels = (i32)channels;
    }
    if (keys & KEY_KERNEL) VX_TRY(layer_kernel(reader, object, layer));
    if (keys & KEY_LAYOUT)
        VX_TRY(layer_layout(reader, vx_json_find(object, "layout"), layer));
    layer->bias = keys & KEY_BIAS;
    value = vx_json_find(object, "bias");
    if (value) VX_TRY(vx_json_read_bool(value, reader->why, &layer->bias));
    layer->affine = keys & KEY_AFFINE;
    value = vx_json_find(object, "affine");
    if (value) VX_TRY(vx_json_read_bool(value, reader->why, &layer->affine));
    layer->eps = EPS_DEFAULT;
    value = vx_json_find(object, "eps");
    layer->eps_said = value;
    if (value) VX_TRY(vx_json_read_f64(value, 0, EPS_MAX, reader->why, &layer->eps));
    return layer_tensors(reader, vx_json_find(object, "tensors"), layer);
}

static vx_status layer_shape(const struct reader *reader, struct vx_layer *layer)
{
    const struct vx_network *network = reader->network;
    i64 sum = 0;
    layer->channels_in = vx_network_channels(network, layer->inputs[0]);
    for (i32 i = 0; i < layer->inputs_count; i++) {
        i32 channels = vx_network_channels(network, layer->inputs[i]);
        sum += channels;
        VX_ENSURE_WHY(layer->op != VX_OP_ADD || channels == layer->channels_in,
                      reader->why, INVALID_ARGUMENT,
                      "the inputs of an add differ in channels",
                      "line %d: expected inputs of equal channels, got %d and %d",
                      layer->line, layer->channels_in, channels);
    }
    VX_ENSURE_WHY(sum <= VX_CHANNELS_MAX || layer->op != VX_OP_CONCAT, reader->why,
                  INVALID_ARGUMENT, "a concat has too many channels",
                  "line %d: expected at most %d channels, got %lld", layer->line,
                  VX_CHANNELS_MAX, (long long)sum);
    if (layer->op == VX_OP_CONCAT)
        layer->channels = (i32)sum;
    else if (!layer->channels)
        layer->channels = layer->channels_in;
    return VX_OK;
}

static vx_status layer_parse(const struct reader *reader, const struct vx_json *object,
                             struct vx_layer *layer)
{
    VX_TRY(layer_op(reader, object, layer));
    VX_TRY(layer_keys(reader, object, layer));
    VX_TRY(layer_inputs(reader, object, layer));
    VX_TRY(layer_attributes(reader, object, layer));
    return layer_shape(reader, layer);
}

vx_status vx_network_parse_layers(struct vx_network *network, const struct vx_json *list,
                                  struct vx_arena *arena, struct vx_why *why)
{
    struct reader reader = {network, arena, why};
    VX_ENSURE_WHY(list->count > 0 && list->count <= VX_LAYERS_MAX, why, INVALID_ARGUMENT,
                  "a network has no layers or too many",
                  "line %d: \"layers\": expected 1 to %d layers, got %d", list->line,
                  VX_LAYERS_MAX, list->count);
    network->layers =
        vx_arena_take_array(arena, (size_t)list->count, sizeof *network->layers);
    VX_ENSURE(network->layers, RESOURCE_EXHAUSTED, "the memory for a network is full");
    VX_TRY(parse_names(&reader, list));
    struct vx_layer *layer = network->layers;
    VX_JSON_EACH(object, list)
    {
        vx_status status = layer_parse(&reader, object, layer);
        if (status.fault) {
            vx_why_prefix(why, "layer \"%.*s\": ", VX_NAME_SHOWN, layer->name);
            return status;
        }
        layer++;
    }
    return VX_OK;
}
