/* Weights in the order in which a stream of tiles needs them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/conv/conv.h"
#include "kernels/29_weight_tile.h"

size_t vx_conv_tiled_bytes(const struct vx_conv_tiling *tiling)
{
    return (size_t)tiling->v *
           (size_t)vx_weight_tile_blocks(tiling->ci, tiling->number_bytes) *
           (size_t)tiling->co * VX_WEIGHT_TILE_LINE;
}

struct vx_jit_wanted vx_conv_tile_wanted(void)
{
    return (struct vx_jit_wanted){.spec = vx_kernel_find("weight_tile")};
}

vx_status vx_conv_tile_weights(const struct vx_gpu_queue *device,
                               const struct vx_conv_tiling *tiling, struct vx_why *why)
{
    const struct vx_jit_wanted kernel = vx_conv_tile_wanted();
    const struct vx_weight_tile_args args = {.v = tiling->v,
                                             .ci = tiling->ci,
                                             .co = tiling->co,
                                             .number_bytes = tiling->number_bytes,
                                             .in = tiling->weight,
                                             .out = tiling->tiled};
    return vx_kernel_launch(device->set, device->stream, &kernel, &args, why);
}
