/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/blocks.h"

#include "engine/base/text/typed.h"

bool vx_blocks_are_cut(const struct vx_layer *layer)
{
    return layer->op == VX_OP_SPARSE_CONV && layer->rule == VX_SET_FLOOR &&
           (layer->layout == VX_LAYOUT_SPCONV || layer->layout == VX_LAYOUT_FLEXGEMM);
}

static vx_status check_layer(const struct vx_layer *layer, const i32 shape[3],
                             struct vx_why *why)
{
    for (int axis = 0; axis < 3; axis++)
        VX_ENSURE_WHY(
            shape[axis] % layer->stride[axis] == 0, why, INVALID_ARGUMENT,
            "a library makes other voxels than rule floor at the end of a shape",
            "layer \"%.*s\": %d voxels along column %d of coords are no multiple of its "
            "stride, %d: layout \"%s\" makes no voxel of the rest, rule \"floor\" one: "
            "set \"rule\": \"spconv\"",
            VX_NAME_SHOWN, layer->name, shape[axis], axis + 1, layer->stride[axis],
            vx_layout_name(layer->layout));
    return VX_OK;
}

vx_status vx_blocks_check(const struct vx_network *network, i32 (*shapes)[3],
                          struct vx_why *why)
{
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        if (!vx_blocks_are_cut(layer)) continue;
        VX_TRY(
            check_layer(layer, shapes[vx_network_set(network, layer->inputs[0])], why));
    }
    return VX_OK;
}
