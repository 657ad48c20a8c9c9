/* conv_body - computes one tile from beginning to end: what both entry points of 06 run.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   as conv_tile.cuh.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CONV_BODY_CUH
#define VX_KERNELS_CONV_BODY_CUH

#include "kernels/conv_tile.cuh"

#if VX_MULTIPLY == VX_MULTIPLY_WGMMA
#include "kernels/tile_wgmma_sm90.cuh"
#elif VX_MULTIPLY == VX_MULTIPLY_MFMA || VX_MULTIPLY == VX_MULTIPLY_WMMA
#include "kernels/tile_amd.cuh"
#else
#include "kernels/tile_mma.cuh"
#endif

VX_DEVICE void tile_run(const struct vx_conv_device_args *args, char *stages,
                        struct tile_memory *memory)
{
    struct tile_place place = place_find(args);
    if (!VX_PAIRS)
        vx_launch_next(); /* conv_pairs reads at once what was made just before it */
#if VX_PAIRS
    if (place.first_row >= place_rows(args, &place)) return;
#endif
    struct tile_sums sums;
    tile_clear(&sums);

    rows_load(args, &place, memory);
    if (vx_wave() == 0) present_list(args, &place, memory);
    vx_copy_wait_all();
    vx_barrier();
    int present = memory->present_count;
    /* Every block waits, also one without an offset: it reads the residual and writes out. */
    if (!present) vx_launch_before();
    /* No row of the tile has an offset of the group: conv_reduce reads none of them. */
    if (args->partial && args->block_masks && !present) return;
    for (int from = 0; from < present; from += WALK) {
        walk_load(args, from, memory);
        if (!from) {
            present_blocks(args, &place, memory);
            vx_launch_before();
        }
        vx_copy_wait_all();
        vx_barrier();
        tile_walk(args, memory, vx_shared_address(stages), place.first_column, &sums);
    }
    sums_stage((float *)stages, &sums);
    vx_barrier();
    if (args->partial)
        tile_store_partial(args, memory, &place, (const float *)stages);
    else
        tile_finish(args, memory, &place, (const float *)stages);
}

#endif
