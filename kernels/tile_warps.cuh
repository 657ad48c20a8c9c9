/* tile_warps - how a tile is divided among warps that multiply fragments of 16 rows.
 *
 * Private to the tiles that multiply so: who includes it says FRAGMENT_COLUMNS and
 * VX_FRAGMENT_SUMS, the columns and a lane's sums of a fragment.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   as conv_tile.cuh.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TILE_WARPS_CUH
#define VX_KERNELS_TILE_WARPS_CUH

#include "kernels/conv_tile.cuh"

/* The part of the tile that a warp computes, in fragments. */
#define WARP_N  (VX_TILE_N / VX_WARPS_N)
#define WARP_CO (VX_TILE_CO / VX_WARPS_CO)
#define ROWS    (WARP_N / 16)
#define COLUMNS (WARP_CO / FRAGMENT_COLUMNS)
#define STEPS   (VX_TILE_CI / VX_STEP)

static_assert(WARP_N % 16 == 0 && WARP_CO % 16 == 0, "whole fragments, columns in pairs");
static_assert(VX_STAGES >= 2, "one stage is read while another arrives");

struct tile_sums {
    float sum[ROWS][COLUMNS][VX_FRAGMENT_SUMS];
};

#if VX_MULTIPLY == VX_MULTIPLY_FMA /* a wave of 64 lanes is two warps */
VX_DEVICE uint32_t warp_index(void)
{
    return vx_thread() / WARP;
}
VX_DEVICE uint32_t warp_lane(void)
{
    return vx_thread() % WARP;
}
#else
#define warp_index vx_wave
#define warp_lane  vx_lane
#endif

#endif
