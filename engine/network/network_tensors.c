/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/network_layers.h"

#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"

#include <stdio.h>
#include <string.h>

static const char *const role_names[VX_TENSORS_PER_LAYER] = {
    "weight", "bias", "running_mean", "running_var"};

const char *vx_tensor_role_name(enum vx_tensor_role role)
{
    return role_names[role];
}

/* The tensors that the layer has, with PyTorch's names: LAYER.weight, LAYER.bias, ... */
static vx_status tensors_default(const struct vx_layer_reader *reader,
                                 struct vx_layer *layer)
{
    bool conv = vx_op_is_conv(layer->op) || layer->op == VX_OP_LINEAR;
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

/* A tensor that the op has, and that "bias" or "affine" takes from the layer, is no
 * unknown word. */
static vx_status tensors_off(const struct vx_layer_reader *reader,
                             const struct vx_json *named, const struct vx_layer *layer)
{
    VX_TRY(vx_json_check_kind(named, VX_JSON_OBJECT, reader->why));
    const char *off = reader->keys & KEY_BIAS ? "bias" : "affine";
    for (int role = VX_TENSOR_WEIGHT; role <= VX_TENSOR_BIAS; role++) {
        if (layer->tensors[role]) continue;
        const struct vx_json *name = vx_json_find(named, role_names[role]);
        VX_ENSURE_WHY(!name, reader->why, INVALID_ARGUMENT,
                      "a tensor is named that its layer does not have",
                      "line %d: \"tensors\" names a %s, but \"%s\" is false", name->line,
                      role_names[role], off);
    }
    return VX_OK;
}

vx_status vx_layer_parse_tensors(const struct vx_layer_reader *reader,
                                 const struct vx_json *named, struct vx_layer *layer)
{
    VX_TRY(tensors_default(reader, layer));
    if (!named) return VX_OK;
    VX_TRY(tensors_off(reader, named, layer));
    const char *known[VX_TENSORS_PER_LAYER];
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++)
        known[role] = layer->tensors[role] ? role_names[role] : NULL;
    vx_status status = vx_network_check_keys(
        named, &(struct vx_words){known, VX_COUNT(known)}, reader->why);
    if (status.fault) vx_why_prefix(reader->why, "\"tensors\": ");
    VX_TRY(status);
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++) {
        const struct vx_json *name = vx_json_find(named, role_names[role]);
        if (name) VX_TRY(vx_json_read_text(name, reader->why, &layer->tensors[role]));
    }
    return VX_OK;
}
