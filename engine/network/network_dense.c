/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/text/sentence.h"
#include "engine/network/network_layers.h"

#include <string.h>

bool vx_op_is_last(enum vx_op op)
{
    return op == VX_OP_ARGMAX || op == VX_OP_TO_DENSE;
}

vx_status vx_layer_check_read(const struct vx_layer_reader *reader,
                              const struct vx_json *name, i32 layer)
{
    const struct vx_layer *it = &reader->network->layers[layer];
    VX_ENSURE_WHY(!vx_op_is_last(it->op), reader->why, INVALID_ARGUMENT,
                  "a layer uses one that only outputs read",
                  "line %d: \"%.*s\" is %s, which only an output reads; expected a layer "
                  "with features",
                  name->line, VX_NAME_SHOWN, it->name, vx_op_name(it->op));
    return VX_OK;
}

vx_status vx_layer_parse_dense(const struct vx_layer_reader *reader,
                               const struct vx_json *object, struct vx_layer *layer)
{
    static const struct vx_axes_key shape_key = {"shape", 1, VX_AXIS_MAX + 1};
    const struct vx_json *shape = vx_json_find(object, "shape");
    const struct vx_json *fold = vx_json_find(object, "fold");
    if (shape)
        VX_TRY(vx_network_parse_axes(shape, &shape_key, reader->why, layer->shape));
    return fold ? vx_json_read_bool(fold, reader->why, &layer->fold) : VX_OK;
}

vx_status vx_layer_settle_dense(const struct vx_layer_reader *reader,
                                struct vx_layer *layer)
{
    const struct vx_set *set = &reader->network->sets[layer->set];
    i64 numbers = layer->channels;
    if (!layer->shape[0]) memcpy(layer->shape, set->shape, sizeof layer->shape);
    for (int axis = 0; axis < 3; axis++) {
        VX_ENSURE_WHY(
            layer->shape[axis], reader->why, INVALID_ARGUMENT, "to_dense has no shape",
            "line %d: the key \"shape\" is missing, and the voxels of the input "
            "have no spatial shape: set \"shape\": [X, Y, Z]",
            layer->line);
        numbers *= layer->shape[axis];
        VX_ENSURE_WHY(numbers <= VX_DENSE_NUMBERS_MAX, reader->why, INVALID_ARGUMENT,
                      "a dense tensor is too large",
                      "line %d: \"shape\": expected at most %d numbers for each sample, "
                      "got %d channels of %dx%dx%d voxels",
                      layer->line, VX_DENSE_NUMBERS_MAX, layer->channels, layer->shape[0],
                      layer->shape[1], layer->shape[2]);
    }
    return VX_OK;
}

i32 vx_layer_dense_dims(const struct vx_layer *layer, i32 dims[VX_OUTPUT_DIMS_MAX])
{
    i32 count = 0;
    if (layer->fold)
        dims[count++] = layer->channels * layer->shape[0];
    else
        dims[count++] = layer->channels, dims[count++] = layer->shape[0];
    dims[count++] = layer->shape[1];
    dims[count++] = layer->shape[2];
    return count;
}
