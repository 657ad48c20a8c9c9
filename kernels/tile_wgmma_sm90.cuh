/* tile_wgmma_sm90 - multiplies a tile with Hopper's wgmma, instead of tile_mma.
 *
 * A warpgroup of four warps multiplies 64 rows at a time and reads both operands straight
 * from shared memory.  While the products of one stage run, the same warps compute
 * addresses and start the copies of a later stage.  A stage is overwritten two barriers
 * after its products were started; vx_wgmma_wait(1) between the two waits until they are
 * done.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   sm_90a; F16, BF16; VX_WARPS_N a multiple of 4; VX_STAGES >= 3.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TILE_WGMMA_SM90_CUH
#define VX_KERNELS_TILE_WGMMA_SM90_CUH

#include "kernels/stage_async.cuh"
#include "kernels/wgmma_sm90.cuh"

/* The part of the tile that a warpgroup computes. */
#define GROUP_N  (VX_TILE_N / (VX_WARPS_N / 4))
#define GROUP_CO (VX_TILE_CO / VX_WARPS_CO)
#define COLUMNS  (GROUP_CO / 8)
#define STEPS    (VX_TILE_CI / 16)

#define A_LINE      (VX_TILE_CI * 2)    /* bytes of a row of the left operand */
#define B_LINE      (PANEL_CHUNKS * 16) /* bytes of a row of a right panel */
#define PANEL_BYTES (VX_TILE_CI * B_LINE)

static_assert(VX_WARPS_N % 4 == 0 && GROUP_N == 64, "whole warpgroups, 64 rows each");
static_assert(VX_STAGES >= 3, "one runs, one may still run, one arrives");
static_assert(A_LINE <= 128 && GROUP_CO % (B_LINE / 2) == 0, "whole panels");

struct tile_sums {
    float sum[COLUMNS * 4];
};

VX_DEVICE void tile_clear(struct tile_sums *sums)
{
#pragma unroll
    for (int i = 0; i < COLUMNS * 4; i++) sums->sum[i] = 0.0f;
}

VX_DEVICE void multiply(float *sum, uint64_t left, uint64_t right)
{
#if GROUP_CO == 256
    vx_wgmma_256(sum, left, right);
#elif GROUP_CO == 128
    vx_wgmma_128(sum, left, right);
#elif GROUP_CO == 64
    vx_wgmma_64(sum, left, right);
#elif GROUP_CO == 32
    vx_wgmma_32(sum, left, right);
#else
    vx_wgmma_16(sum, left, right);
#endif
}

/* By a shuffle, which tells the compiler that all lanes have the same value. */
VX_DEVICE uint32_t warpgroup(void)
{
    return vx_shuffle(vx_thread() / 128, 0);
}
VX_DEVICE uint32_t warpgroup_row(void)
{
    return warpgroup() / VX_WARPS_CO * GROUP_N;
}
VX_DEVICE uint32_t warpgroup_column(void)
{
    return warpgroup() % VX_WARPS_CO * GROUP_CO;
}

/* Starts the products of one stage.  Bit b of `blocks`: the b-th 32 rows take part.  They are
 * committed on the path that has them: a commit that both paths reach makes the compiler add an
 * empty product for it, and a wait for all groups but the last is then a wait for all. */
VX_DEVICE void stage_multiply(struct tile_sums *sums, uint32_t stage, uint32_t blocks)
{
    uint32_t row = warpgroup_row();
    uint32_t weights = stage + A_BYTES + warpgroup_column() * 2 / B_LINE * PANEL_BYTES;
    uint64_t right = vx_wgmma_describe(weights, B_LINE, PANEL_BYTES);
    uint64_t left = vx_wgmma_describe(stage + row * A_LINE, A_LINE, 16);
    /* A tile of 64 rows is one such group, and has every present offset. */
    if (VX_TILE_N > 64 && !(blocks >> row / 32 & 3u)) {
        /* The stage before is overwritten as if there were a group here. */
        vx_wgmma_wait(0);
        return;
    }
    vx_wgmma_begin();
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        multiply(sums->sum, left + step * 2, right + step * 2 * (8 * B_LINE >> 4));
    vx_wgmma_commit();
}

VX_DEVICE void tile_walk(const struct vx_conv_device_args *args,
                         const struct tile_memory *memory, uint32_t stages,
                         int first_column, struct tile_sums *sums)
{
    int total = memory->count * (args->ci / VX_TILE_CI);
    struct walk_place load = {0, 0}, done = {0, 0};
#pragma unroll
    for (int s = 0; s < VX_STAGES - 2; s++) {
        if (s < total) {
            stage_load(args, memory, stages + (uint32_t)(s * STAGE_BYTES), &load,
                       first_column);
            walk_step(&load, args->ci);
        }
        vx_copy_commit();
    }
    int slot = 0, load_slot = VX_STAGES - 2;
    for (int at = 0; at < total; at++) {
        vx_copy_wait(VX_STAGES - 3);
        vx_fence_async();
        vx_barrier();
        stage_multiply(sums, stages + (uint32_t)(slot * STAGE_BYTES),
                       vx_shuffle(memory->blocks[memory->from + done.offset], 0));
        if (at + VX_STAGES - 2 < total) {
            stage_load(args, memory, stages + (uint32_t)(load_slot * STAGE_BYTES), &load,
                       first_column);
            walk_step(&load, args->ci);
        }
        vx_copy_commit();
        vx_wgmma_wait(1);
        walk_step(&done, args->ci);
        if (++slot == VX_STAGES) slot = 0;
        if (++load_slot == VX_STAGES) load_slot = 0;
    }
    vx_wgmma_wait(0);
    vx_copy_wait(0);
    vx_barrier(); /* now the stages and nbr may be overwritten */
}

VX_DEVICE void sums_stage(float *to, const struct tile_sums *sums)
{
    int lane = (int)vx_lane(), g = lane / 4, t = lane % 4;
    int row0 = (int)(warpgroup_row() + vx_wave() % 4 * 16) + g;
    int column0 = (int)warpgroup_column() + 2 * t;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const float *sum = sums->sum + c * 4;
        float *at = to + row0 * SUM_STRIDE + column0 + c * 8;
        at[0] = sum[0];
        at[1] = sum[1];
        at[8 * SUM_STRIDE] = sum[2];
        at[8 * SUM_STRIDE + 1] = sum[3];
    }
}

#endif
