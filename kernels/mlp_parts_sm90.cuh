/* mlp_parts_sm90 - what all warps of 33_mlp know: shared memory, barriers, tiles.
 *
 * Private to mlp_sm90.cuh.
 *
 * Owner    -
 * Thread   device code.
 * Limits   as 33_mlp.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MLP_PARTS_SM90_CUH
#define VX_KERNELS_MLP_PARTS_SM90_CUH

#define VX_TILE_N          VX_MLP_ROWS /* for the end of a tile */
#define VX_TILE_CI         64
#define VX_WARPS_N         12  /* four feed, eight multiply */
#define WGMMA_COLUMNS_LAST "0" /* the right operand lies with the sum along its rows */

#include "kernels/norm_row.cuh"
#include "kernels/stream_store_sm90.cuh"
#include "kernels/wgmma_left_sm90.cuh"

/* Registers of a thread, together what the launch was given: 168 for each. */
#define FEED_REGISTERS     "88"
#define MULTIPLY_REGISTERS "208"

#define BLOCKS_LEAST (VX_MLP_NARROW / 64 + 1)
#define BLOCKS_IN    (VX_MLP_CI / 64) /* of 64 channels */
#define UP_BYTES     (BLOCKS_IN * VX_MLP_HIDDEN * LINE)
#define DOWN_BYTES   (VX_TILE_CO * LINE)
#define RING_BYTES   (UP_BYTES > DOWN_BYTES ? UP_BYTES : DOWN_BYTES) /* of a stage */
#define PANEL_BYTES  (VX_MLP_ROWS * LINE) /* of 64 channels of a tile's rows */
#define ROWS_BYTES   (BLOCKS_IN * PANEL_BYTES)
#define RING_AT      ROWS_BYTES
#define NORMS_AT     (RING_AT + VX_STAGES * RING_BYTES)
#define BARRIERS_AT  (NORMS_AT + VX_MLP_ROWS * 8)
#define BIASES_AT    (BARRIERS_AT + 256) /* of the hidden columns */
#define HIDDEN_SUMS  (VX_MLP_HIDDEN / 2) /* of a thread */

#define NORM_WARPS 3

static_assert(VX_LAYER_NORM_UNIT == VX_LANES, "a lane of layer norm has one vector");

/* A thread's place in the ring of weights: a number, since with the sums of two products no
 * register is left for the addresses that `struct ring` carries. */
struct mlp_ring {
    uint32_t stages, full, empty;
    uint32_t at;     /* the next stage */
    uint32_t parity; /* of the phase that is waited for */
};

VX_DEVICE void mlp_ring_step(struct mlp_ring *ring)
{
    if (++ring->at == VX_STAGES) ring->at = 0, ring->parity ^= 1u;
}

struct mlp {
    const struct vx_mlp_args *args;
    struct mlp_ring ring;
    uint32_t rows, rows_full, rows_empty;
    uint32_t tiles, blocks, chunks; /* of rows; of channels; of hidden columns */
};

VX_DEVICE uint32_t mlp_tile(const struct mlp *mlp, uint32_t round)
{
    return vx_block_x() + round * (uint32_t)mlp->args->down.blocks;
}

#endif
