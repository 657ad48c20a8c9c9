/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/29_weight_tile.h"
#include "kernels/device.h"

VX_KERNEL(VX_WEIGHT_TILE_THREADS, 4) weight_tile(const struct vx_weight_tile_args args)
{
    int64_t id = (int64_t)vx_block_x() * VX_WEIGHT_TILE_THREADS + vx_thread();
    int32_t column = (int32_t)(id % args.co);
    int32_t chunk = (int32_t)(id / args.co % 8);
    int64_t block = id / args.co / 8; /* of 64 channels, over all offsets */
    int32_t blocks = vx_weight_tile_blocks(args.ci);
    if (block >= args.v * blocks) return;
    int64_t v = block / blocks;
    int32_t first = (int32_t)(block % blocks) * VX_WEIGHT_TILE_CHANNELS + chunk * 8;
    uint16_t *out = args.out + (block * args.co + column) * VX_WEIGHT_TILE_CHANNELS +
                    (chunk ^ column % 8) * 8;
    for (int32_t i = 0; i < 8; i++)
        out[i] = first + i < args.ci
                     ? args.in[(v * args.ci + first + i) * args.co + column]
                     : (uint16_t)0;
}
