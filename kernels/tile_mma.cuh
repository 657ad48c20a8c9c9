/* tile_mma - multiplies a tile in fragments of 16x8: by mma.sync, operands by ldmatrix, on any
 * NVIDIA GPU from sm_80, on sm_75 for fp16; or by fused multiply-adds, on any GPU.
 *
 * Fused multiply-adds divide a fragment among 32 lanes as mma.sync does its result: for f32,
 * and where no matrix instruction takes the type (AMD; bf16 and TF32 on sm_75).
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   as conv_tile.cuh.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TILE_MMA_CUH
#define VX_KERNELS_TILE_MMA_CUH

#define FRAGMENT_COLUMNS 8
#ifndef VX_FRAGMENT_SUMS
#define VX_FRAGMENT_SUMS 4
#endif

#include "kernels/tile_warps.cuh"

#if VX_FMA || !VX_CUDA
#include "kernels/tile_fma.cuh"
#else
/* Loads two fragments of weights, 16 columns, of one step. */
VX_DEVICE void weights_load(uint32_t b[4], uint32_t stage, int step, int column)
{
    int lane = (int)warp_lane();
#if VX_TYPE == VX_TYPE_TF32
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = step * 8 + t + i % 2 * 4;
        int at = column + i / 2 * 8 + g;
        uint32_t address =
            stage + A_BYTES + 16u * (uint32_t)weight_place(row, at / 4) + 4u * (at % 4);
        b[i] = vx_tf32(vx_load_shared(address));
    }
#else
    int row = step * 16 + lane % 16, chunk = column / 8 + lane / 16;
    vx_load_tiles_turned(b, stage + A_BYTES + 16u * (uint32_t)weight_place(row, chunk));
#endif
}

VX_DEVICE void rows_fragment(uint32_t a[4], uint32_t stage, int step, int row)
{
    int lane = (int)warp_lane();
    int chunk = step * 2 + lane / 16; /* a step is two chunks, of 2- and 4-byte types */
    vx_load_tiles(a,
                  stage + 16u * (uint32_t)chunk_place(row + lane % 16, chunk, A_CHUNKS));
#if VX_TYPE == VX_TYPE_TF32
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = vx_tf32(a[i]);
#endif
}

/* Multiplies the row fragments [first, last) in one step of the sum. */
VX_DEVICE void step_multiply(struct tile_sums *sums, uint32_t stage, int step, int first,
                             int last)
{
    int row0 = (int)warp_index() / VX_WARPS_CO * WARP_N;
    int column0 = (int)warp_index() % VX_WARPS_CO * WARP_CO;
    uint32_t b[COLUMNS / 2][4];
#pragma unroll
    for (int c = 0; c < COLUMNS / 2; c++)
        weights_load(b[c], stage, step, column0 + c * 16);
#pragma unroll
    for (int r = first; r < last; r++) {
        uint32_t a[4];
        rows_fragment(a, stage, step, row0 + r * 16);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            vx_multiply(sums->sum[r][c], a, b[c / 2] + c % 2 * 2);
    }
}
#endif

#include "kernels/tile_walk.cuh"

VX_DEVICE void sums_stage(float *to, const struct tile_sums *sums)
{
    int lane = (int)warp_lane(), g = lane / 4, t = lane % 4;
    int row0 = (int)warp_index() / VX_WARPS_CO * WARP_N + g;
    int column0 = (int)warp_index() % VX_WARPS_CO * WARP_CO + 2 * t;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const float *sum = sums->sum[r][c];
            float *at = to + (row0 + r * 16) * SUM_STRIDE + column0 + c * 8;
            at[0] = sum[0];
            at[1] = sum[1];
            at[8 * SUM_STRIDE] = sum[2];
            at[8 * SUM_STRIDE + 1] = sum[3];
        }
}

#endif
