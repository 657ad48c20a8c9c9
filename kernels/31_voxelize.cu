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

VX_KERNEL(VX_POINTWISE_THREADS, 2) voxel_mean(struct vx_voxelize_device_args args)
{
    vx_turn();
    int32_t columns = args.cp / VX_LANES;
    struct vx_walk walk = vx_walk_begin(args.m, args.cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        int32_t real = args.c - walk.column * VX_LANES;
        for (int64_t row = walk.row; row < walk.last; row += walk.step) {
            int64_t begin = place_of(&args, 0, (uint64_t)row);
            int64_t end = place_of(&args, begin, (uint64_t)row + 1);
            double sum[VX_LANES], count = end > begin ? (double)(end - begin) : 1.0;
            float value[VX_LANES];
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++) sum[e] = 0.0;
            points_add(&args, begin, end, walk.column, sum);
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++) {
                float y = vx_activate(args.activation, (float)(sum[e] / count));
                value[e] = e < real ? y : 0.0f;
            }
            vx_vector_store(args.out, row * columns + walk.column, vx_vector_pack(value));
        }
    }
}
