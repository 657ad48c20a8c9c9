/* mlp_sm90 - the warps of 33_mlp: one sends for weights, three normalise rows, eight multiply.
 *
 * In shared memory lie the rows of a tile, blocks of 64 channels one behind the other, then
 * the ring of weights and barriers.  The rows of the next tile come while the last products
 * of a tile run and its end is stored.
 *
 * Measured (H200, 64,160 rows, 256 to 1024 to 256 channels): the rows of two tiles beside a
 * ring of three stages were no faster than those of one beside four, 167 and 163 us without
 * the norm.  Without norm, activation and the end of a tile the products take 91 to 98 us.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   as 33_mlp.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MLP_SM90_CUH
#define VX_KERNELS_MLP_SM90_CUH

#include "kernels/mlp_feed_sm90.cuh"

/* --- the warpgroups that multiply --- */

/* Waits for the next stage; where it lies. */
VX_DEVICE uint32_t stage_begin(const struct mlp *mlp)
{
    vx_mbarrier_wait(mlp->ring.full + 8 * mlp->ring.at, mlp->ring.parity);
    return mlp->ring.stages + mlp->ring.at * RING_BYTES;
}

VX_DEVICE void stage_end(const struct mlp *mlp, uint32_t stage)
{
    vx_wave_barrier();
    if (vx_lane() == 0) vx_mbarrier_arrive(mlp->ring.empty + 8 * stage);
}

/* The two warpgroups take turns: while the products of one run, the other one activates.
 * A warpgroup's turn begins when the other one has sent its products. */
