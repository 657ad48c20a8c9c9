/* tile_amd - multiplies a tile with AMD's matrix instructions, in fragments of 16x16.
 *
 * Both operands lie in shared memory with the sum along their rows (tile_walk.cuh), so that
 * a lane reads what it has of either in one or two loads.  MFMA takes no notice of lanes
 * that are switched off, WMMA wants none: what decides whether they run is the same for
 * all lanes of a wave, and the compiler is told so (vx_uniform).
 *
 * Not measured: no such GPU was there.  The lane maps were compared with AMD's tables.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   as conv_tile.cuh.
 * Fails    #error where the architecture has no such instruction for the type.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TILE_AMD_CUH
#define VX_KERNELS_TILE_AMD_CUH

#include "kernels/matrix.cuh"

#if !VX_MFMA && !VX_WMMA
#error                                                                                   \
    "this architecture has no matrix instruction for the type: use a tile of VX_MULTIPLY_FMA"
#endif

#define FRAGMENT_COLUMNS 16

#include "kernels/tile_warps.cuh"

static_assert(VX_WAVE == WARP, "a wave multiplies");

/* This lane's numbers of row (or column) `row` of an operand, in one step. */
VX_DEVICE void operand_load(uint32_t to[VX_OPERAND_WORDS], uint32_t base, int row,
                            int step)
{
    const int lane = (int)warp_lane();
    const int term = step * VX_STEP + vx_operand_first(lane);
    const int chunk = term / VX_CHUNK_ELEMENTS;
#if VX_OPERAND_WORDS == 2
    const uint32_t within = (uint32_t)(term % VX_CHUNK_ELEMENTS) * 2;
    vx_load_shared2(to,
                    base + 16u * (uint32_t)chunk_place(row + lane % 16, chunk, A_CHUNKS) +
                        within);
#else
#pragma unroll
    for (int i = 0; i < VX_OPERAND_WORDS / 4; i++) {
        const int place = chunk_place(row + lane % 16, chunk + i, A_CHUNKS);
        const struct vx_words4 words = vx_load_shared4(base + 16u * (uint32_t)place);
        to[4 * i] = words.x, to[4 * i + 1] = words.y;
        to[4 * i + 2] = words.z, to[4 * i + 3] = words.w;
    }
#endif
}

VX_DEVICE void step_multiply(struct tile_sums *sums, uint32_t stage, int step, int first,
                             int last)
{
    int row0 = (int)warp_index() / VX_WARPS_CO * WARP_N;
    int column0 = (int)warp_index() % VX_WARPS_CO * WARP_CO;
    uint32_t b[COLUMNS][VX_OPERAND_WORDS];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        operand_load(b[c], stage + A_BYTES, column0 + c * 16, step);
#pragma unroll
    for (int r = first; r < last; r++) {
        uint32_t a[VX_OPERAND_WORDS];
        operand_load(a, stage, row0 + r * 16, step);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) vx_multiply(sums->sum[r][c], a, b[c]);
    }
}

#include "kernels/tile_walk.cuh"

VX_DEVICE void sums_stage(float *to, const struct tile_sums *sums)
{
    int lane = (int)warp_lane();
    int row0 = (int)warp_index() / VX_WARPS_CO * WARP_N;
    int column = (int)warp_index() % VX_WARPS_CO * WARP_CO + lane % 16;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
#pragma unroll
            for (int i = 0; i < VX_FRAGMENT_SUMS; i++)
                to[(row0 + r * 16 + vx_sum_row(lane, i)) * SUM_STRIDE + column + c * 16] =
                    sums->sum[r][c][i];
}

#endif
