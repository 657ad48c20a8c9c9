/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/29_weight_tile.h"
#include "kernels/device.h"
#include "kernels/turn.cuh"

/* One chunk of 16 bytes. */
struct chunk {
    int64_t from, to; /* the first number's place */
    int32_t left;     /* channels from there on; 0 or less: zeros */
};

VX_DEVICE void chunk_copy16(const struct vx_weight_tile_args *args,
                            const struct chunk *chunk)
{
    const uint16_t *in = (const uint16_t *)args->in + chunk->from;
    uint16_t *out = (uint16_t *)args->out + chunk->to;
    for (int32_t i = 0; i < 8; i++)
        out[i] = i < chunk->left ? in[(int64_t)i * args->co] : (uint16_t)0;
}

VX_DEVICE void chunk_copy8(const struct vx_weight_tile_args *args,
                           const struct chunk *chunk)
{
    const uint8_t *in = (const uint8_t *)args->in + chunk->from;
    uint8_t *out = (uint8_t *)args->out + chunk->to;
    for (int32_t i = 0; i < 16; i++)
        out[i] = i < chunk->left ? in[(int64_t)i * args->co] : (uint8_t)0;
}

VX_KERNEL(VX_WEIGHT_TILE_THREADS, 4) weight_tile(const struct vx_weight_tile_args args)
{
    vx_turn();
    int64_t id = (int64_t)vx_block_x() * VX_WEIGHT_TILE_THREADS + vx_thread();
    int32_t column = (int32_t)(id % args.co);
    int32_t at = (int32_t)(id / args.co % 8);
    int64_t block = id / args.co / 8; /* a line of channels, over all offsets */
    int32_t blocks = vx_weight_tile_blocks(args.ci, args.number_bytes);
    int32_t channels = 16 / args.number_bytes; /* of a chunk */
    if (block >= args.v * blocks) return;
    int64_t v = block / blocks;
    int32_t first = ((int32_t)(block % blocks) * 8 + at) * channels;
    struct chunk chunk;
    chunk.from = (v * args.ci + first) * args.co + column;
    chunk.to = ((block * args.co + column) * 8 + (at ^ column % 8)) * channels;
    chunk.left = args.ci - first;
    if (args.number_bytes == 2)
        chunk_copy16(&args, &chunk);
    else
        chunk_copy8(&args, &chunk);
}
