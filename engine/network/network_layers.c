/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/network_layers.h"

#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/network/network_fp8.h"
#include "engine/network/op_hint.h"

#include <stdio.h>
#include <string.h>

/* PyTorch's default, for both norms. */
#define EPS_DEFAULT 1e-5
#define EPS_MAX     1.0

/* PyTorch's default. */
#define SLOPE_DEFAULT 0.01

/* Largest number of a layer that is not a weight: FLT_MAX. */
#define REAL_MAX 3.40282346638528859812e+38

static const char *const key_names[] = {
    "name",      "op",     "input",   "inputs", "channels", "kernel", "dilation",
    "bias",      "layout", "tensors", "affine", "eps",      "stride", "padding",
    "rule",      "of",     "onto",    "groups", "slope",    "scale",  "shift",
    "occupancy", "keep",   "top",     "mode",   "shape",    "fold",   "fp8_scale"};

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

const char *vx_op_name(enum vx_op op)
{
    return op_names[op];
}

bool vx_op_is_conv(enum vx_op op)
{
    return op == VX_OP_SUBM_CONV || op == VX_OP_SPARSE_CONV || op == VX_OP_INVERSE_CONV ||
           op == VX_OP_TRANSPOSED_CONV;
}

bool vx_op_is_points(enum vx_op op)
{
    return op == VX_OP_VOXELIZE || op == VX_OP_DEVOXELIZE;
}

bool vx_op_is_norm(enum vx_op op)
{
    return op == VX_OP_BATCH_NORM || op == VX_OP_LAYER_NORM || op == VX_OP_GROUP_NORM ||
           op == VX_OP_INSTANCE_NORM;
}

const char *vx_pool_mode_name(enum vx_pool_mode mode)
{
    static const char *const words[] = {
        [VX_POOL_MAX] = "max", [VX_POOL_AVG] = "avg", [VX_POOL_SUM] = "sum"};
    return words[mode];
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

vx_status vx_network_need_word(const struct vx_json *object, const char *key,
                               const char *words, struct vx_why *why,
                               const struct vx_json **member)
{
    VX_ENSURE_WHY(vx_json_find(object, key), why, INVALID_ARGUMENT,
                  "a key is missing in network.json",
                  "line %d: the key \"%s\" is missing: expected %s", object->line, key,
                  words);
    return vx_network_need(object, key, VX_JSON_TEXT, why, member);
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
static vx_status parse_names(struct vx_layer_reader *reader, const struct vx_json *list)
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

static vx_status layer_op(const struct vx_layer_reader *reader,
                          const struct vx_json *object, struct vx_layer *layer)
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
static vx_status layer_foreign_keys(const struct vx_layer_reader *reader,
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

/* Where a key that the op does not have belongs, or "". */
static const char *key_elsewhere(enum vx_op op, u32 key)
{
    if (op == VX_OP_SUBM_CONV && key & (KEY_STRIDE | KEY_PADDING | KEY_RULE))
        return "; a convolution with a stride is sparse_conv";
    if ((op == VX_OP_INVERSE_CONV || op == VX_OP_UNPOOL) && key & KEYS_WINDOW)
        return "; it follows from the layer that \"of\" names";
    if (key & KEY_FP8_SCALE) return "; only convolutions are computed in FP8";
    return "";
}

static vx_status layer_keys(const struct vx_layer_reader *reader,
                            const struct vx_json *object, const struct vx_layer *layer)
{
    const char *mine[VX_COUNT(key_names)] = {NULL};
    u32 keys = reader->keys | KEYS_COMMON;
    for (size_t i = 0; i < VX_COUNT(key_names); i++) {
        if (keys >> i & 1) mine[i] = key_names[i];
        const struct vx_json *member = vx_json_find(object, key_names[i]);
        VX_ENSURE_WHY(mine[i] || !member, reader->why, INVALID_ARGUMENT,
                      "a key does not belong to its layer's op",
                      "line %d: the key \"%s\" does not belong to %s%s", member->line,
                      key_names[i], vx_op_name(layer->op),
                      key_elsewhere(layer->op, UINT32_C(1) << i));
    }
    VX_TRY(layer_foreign_keys(reader, object, mine));
    return vx_network_check_keys(object, &(struct vx_words){mine, VX_COUNT(mine)},
                                 reader->why);
}

static vx_status layer_input(const struct vx_layer_reader *reader,
                             const struct vx_json *name, struct vx_layer *layer)
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
        VX_TRY(vx_layer_check_read(reader, name, found));
    }
    layer->inputs[layer->inputs_count++] = found;
    return VX_OK;
}

static vx_status layer_inputs(const struct vx_layer_reader *reader,
                              const struct vx_json *object, struct vx_layer *layer)
{
    const struct op_row *row = &op_rows[layer->op];
    const struct vx_json *one = vx_json_find(object, "input");
    const struct vx_json *many = vx_json_find(object, "inputs");
    VX_ENSURE_WHY(!one != !many, reader->why, INVALID_ARGUMENT,
                  "a layer needs \"input\" or \"inputs\"",
                  "line %d: expected either \"input\" or \"inputs\", got %s",
                  object->line, one ? "both" : "neither");
    VX_ENSURE_WHY(!one || one->kind != VX_JSON_LIST, reader->why, INVALID_ARGUMENT,
                  "\"input\" is a list",
                  "line %d: expected \"input\" to be one name, got a "
                  "list: that is \"inputs\"",
                  one->line);
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

static vx_status layer_layout(const struct vx_layer_reader *reader,
                              const struct vx_json *value, struct vx_layer *layer)
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
        "TorchSparse does not dilate",
        "line %d: \"dilation\": TorchSparse computes every dilation as 1: set 1; only "
        "for weights of a commit between 1.4 and 2.0, which did dilate, set layout "
        "\"minkowski\" (same order for odd kernels)",
        value->line);
    layer->layout_said = true;
    return VX_OK;
}

