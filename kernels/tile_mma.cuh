/* tile_mma - multiplies a tile with mma.sync (or fused multiply-adds), fragments by
 * ldmatrix: any NVIDIA GPU from sm_80, all types.
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

#include "kernels/conv_tile.cuh"

/* The part of the tile that a warp computes, in fragments of 16 rows and 8 columns. */
#define WARP_N  (VX_TILE_N / VX_WARPS_N)
#define WARP_CO (VX_TILE_CO / VX_WARPS_CO)
#define ROWS    (WARP_N / 16)
#define COLUMNS (WARP_CO / 8)
#define STEPS   (VX_TILE_CI / VX_STEP)

static_assert(WARP_N % 16 == 0 && WARP_CO % 16 == 0, "whole fragments, columns in pairs");
static_assert(VX_STAGES >= 2, "one stage is read while another arrives");

struct tile_sums {
    float sum[ROWS][COLUMNS][4];
};

#if VX_TYPE == VX_TYPE_F32
/* Multiplies the row fragments [first, last) in one step of the sum. */
VX_DEVICE void step_multiply(struct tile_sums *sums, uint32_t stage, int step, int first,
                             int last)
{
    int lane = (int)vx_lane(), g = lane / 4, t = lane % 4;
    int row0 = (int)vx_wave() / VX_WARPS_CO * WARP_N + g;
    int column0 = (int)vx_wave() % VX_WARPS_CO * WARP_CO + 2 * t;
#pragma unroll
    for (int r = first; r < last; r++) {
        struct vx_words4 a[2];
#pragma unroll
        for (int half = 0; half < 2; half++)
            a[half] = vx_load_shared4(
                stage +
                16u * (uint32_t)chunk_place(row0 + r * 16 + half * 8, step, A_CHUNKS));
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            int column = column0 + c * 8;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                uint32_t at = stage + A_BYTES +
                              16u * (uint32_t)weight_place(step * 4 + k, column / 4) +
                              4u * (uint32_t)(column % 4);
                float b0 = vx_float_of_bits(vx_load_shared(at));
                float b1 = vx_float_of_bits(vx_load_shared(at + 4));
                float a0 = vx_word_float(a[0], k), a1 = vx_word_float(a[1], k);
                float *sum = sums->sum[r][c];
                sum[0] = fmaf(a0, b0, sum[0]);
                sum[1] = fmaf(a0, b1, sum[1]);
                sum[2] = fmaf(a1, b0, sum[2]);
                sum[3] = fmaf(a1, b1, sum[3]);
            }
        }
    }
}
#else
/* Loads two fragments of weights, 16 columns, of one step. */
VX_DEVICE void weights_load(uint32_t b[4], uint32_t stage, int step, int column)
{
    int lane = (int)vx_lane();
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
    int lane = (int)vx_lane();
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
    int row0 = (int)vx_wave() / VX_WARPS_CO * WARP_N;
    int column0 = (int)vx_wave() % VX_WARPS_CO * WARP_CO;
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

/* Bit b is set when one of the b-th 32 rows of this warp has the offset.  A warp of 16
 * rows takes the bit of the 32 rows that it is part of. */
#define WARP_BLOCKS (WARP_N > 32 ? WARP_N / 32 : 1)
VX_DEVICE uint32_t warp_blocks(uint32_t blocks)
{
    uint32_t first = vx_wave() / VX_WARPS_CO * WARP_N / 32;
    return blocks >> first & ((1u << WARP_BLOCKS) - 1u);
}

/* Multiplies all rows of the warp without a branch, so that loads of one fragment overlap
 * products of another; or 32 rows at a time when only some have the offset. */
VX_DEVICE void stage_multiply(struct tile_sums *sums, uint32_t stage, uint32_t blocks)
{
    if (blocks == (1u << WARP_BLOCKS) - 1u) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            step_multiply(sums, stage, step, 0, ROWS);
        return;
    }
#pragma unroll
    for (int b = 0; b < WARP_BLOCKS; b++) {
        if (!(blocks >> b & 1u)) continue;
#pragma unroll 1 /* leaves the registers to the path above */
        for (int step = 0; step < STEPS; step++)
            step_multiply(sums, stage, step, 2 * b, ROWS < 2 * b + 2 ? ROWS : 2 * b + 2);
    }
}

VX_DEVICE void tile_clear(struct tile_sums *sums)
{
#pragma unroll
    for (int i = 0; i < ROWS * COLUMNS * 4; i++) sums->sum[0][0][i] = 0.0f;
}

VX_DEVICE void tile_walk(const struct vx_conv_device_args *args,
                         const struct tile_memory *memory, uint32_t stages,
                         int first_column, struct tile_sums *sums)
{
    int total = memory->count * (args->ci / VX_TILE_CI);
    struct walk_place load = {0, 0}, done = {0, 0};
#pragma unroll
    for (int s = 0; s < VX_STAGES - 1; s++) {
        if (s < total) {
            stage_load(args, memory, stages + (uint32_t)(s * STAGE_BYTES), &load,
                       first_column);
            walk_step(&load, args->ci);
        }
        vx_copy_commit();
    }
    int slot = 0, load_slot = VX_STAGES - 1;
    for (int at = 0; at < total; at++) {
        vx_copy_wait(VX_STAGES - 2);
        vx_barrier();
        if (at + VX_STAGES - 1 < total) {
            stage_load(args, memory, stages + (uint32_t)(load_slot * STAGE_BYTES), &load,
                       first_column);
            walk_step(&load, args->ci);
        }
        vx_copy_commit();
        uint32_t blocks = warp_blocks(memory->blocks[memory->from + done.offset]);
        if (blocks) stage_multiply(sums, stages + (uint32_t)(slot * STAGE_BYTES), blocks);
        walk_step(&done, args->ci);
        if (++slot == VX_STAGES) slot = 0;
        if (++load_slot == VX_STAGES) load_slot = 0;
    }
    vx_copy_wait(0);
    vx_barrier(); /* now the stages and nbr may be overwritten */
}

VX_DEVICE void sums_stage(float *to, const struct tile_sums *sums)
{
    int lane = (int)vx_lane(), g = lane / 4, t = lane % 4;
    int row0 = (int)vx_wave() / VX_WARPS_CO * WARP_N + g;
    int column0 = (int)vx_wave() % VX_WARPS_CO * WARP_CO + 2 * t;
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
