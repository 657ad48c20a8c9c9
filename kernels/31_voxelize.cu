/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/31_voxelize.h"
#include "kernels/activation.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

/* Points whose vectors are in flight together. */
#define PARTS 4

VX_KERNEL(VX_VOXEL_THREADS, 4) voxel_words(struct vx_voxel_words_args args)
{
    vx_turn();
    int64_t row = (int64_t)vx_block_x() * VX_VOXEL_THREADS + vx_thread();
    if (row >= args.n) return;
    int32_t voxel = args.nbr[row * args.nbr_stride];
    args.words[row] = voxel < 0 ? (uint64_t)args.m : (uint64_t)voxel;
}

/* The first place from `low` on whose word is not below `word`. */
VX_DEVICE int64_t place_of(const struct vx_voxelize_device_args *args, int64_t low,
                           uint64_t word)
{
    int64_t high = args->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (args->words[args->order[middle]] < word)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds up one thread's channels of the points at places begin to end - 1, in their order. */
VX_DEVICE void points_add(const struct vx_voxelize_device_args *args, int64_t begin,
                          int64_t end, int32_t column, double *sum)
{
    int32_t columns = args->cp / VX_LANES;
    for (int64_t at = begin; at < end; at += PARTS) {
        struct vx_words4 words[PARTS];
        VX_UNROLL
        for (int32_t k = 0; k < PARTS; k++) {
            words[k] = vx_vector_zero();
            if (at + k < end)
                words[k] = vx_vector_load(
                    args->in, (int64_t)args->order[at + k] * columns + column);
        }
        VX_UNROLL
        for (int32_t k = 0; k < PARTS; k++) {
            float x[VX_LANES];
            if (at + k >= end) break;
            vx_vector_unpack(words[k], x);
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++) sum[e] += (double)x[e];
        }
    }
}

/* The same of any number of points, chunk by chunk. */
VX_DEVICE void chunks_add(const struct vx_voxelize_device_args *args, int64_t begin,
                          int64_t end, int32_t column, double *total)
{
    for (int64_t from = begin; from < end; from += VX_VOXEL_CHUNK) {
        const int64_t to = from + VX_VOXEL_CHUNK < end ? from + VX_VOXEL_CHUNK : end;
        double sum[VX_LANES] = {0.0};
        points_add(args, from, to, column, sum);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) total[e] += sum[e];
    }
}

/* The mean of `count` points with that sum. */
VX_DEVICE void mean_store(const struct vx_voxelize_device_args *args, int64_t row,
                          int32_t column, const double *sum, int64_t count)
{
    const int32_t columns = args->cp / VX_LANES, real = args->c - column * VX_LANES;
    const double divided = count > 0 ? (double)count : 1.0;
    float value[VX_LANES];
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) {
        float y = vx_activate(args->activation, (float)(sum[e] / divided));
        value[e] = e < real ? y : 0.0f;
    }
    vx_vector_store(args->out, row * columns + column, vx_vector_pack(value));
}

/* A bit for each row of a block: of 16 channels, the fewest, it has the most. */
#define WORDS (VX_POINTWISE_ROWS(16) / 32)

struct mean_memory {
    uint32_t large[WORDS]; /* the rows whose voxels are of all threads */
    double sums[VX_POINTWISE_THREADS][VX_LANES];
};

/* What all slots of this thread's column have, in their order. */
VX_DEVICE void sums_add(const struct mean_memory *memory, int32_t wide, double *total)
{
    for (int32_t at = (int32_t)vx_thread(); at < VX_POINTWISE_THREADS; at += wide)
        VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) total[e] += memory->sums[at][e];
}

/* One voxel, by all threads of the block: each adds up every so manieth chunk of its column, and the
 * sums of chunks are added in their order. */
VX_DEVICE void large_mean(const struct vx_voxelize_device_args *args, int64_t row,
                          struct mean_memory *memory)
{
    const int32_t columns = args->cp / VX_LANES;
    const int32_t wide = columns < VX_POINTWISE_THREADS ? columns : VX_POINTWISE_THREADS;
    const int32_t slots = VX_POINTWISE_THREADS / wide;
    const int32_t slot = (int32_t)vx_thread() / wide, own = (int32_t)vx_thread() % wide;
    const int64_t begin = place_of(args, 0, (uint64_t)row);
    const int64_t end = place_of(args, begin, (uint64_t)row + 1);
    for (int32_t first = 0; first < columns; first += VX_POINTWISE_THREADS) {
        const int32_t column = first + own;
        const int32_t there = slot < slots && column < columns;
        double total[VX_LANES] = {0.0};
        for (int64_t at = begin; at < end; at += (int64_t)slots * VX_VOXEL_CHUNK) {
            const int64_t from = at + (int64_t)slot * VX_VOXEL_CHUNK;
            const int64_t to = from + VX_VOXEL_CHUNK < end ? from + VX_VOXEL_CHUNK : end;
            double sum[VX_LANES] = {0.0};
            if (there) points_add(args, from, to, column, sum);
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++) memory->sums[vx_thread()][e] = sum[e];
            vx_barrier();
            if (slot == 0) sums_add(memory, wide, total);
            vx_barrier();
        }
        if (slot == 0 && there) mean_store(args, row, column, total, end - begin);
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 2) voxel_mean(struct vx_voxelize_device_args args)
{
    vx_turn();
    VX_SHARED struct mean_memory memory;
    const int32_t columns = args.cp / VX_LANES;
    const int64_t first = (int64_t)vx_block_x() * VX_POINTWISE_ROWS(args.cp);
    struct vx_walk walk = vx_walk_begin(args.m, args.cp, columns);
    if (vx_thread() < WORDS) memory.large[vx_thread()] = 0;
    vx_barrier();
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        for (int64_t row = walk.row; row < walk.last; row += walk.step) {
            int64_t begin = place_of(&args, 0, (uint64_t)row);
            int64_t end = place_of(&args, begin, (uint64_t)row + 1);
            double sum[VX_LANES] = {0.0};
            if (end - begin > VX_VOXEL_ALONE) {
                const uint32_t at = (uint32_t)(row - first);
                vx_atomic_or(&memory.large[at / 32], 1u << at % 32);
                continue;
            }
            chunks_add(&args, begin, end, walk.column, sum);
            mean_store(&args, row, walk.column, sum, end - begin);
        }
    }
    vx_barrier();
    for (uint32_t word = 0; word < WORDS; word++)
        for (uint32_t rows = memory.large[word]; rows; rows &= rows - 1)
            large_mean(&args, first + word * 32 + vx_lowest_bit(rows), &memory);
}