static vx_status layer_channels(const struct vx_layer_reader *reader,
                                const struct vx_json *object, struct vx_layer *layer)
{
    const struct vx_json *value;
    i64 number;
    if (reader->keys & KEY_CHANNELS) {
        VX_TRY(vx_network_need(object, "channels", VX_JSON_I64, reader->why, &value));
        VX_TRY(vx_json_read_i64(value, 1, VX_CHANNELS_MAX, reader->why, &number));
        layer->channels = (i32)number;
    }
    layer->groups = 1;
    value = vx_json_find(object, "groups");
    if (layer->op == VX_OP_GROUP_NORM)
        VX_TRY(vx_network_need(object, "groups", VX_JSON_I64, reader->why, &value));
    if (!value) return VX_OK;
    VX_TRY(vx_json_read_i64(value, 1, VX_CHANNELS_MAX, reader->why, &number));
    layer->groups = (i32)number;
    return VX_OK;
}

#define MODES "\"max\", \"avg\" or \"sum\""
/* What a global pool makes of the rows of a sample: it has no usual value. */
static vx_status layer_mode(const struct vx_layer_reader *reader,
                            const struct vx_json *object, struct vx_layer *layer)
{
    const struct vx_json *value;
    VX_TRY(vx_network_need_word(object, "mode", MODES, reader->why, &value));
    for (enum vx_pool_mode mode = VX_POOL_MAX; mode <= VX_POOL_SUM; mode++) {
        layer->mode = mode;
        if (!strcmp(value->text, vx_pool_mode_name(mode))) return VX_OK;
    }
    VX_FAIL_WHY(reader->why, INVALID_ARGUMENT, "a mode is not known",
                "line %d: \"mode\": expected " MODES ", got \"%.*s\"", value->line,
                VX_NAME_SHOWN, value->text);
}

/* Reads the keys that only some ops have; layer_keys has refused all others. */
static vx_status layer_attributes(const struct vx_layer_reader *reader,
                                  const struct vx_json *object, struct vx_layer *layer)
{
    u32 keys = reader->keys;
    const struct vx_json *value;
    VX_TRY(layer_channels(reader, object, layer));
    VX_TRY(vx_layer_parse_kernel(reader, object, layer));
    if (keys & KEY_SHAPE) VX_TRY(vx_layer_parse_dense(reader, object, layer));
    if (layer->op == VX_OP_GLOBAL_POOL) VX_TRY(layer_mode(reader, object, layer));
    if (keys & KEY_LAYOUT)
        VX_TRY(layer_layout(reader, vx_json_find(object, "layout"), layer));
    layer->bias = keys & KEY_BIAS;
    value = vx_json_find(object, "bias");
    if (value) VX_TRY(vx_json_read_bool(value, reader->why, &layer->bias));
    layer->affine = keys & KEY_AFFINE;
    value = vx_json_find(object, "affine");
    if (value) VX_TRY(vx_json_read_bool(value, reader->why, &layer->affine));
    value = vx_json_find(object, "eps");
    layer->eps_said = value;
    const struct real {
        const char *key;
        f64 initial, min, max;
        f64 *out;
    } reals[] = {
        {"eps", EPS_DEFAULT, 0, EPS_MAX, &layer->eps},
        {"slope", SLOPE_DEFAULT, -REAL_MAX, REAL_MAX, &layer->slope},
        {"scale", 1, -REAL_MAX, REAL_MAX, &layer->scale},
        {"shift", 0, -REAL_MAX, REAL_MAX, &layer->shift},
    };
    for (size_t i = 0; i < VX_COUNT(reals); i++) {
        const struct real *it = &reals[i];
        *it->out = it->initial;
        value = vx_json_find(object, it->key);
        if (value)
            VX_TRY(vx_json_read_f64(value, it->min, it->max, reader->why, it->out));
    }
    return vx_layer_parse_tensors(reader, vx_json_find(object, "tensors"), layer);
}

