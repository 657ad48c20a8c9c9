/* tile_walk - the walk of a tile over its offsets and blocks of channels.
 *
 * Private to the tiles of warps: included behind step_multiply, which it calls for every
 * step of a stage.
 *
 * On NVIDIA stages arrive asynchronously while earlier ones are multiplied.  AMD has no
 * such copies: a thread holds the next stage in registers while one is multiplied, so
 * that its loads are under way all that time, and stores it into the other of two places.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   as conv_tile.cuh; two stages on AMD.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TILE_WALK_CUH
#define VX_KERNELS_TILE_WALK_CUH

#include "kernels/tile_warps.cuh"
#if VX_CUDA
#include "kernels/stage_async.cuh"
#endif

/* Before the loop over steps.  Fused multiply-adds on AMD spill if the loads of several
 * steps come first. */
#if VX_MULTIPLY == VX_MULTIPLY_FMA
#define UNROLL_STEPS _Pragma("unroll 1")
#else
#define UNROLL_STEPS _Pragma("unroll")
#endif

/* Bit b is set when one of the b-th 32 rows of this warp has the offset.  A warp of 16
 * rows takes the bit of the 32 rows that it is part of. */
#define WARP_BLOCKS (WARP_N > 32 ? WARP_N / 32 : 1)
VX_DEVICE uint32_t warp_blocks(uint32_t blocks)
{
    uint32_t first = warp_index() / VX_WARPS_CO * WARP_N / 32;
    return blocks >> first & ((1u << WARP_BLOCKS) - 1u);
}

/* Multiplies all rows of the warp without a branch, so that loads of one fragment overlap
 * products of another; or 32 rows at a time when only some have the offset. */
VX_DEVICE void stage_multiply(struct tile_sums *sums, uint32_t stage, uint32_t blocks)
{
    if (blocks == (1u << WARP_BLOCKS) - 1u) {
        UNROLL_STEPS
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
    for (int i = 0; i < ROWS * COLUMNS * VX_FRAGMENT_SUMS; i++) sums->sum[0][0][i] = 0.0f;
}

#if VX_CUDA
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
#else

/* 16-byte chunks of a stage that a thread copies. */
#define ROWS_EACH    ((VX_TILE_N * A_CHUNKS + THREADS - 1) / THREADS)
#define WEIGHTS_EACH ((VX_TILE_CI * B_CHUNKS + THREADS - 1) / THREADS)

static_assert(VX_STAGES == 2, "one is multiplied, the other one is in registers");

struct stage_words {
    struct vx_words4 rows[ROWS_EACH], weights[WEIGHTS_EACH];
};

/* The i-th chunk of this thread; false: there are no more. */
VX_DEVICE int rows_chunk(int i, int *row, int *chunk)
{
    int id = i * THREADS + (int)vx_thread();
    *row = id / A_CHUNKS, *chunk = id % A_CHUNKS;
    return VX_TILE_N * A_CHUNKS % THREADS == 0 || id < VX_TILE_N * A_CHUNKS;
}

/* Neighbouring threads have neighbouring rows: what they store lies side by side when a
 * matrix instruction wants the weights turned. */
VX_DEVICE int weights_chunk(int i, int *row, int *chunk)
{
    int id = i * THREADS + (int)vx_thread();
    *row = id % VX_TILE_CI, *chunk = id / VX_TILE_CI;
    return VX_TILE_CI * B_CHUNKS % THREADS == 0 || id < VX_TILE_CI * B_CHUNKS;
}

VX_DEVICE struct vx_words4 words_load(const vx_element *from, int present)
{
    struct vx_words4 words = {0, 0, 0, 0};
    if (present) words = *(const struct vx_words4 *)from;
    return words;
}

VX_DEVICE void stage_fetch(const struct vx_conv_device_args *args,
                           const struct tile_memory *memory,
                           const struct walk_place *walk, int first_column,
                           struct stage_words *words)
{
    const vx_element *in = (const vx_element *)args->in + walk->channel;
    const int32_t *nbr = memory->nbr + walk->offset * NBR_STRIDE;
    const vx_element *weight =
        (const vx_element *)args->weight +
        ((int64_t)memory->present[memory->from + walk->offset] * args->ci +
         walk->channel) *
            args->co;
    int row, chunk;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        if (!rows_chunk(i, &row, &chunk)) break;
        int32_t from = nbr[row];
        words->rows[i] = words_load(
            in + (int64_t)from * args->in_stride + chunk * VX_CHUNK_ELEMENTS, from >= 0);
    }
#pragma unroll
    for (int i = 0; i < WEIGHTS_EACH; i++) {
        if (!weights_chunk(i, &row, &chunk)) break;
        int column = first_column + chunk * VX_CHUNK_ELEMENTS;
        words->weights[i] =
            words_load(weight + (int64_t)row * args->co + column, column < args->co);
    }
}

/* Matrix instructions read both operands along the sum, so the weights are stored as rows
 * of VX_TILE_CI numbers, one for each column. */
VX_DEVICE void weights_put(uint32_t stage, int row, int chunk, struct vx_words4 words)
{
#if VX_MULTIPLY == VX_MULTIPLY_FMA
    vx_store_shared4(stage + 16u * (uint32_t)weight_place(row, chunk), words);
#else
    const union chunk_elements numbers = {words};
#pragma unroll
    for (int i = 0; i < VX_CHUNK_ELEMENTS; i++) {
        int column = chunk * VX_CHUNK_ELEMENTS + i;
        int place = chunk_place(column, row / VX_CHUNK_ELEMENTS, A_CHUNKS);
        int within = row % VX_CHUNK_ELEMENTS * (int)sizeof(vx_element);
        vx_store_shared_element(stage + 16u * (uint32_t)place + (uint32_t)within,
                                numbers.elements[i]);
    }
#endif
}

VX_DEVICE void stage_put(uint32_t stage, const struct stage_words *words)
{
    int row, chunk;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        if (!rows_chunk(i, &row, &chunk)) break;
        vx_store_shared4(stage + 16u * (uint32_t)chunk_place(row, chunk, A_CHUNKS),
                         words->rows[i]);
    }
#pragma unroll
    for (int i = 0; i < WEIGHTS_EACH; i++) {
        if (!weights_chunk(i, &row, &chunk)) break;
        weights_put(stage + A_BYTES, row, chunk, words->weights[i]);
    }
}

/* One barrier a stage: who stores into a place has passed the barrier behind the stage
 * before, and so has everybody who read from this place. */
VX_DEVICE void tile_walk(const struct vx_conv_device_args *args,
                         const struct tile_memory *memory, uint32_t stages,
                         int first_column, struct tile_sums *sums)
{
    int total = (int)vx_uniform((uint32_t)memory->count) * (args->ci / VX_TILE_CI);
    struct walk_place load = {0, 0}, done = {0, 0};
    struct stage_words words;
    if (total) stage_fetch(args, memory, &load, first_column, &words);
    for (int at = 0; at < total; at++) {
        const uint32_t stage = stages + (uint32_t)(at % 2 * STAGE_BYTES);
        stage_put(stage, &words);
        walk_step(&load, args->ci);
        vx_barrier();
        if (at + 1 < total) stage_fetch(args, memory, &load, first_column, &words);
        uint32_t blocks =
            vx_uniform(warp_blocks(memory->blocks[memory->from + done.offset]));
        if (blocks) stage_multiply(sums, stage, blocks);
        walk_step(&done, args->ci);
    }
    vx_barrier(); /* now the stages and nbr may be overwritten */
}
#endif

#endif
