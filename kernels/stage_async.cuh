/* stage_async - one stage, gathered rows and their weights, copied asynchronously.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   NVIDIA; as conv_tile.cuh.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_STAGE_ASYNC_CUH
#define VX_KERNELS_STAGE_ASYNC_CUH

#include "kernels/conv_tile.cuh"

VX_DEVICE void stage_load(const struct vx_conv_device_args *args,
                          const struct tile_memory *memory, uint32_t stage,
                          const struct walk_place *walk, int first_column)
{
    const vx_element *in = (const vx_element *)args->in + walk->channel;
    const int32_t *nbr = memory->nbr + walk->offset * NBR_STRIDE;
#pragma unroll
    for (int at = 0; at < VX_TILE_N * A_CHUNKS; at += THREADS) {
        int id = at + (int)vx_thread();
        if (VX_TILE_N * A_CHUNKS % THREADS && id >= VX_TILE_N * A_CHUNKS) break;
        int row = id / A_CHUNKS, chunk = id % A_CHUNKS;
        int32_t from = nbr[row];
        int64_t element = (int64_t)(from < 0 ? 0 : from) * args->in_stride;
        vx_copy_async(stage + 16u * (uint32_t)chunk_place(row, chunk, A_CHUNKS),
                      in + element + chunk * VX_CHUNK_ELEMENTS, from >= 0);
    }
    const vx_element *weight =
        (const vx_element *)args->weight +
        ((int64_t)memory->present[memory->from + walk->offset] * args->ci +
         walk->channel) *
            args->co;
#pragma unroll
    for (int at = 0; at < VX_TILE_CI * B_CHUNKS; at += THREADS) {
        int id = at + (int)vx_thread();
        if (VX_TILE_CI * B_CHUNKS % THREADS && id >= VX_TILE_CI * B_CHUNKS) break;
        int row = id / B_CHUNKS, chunk = id % B_CHUNKS;
        int column = first_column + chunk * VX_CHUNK_ELEMENTS;
        int inside = column < args->co;
        vx_copy_async(stage + A_BYTES + 16u * (uint32_t)weight_place(row, chunk),
                      weight + (int64_t)row * args->co + (inside ? column : 0), inside);
    }
}

#endif