/* Channels of the result that follow from the inputs'. */
static i64 channels_of(const struct vx_layer *layer, i64 sum)
{
    if (layer->op == VX_OP_CONCAT) return sum;
    if (layer->op == VX_OP_ARGMAX) return 1;
    if (layer->op == VX_OP_SPACE_TO_CHANNEL) return sum * layer->v;
    if (layer->op == VX_OP_CHANNEL_TO_SPACE) return sum / layer->v;
    return layer->channels ? layer->channels : layer->channels_in;
}

static vx_status check_parts(const struct vx_layer_reader *reader,
                             const struct vx_layer *layer)
{
    bool children = layer->op == VX_OP_CHANNEL_TO_SPACE;
    i32 parts = children ? layer->v : layer->groups;
    VX_ENSURE_WHY(layer->channels_in % parts == 0, reader->why, INVALID_ARGUMENT,
                  "channels cannot be divided into equal parts",
                  "line %d: expected the channels of the input to be a multiple of %d, "
                  "the %s, got %d",
                  layer->line, parts, children ? "children of a voxel" : "groups",
                  layer->channels_in);
    VX_ENSURE_WHY(!vx_op_is_conv(layer->op) || layer->channels % parts == 0, reader->why,
                  INVALID_ARGUMENT, "channels cannot be divided into equal parts",
                  "line %d: expected \"channels\" to be a multiple of %d, the groups, "
                  "got %d",
                  layer->line, parts, layer->channels);
    return VX_OK;
}

static vx_status layer_shape(const struct vx_layer_reader *reader, struct vx_layer *layer)
{
    const struct vx_network *network = reader->network;
    bool equal = layer->op == VX_OP_ADD || layer->op == VX_OP_MUL;
    i64 sum = 0;
    layer->channels_in = vx_network_channels(network, layer->inputs[0]);
    if (layer->op == VX_OP_INSTANCE_NORM) layer->groups = layer->channels_in;
    for (i32 i = 0; i < layer->inputs_count; i++) {
        i32 channels = vx_network_channels(network, layer->inputs[i]);
        sum += channels;
        VX_ENSURE_WHY(!equal || channels == layer->channels_in, reader->why,
                      INVALID_ARGUMENT, "the inputs of a layer differ in channels",
                      "line %d: expected inputs of equal channels, got %d and %d",
                      layer->line, layer->channels_in, channels);
    }
    VX_TRY(check_parts(reader, layer));
    sum = channels_of(layer, sum);
    VX_ENSURE_WHY(sum <= VX_CHANNELS_MAX, reader->why, INVALID_ARGUMENT,
                  "a layer has too many channels",
                  "line %d: expected at most %d channels, got %lld", layer->line,
                  VX_CHANNELS_MAX, (long long)sum);
    layer->channels = (i32)sum;
    return VX_OK;
}

static vx_status layer_parse(struct vx_layer_reader *reader, const struct vx_json *object,
                             struct vx_layer *layer)
{
    VX_TRY(layer_op(reader, object, layer));
    reader->keys = op_rows[layer->op].keys;
    VX_TRY(layer_keys(reader, object, layer));
    VX_TRY(layer_inputs(reader, object, layer));
    VX_TRY(layer_attributes(reader, object, layer));
    VX_TRY(vx_layer_parse_fp8(reader, object, layer));
    VX_TRY(layer_shape(reader, layer));
    VX_TRY(vx_layer_settle_set(reader, layer));
    return layer->op == VX_OP_TO_DENSE ? vx_layer_settle_dense(reader, layer) : VX_OK;
}

vx_status vx_network_parse_layers(struct vx_network *network, const struct vx_json *list,
                                  struct vx_arena *arena, struct vx_why *why)
{
    struct vx_layer_reader reader = {network, arena, why, 0};
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
