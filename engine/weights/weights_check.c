/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/network/blocks.h"
#include "engine/weights/layout.h"
#include "engine/weights/weights.h"

#include <stdio.h>
#include <string.h>

/* Room for a layer's name, a dot and a role. */
#define NAME_ROOM (VX_NAME_BYTES + 32)

/* The tensors of the file whose names begin with the first `bytes` of the name. */
static size_t tensors_begun(const struct vx_safetensors *file, const char *name,
                            size_t bytes, const char *known[VX_LAYERS_MAX])
{
    size_t count = 0;
    /* Nearly always all of them have room. */
    for (i32 i = 0; i < vx_safetensors_count(file) && count < VX_LAYERS_MAX; i++) {
        const char *one = vx_safetensors_get(file, i)->name;
        if (!strncmp(one, name, bytes)) known[count++] = one;
    }
    return count;
}

/* Of the layer itself if the file has any: a name of another layer, which is as near by
 * spelling, is read by that one. */
static const char *tensor_nearest(const struct vx_safetensors *file, const char *name,
                                  char *out)
{
    const char *known[VX_LAYERS_MAX], *last = strrchr(name, '.');
    size_t count = last ? tensors_begun(file, name, (size_t)(last - name) + 1, known) : 0;
    if (!count) count = tensors_begun(file, name, 0, known);
    return vx_nearest_text(name, known, count, out);
}

/* Refuses a [Ci, Co] matrix for a linear layer, whose weight is [Co, Ci].  A square one
 * would fit, and every answer would be wrong. */
static vx_status check_linear(const struct vx_layer *layer,
                              const struct vx_tensor *tensor, struct vx_why *why)
{
    char want[VX_SHAPE_TEXT_BYTES], got[VX_SHAPE_TEXT_BYTES];
    const i64 shape[] = {layer->channels, layer->channels_in};
    const char *last = strrchr(tensor->name, '.');
    bool kernel = !strcmp(last ? last + 1 : tensor->name, "kernel");
    bool fits =
        tensor->rank == 2 && tensor->shape[0] == shape[0] && tensor->shape[1] == shape[1];
    bool transposed =
        tensor->rank == 2 && tensor->shape[0] == shape[1] && tensor->shape[1] == shape[0];
    VX_ENSURE_WHY(
        !fits || !transposed || !kernel || shape[0] == 1, why, INVALID_ARGUMENT,
        "a square weight named kernel is ambiguous",
        "%s is [Co, Ci] for linear, but a \"kernel\" of TorchSparse or MinkowskiEngine "
        "is [Ci, Co]: use op \"subm_conv\", \"kernel\": 1, \"layout\": \"minkowski\"",
        vx_shape_text(shape, 2, want));
    VX_ENSURE_WHY(fits, why, INVALID_ARGUMENT, "a tensor's shape does not fit its layer",
                  "expected shape %s, got %s%s", vx_shape_text(shape, 2, want),
                  vx_shape_text(tensor->shape, tensor->rank, got),
                  transposed ? ", its transpose: op \"subm_conv\", \"kernel\": 1 reads "
                               "[Ci, Co] with \"layout\": \"minkowski\""
                  : tensor->rank > 2
                      ? "; a convolution of one offset is op \"subm_conv\", "
                        "\"kernel\": 1"
                      : "");
    return VX_OK;
}

static vx_status check_vector(const struct vx_layer *layer,
                              const struct vx_tensor *tensor, struct vx_why *why)
{
    char want[VX_SHAPE_TEXT_BYTES], got[VX_SHAPE_TEXT_BYTES];
    const i64 shape[] = {layer->channels};
    bool row = tensor->rank == 2 && tensor->shape[0] == 1;
    VX_ENSURE_WHY(vx_layout_fits_vector(layer, tensor), why, INVALID_ARGUMENT,
                  "a tensor's shape does not fit its layer",
                  "expected shape %s, got %s%s", vx_shape_text(shape, 1, want),
                  vx_shape_text(tensor->shape, tensor->rank, got),
                  row && vx_op_is_conv(layer->op)
                      ? ", as MinkowskiEngine writes it: set \"layout\": \"minkowski\""
                      : "");
    return VX_OK;
}