VX_DEVICE void turn_begin(uint32_t group)
{
    asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
VX_DEVICE void turn_end(uint32_t group)
{
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
}

/* Tells the compiler that products have changed the sums. */
VX_DEVICE void sums_changed(float *sums, const int count)
{
#pragma unroll
    for (int i = 0; i < count; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

/* hidden = rows . 64 columns of up.  Behind the last channel are zeros, up to 64. */
VX_DEVICE void up_multiply(struct mlp *mlp, uint32_t rows, float hidden[HIDDEN_SUMS])
{
    const uint32_t stage = stage_begin(mlp);
    vx_wgmma_begin();
#pragma unroll
    for (int b = 0; b < BLOCKS_IN; b++) {
        const uint64_t left =
            vx_wgmma_describe(rows + (uint32_t)b * PANEL_BYTES, LINE, 16);
        const uint64_t right =
            vx_wgmma_describe(stage + (uint32_t)b * VX_MLP_HIDDEN * LINE, LINE, 16);
        if (b >= BLOCKS_LEAST && b >= (int)mlp->blocks) break;
#pragma unroll
        for (int s = 0; s < 4; s++)
            if (b == 0 && s == 0)
                vx_wgmma_first_64(hidden, left, right);
            else
                vx_wgmma_64(hidden, left + 2 * s, right + 2 * s);
    }
    vx_wgmma_commit();
    mlp_ring_step(&mlp->ring);
}

/* sums += hidden . 64 rows of down */
VX_DEVICE void down_multiply(struct mlp *mlp, const uint32_t left[HIDDEN_SUMS / 2],
                             float *sums)
{
    const uint64_t right = vx_wgmma_describe(stage_begin(mlp), LINE, 16);
    vx_wgmma_begin();
#pragma unroll
    for (int s = 0; s < VX_MLP_HIDDEN / 16; s++) {
#if VX_TILE_CO == 256
        vx_wgmma_left_256(sums, left + 4 * s, right + 2 * s);
#else
        vx_wgmma_left_128(sums, left + 4 * s, right + 2 * s);
#endif
    }
    vx_wgmma_commit();
    mlp_ring_step(&mlp->ring);
}

VX_DEVICE void hidden_activate_as(const int32_t activation, float hidden[HIDDEN_SUMS])
{
#pragma unroll
    for (int i = 0; i < HIDDEN_SUMS; i++) hidden[i] = vx_activate(activation, hidden[i]);
}

/* A lane has columns 2q and 2q + 1 of every eight, of two rows.  Bias that is loaded from
 * memory here takes 27 us more (H200, 64,160 rows, 256 to 1024 to 256 channels). */
VX_DEVICE void hidden_finish(const struct mlp *mlp, uint32_t chunk,
                             float hidden[HIDDEN_SUMS])
{
    const struct vx_conv_device_args *up = &mlp->args->up;
    if (up->bias) {
        const uint32_t bias =
            mlp->rows + BIASES_AT + (chunk * VX_MLP_HIDDEN + 2 * (vx_lane() % 4)) * 4;
#pragma unroll
        for (int j = 0; j < HIDDEN_SUMS / 4; j++) {
            float first, second;
            asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
                         : "=f"(first), "=f"(second)
                         : "r"(bias + (uint32_t)j * 32));
            hidden[4 * j] += first, hidden[4 * j + 1] += second;
            hidden[4 * j + 2] += first, hidden[4 * j + 3] += second;
        }
    }
    if (up->activation == VX_ACTIVATION_GELU)
        hidden_activate_as(VX_ACTIVATION_GELU, hidden);
    else if (up->activation == VX_ACTIVATION_RELU)
        hidden_activate_as(VX_ACTIVATION_RELU, hidden);
    else if (up->activation == VX_ACTIVATION_SILU)
        hidden_activate_as(VX_ACTIVATION_SILU, hidden);
    else if (up->activation == VX_ACTIVATION_SIGMOID)
        hidden_activate_as(VX_ACTIVATION_SIGMOID, hidden);
}

VX_DEVICE void hidden_round(const float hidden[HIDDEN_SUMS],
                            uint32_t left[HIDDEN_SUMS / 2])
{
#pragma unroll
    for (int i = 0; i < HIDDEN_SUMS / 2; i++)
        left[i] = vx_pair_of(hidden[2 * i], hidden[2 * i + 1]);
}

/* Behind the last products with up the next tile's rows may come. */
VX_DEVICE void rows_release(const struct mlp *mlp, uint32_t chunk)
{
    if (chunk + 1 < mlp->chunks) return;
    vx_wave_barrier();
    if (vx_lane() == 0) vx_mbarrier_arrive(mlp->rows_empty);
}

/* The products of a tile.  While the tensor cores multiply the present hidden columns by
 * down, the next ones, which they have summed before, become a left operand. */
VX_DEVICE void tile_multiply(struct mlp *mlp, uint32_t group, float *sums)
{
    const uint32_t rows = mlp->rows + group * 64 * LINE;
    float hidden[HIDDEN_SUMS];
    uint32_t left[HIDDEN_SUMS / 2];
    uint32_t first = mlp->ring.at, second;
    turn_begin(group);
    up_multiply(mlp, rows, hidden);
    turn_end(group);
    vx_wgmma_wait(0);
    sums_changed(hidden, HIDDEN_SUMS);
    stage_end(mlp, first);
    rows_release(mlp, 0);
    hidden_finish(mlp, 0, hidden);
    hidden_round(hidden, left);
    for (uint32_t chunk = 1; chunk < mlp->chunks; chunk++) {
        first = mlp->ring.at;
        turn_begin(group);
        up_multiply(mlp, rows, hidden);
        second = mlp->ring.at;
        down_multiply(mlp, left, sums);
        turn_end(group);
        vx_wgmma_wait(1);
        sums_changed(hidden, HIDDEN_SUMS);
        stage_end(mlp, first);
        rows_release(mlp, chunk);
        hidden_finish(mlp, chunk, hidden);
        vx_wgmma_wait(0);
        stage_end(mlp, second);
        hidden_round(hidden, left);
    }
    second = mlp->ring.at;
    turn_begin(group);
    down_multiply(mlp, left, sums);
    turn_end(group);
    vx_wgmma_wait(0);
    sums_changed(sums, SUMS);
    stage_end(mlp, second);
}

/* Whose rows they are is asked here: beside the products no register could keep it. */
VX_DEVICE void mlp_store(const struct mlp *mlp, uint32_t round, const struct multiply *it)
{
    const struct vx_conv_device_args *down = &mlp->args->down;
    const struct stream_tile tile = {(int64_t)mlp_tile(mlp, round) * VX_MLP_ROWS, 0, 0};
    struct tile_about about;
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    thread -= 128;
    about.rows[0] = row_at(down, &tile, tile.first_row + thread / 32 * 16 + thread % 16);
    tile_store(down, &tile, &about, it);
}

VX_DEVICE void mlp_multiply(struct mlp *mlp, char *shared)
{
    struct multiply it;
    it.group = vx_shuffle(vx_thread() / 128 - 1, 0);
    it.held = 0;
    mlp->ring.parity = 0;
    if (it.group == 1) turn_end(1);
    for (uint32_t round = 0; mlp_tile(mlp, round) < mlp->tiles; round++) {
#pragma unroll
        for (int i = 0; i < SUMS; i++) it.sums[0][i] = 0.0f;
        vx_mbarrier_wait(mlp->rows_full, round & 1u);
        tile_multiply(mlp, it.group, it.sums[0]);
        mlp_store(mlp, round, &it);
    }
}

/* --- all --- */

VX_DEVICE void mlp_open(struct mlp *mlp, const struct vx_mlp_args *args, char *shared)
{
    const uint32_t base = vx_shared_address(shared);
    mlp->args = args;
    mlp->rows = base;
    mlp->ring.stages = base + RING_AT;
    mlp->ring.full = base + BARRIERS_AT;
    mlp->ring.empty = mlp->ring.full + 8 * VX_STAGES;
    mlp->ring.at = 0;
    mlp->rows_full = mlp->ring.empty + 8 * VX_STAGES;
    mlp->rows_empty = mlp->rows_full + 8;
    mlp->tiles = (uint32_t)((args->down.n + VX_MLP_ROWS - 1) / VX_MLP_ROWS);
    mlp->blocks = (uint32_t)(args->up.ci + 63) / 64;
    mlp->chunks = (uint32_t)args->up.co / VX_MLP_HIDDEN;
    if (vx_thread() == 0) {
        for (uint32_t s = 0; s < VX_STAGES; s++) {
            vx_mbarrier_open(mlp->ring.full + 8 * s, 1);
            vx_mbarrier_open(mlp->ring.empty + 8 * s, 8);
        }
        vx_mbarrier_open(mlp->rows_full, 32 * NORM_WARPS);
        vx_mbarrier_open(mlp->rows_empty, 8);
        vx_mbarrier_opened();
    }
    vx_barrier();
}

VX_DEVICE void mlp_run(const struct vx_mlp_args *args, char *shared)
{
    struct mlp mlp;
    const uint32_t warp = vx_shuffle(vx_thread() / 32, 0);
    mlp_open(&mlp, args, shared);
    if (warp >= 4) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 " MULTIPLY_REGISTERS ";");
        mlp_multiply(&mlp, shared);
        return;
    }
    asm volatile("setmaxnreg.dec.sync.aligned.u32 " FEED_REGISTERS ";");
    if (warp)
        mlp_feed(&mlp, warp - 1, shared);
    else if (vx_lane() == 0)
        mlp_send(&mlp);
}

#endif