static vx_status check_tensor(struct vx_layer *layer, enum vx_tensor_role role,
                              const struct vx_safetensors *file, struct vx_why *why)
{
    char nearest[VX_NEAREST_BYTES];
    const char *name = layer->tensors[role];
    const struct vx_tensor *tensor = vx_safetensors_find(file, name);
    VX_ENSURE_WHY(tensor, why, INVALID_ARGUMENT,
                  "a tensor is missing in the weights file",
                  "the tensor is missing; the %s of %s needs it%s%s",
                  vx_tensor_role_name(role), vx_op_name(layer->op),
                  role == VX_TENSOR_BIAS && layer->bias
                      ? "; set \"bias\": false if the layer has none"
                      : "",
                  tensor_nearest(file, name, nearest));
    VX_ENSURE_WHY(vx_tensor_is_readable(tensor), why, INVALID_ARGUMENT,
                  "a weight has an unusable dtype",
                  "expected F32, F16 or BF16 to read it as a weight, got %s",
                  tensor->dtype);
    if (role == VX_TENSOR_WEIGHT && vx_op_is_conv(layer->op))
        return vx_layout_settle(layer, tensor, why);
    if (role == VX_TENSOR_WEIGHT && layer->op == VX_OP_LINEAR)
        return check_linear(layer, tensor, why);
    return check_vector(layer, tensor, why);
}

static bool is_read(const struct vx_network *network, const char *name)
{
    for (i32 i = 0; i < network->layers_count; i++)
        for (int role = 0; role < VX_TENSORS_PER_LAYER; role++) {
            const char *mine = network->layers[i].tensors[role];
            if (mine && !strcmp(mine, name)) return true;
        }
    return false;
}

/* Refuses a layer that leaves out a tensor if the file has that tensor beside the layer's
 * own and nothing reads it: the layer was trained with it. */
static vx_status check_left_out(const struct vx_network *network,
                                const struct vx_layer *layer, enum vx_tensor_role role,
                                const struct vx_safetensors *file, struct vx_why *why)
{
    bool norm = vx_op_is_norm(layer->op);
    const char *own = layer->tensors[norm ? VX_TENSOR_RUNNING_MEAN : VX_TENSOR_WEIGHT];
    char name[NAME_ROOM];
    size_t stem = strlen(layer->name) + 1;
    if (own) {
        const char *last = strrchr(own, '.');
        stem = last ? (size_t)(last - own) + 1 : 0;
    }
    if (stem >= VX_NAME_BYTES) return VX_OK; /* longer than any layer's name */
    snprintf(name, sizeof name, "%.*s%s%s", (int)(own ? stem : stem - 1),
             own ? own : layer->name, own ? "" : ".", vx_tensor_role_name(role));
    bool there = vx_safetensors_find(file, name) && !is_read(network, name);
    VX_ENSURE_WHY(
        !there, why, INVALID_ARGUMENT,
        "a layer leaves out a tensor that the file has for it",
        "%s: layer \"%.*s\" sets \"%s\": false, but the file has \"%.*s\", which no "
        "layer reads: set true, or remove the tensor from the file",
        vx_safetensors_label(file), VX_NAME_SHOWN / 2, layer->name,
        norm ? "affine" : "bias", VX_NAME_SHOWN, name);
    return VX_OK;
}

static vx_status check_layer(const struct vx_network *network, struct vx_layer *layer,
                             const struct vx_safetensors *file, struct vx_why *why)
{
    bool conv = vx_op_is_conv(layer->op) || layer->op == VX_OP_LINEAR;
    bool norm = vx_op_is_norm(layer->op);
    for (enum vx_tensor_role role = 0; role < VX_TENSORS_PER_LAYER; role++) {
        if (!layer->tensors[role]) continue;
        vx_status status = check_tensor(layer, role, file, why);
        if (!status.fault) continue;
        vx_why_prefix(
            why, "%s: tensor \"%.*s\" of layer \"%.*s\": ", vx_safetensors_label(file),
            VX_NAME_SHOWN, layer->tensors[role], VX_NAME_SHOWN / 2, layer->name);
        return status;
    }
    if (norm && !layer->affine)
        VX_TRY(check_left_out(network, layer, VX_TENSOR_WEIGHT, file, why));
    if ((norm && !layer->affine) || (conv && !layer->bias))
        VX_TRY(check_left_out(network, layer, VX_TENSOR_BIAS, file, why));
    return VX_OK;
}

/* Once the layouts are known. */
static vx_status check_blocks(const struct vx_network *network, struct vx_why *why)
{
    i32 shapes[VX_SETS_MAX][3];
    for (i32 i = 0; i < network->sets_count; i++)
        memcpy(shapes[i], network->sets[i].shape, sizeof shapes[i]);
    vx_status status = vx_blocks_check(network, shapes, why);
    if (status.fault) vx_why_prefix(why, "%s: ", network->label);
    return status;
}

vx_status vx_weights_check(const struct vx_network *network,
                           const struct vx_safetensors *file, struct vx_why *why)
{
    for (i32 i = 0; i < network->layers_count; i++)
        VX_TRY(check_layer(network, &network->layers[i], file, why));
    return check_blocks(network, why);
}
