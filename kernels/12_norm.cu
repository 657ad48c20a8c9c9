/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/12_norm.h"
#include "kernels/norm_row.cuh"
#include "kernels/turn.cuh"

VX_KERNEL(VX_POINTWISE_THREADS, 4) batch_norm(struct vx_batch_norm_device_args args)
{
    vx_turn();
    int32_t columns = args.cp / VX_LANES;
    int32_t in_stride = vx_row_vectors(args.in_stride, args.cp);
    int32_t out_stride = vx_row_vectors(args.out_stride, args.cp);
    struct vx_walk walk = vx_walk_begin(args.n, args.cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        float scale[VX_LANES], shift[VX_LANES];
        vx_floats_load(args.scale, walk.column * VX_LANES, scale);
        vx_floats_load(args.shift, walk.column * VX_LANES, shift);
        for (int64_t row = walk.row; row < walk.last; row += VX_ROUNDS * walk.step) {
            struct vx_words4 words[VX_ROUNDS];
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                int64_t at = row + k * walk.step;
                words[k] = at < walk.last
                               ? vx_vector_load(args.in, at * in_stride + walk.column)
                               : vx_vector_zero();
            }
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                int64_t at = row + k * walk.step;
                float x[VX_LANES];
                if (at >= walk.last) break;
                vx_vector_unpack(words[k], x);
                VX_UNROLL
                for (int32_t e = 0; e < VX_LANES; e++)
                    x[e] = vx_activate(args.activation, x[e] * scale[e] + shift[e]);
                vx_vector_store(args.out, at * out_stride + walk.column,
                                vx_vector_pack(x));
            }
        }
    }
}

/* A lane holds one unit of each of two rows, or up to four units of one row. */
#define ROWS_MAX    2
#define UNITS_MAX   4
#define UNIT        (VX_LAYER_NORM_UNIT / VX_LANES) /* vectors of a unit */
#define VECTORS_MAX (UNITS_MAX * UNIT)

struct norm_held {
    struct vx_words4 words[VECTORS_MAX];
};

VX_DEVICE struct norm_row norm_statistics(const struct vx_layer_norm_device_args *args,
                                          const struct norm_held *held, int32_t vectors,
                                          uint32_t lanes)
{
    struct norm_row row;
    int32_t lane = (int32_t)(vx_thread() % lanes);
    float sum = 0.0f, squares = 0.0f;
    VX_UNROLL
    for (int32_t k = 0; k < vectors; k++)
        sum += norm_sum(held->words[k], (k * (int32_t)lanes + lane) * VX_LANES, args->c);
    row.mean = norm_group_sum(sum, lanes) / (float)args->c;
    VX_UNROLL
    for (int32_t k = 0; k < vectors; k++)
        squares += norm_squares(held->words[k], (k * (int32_t)lanes + lane) * VX_LANES,
                                args->c, row.mean);
    squares = norm_group_sum(squares, lanes) / (float)args->c;
    row.scale = 1.0f / vx_sqrt(squares + args->eps);
    return row;
}

/* A group of lanes computes a row.  `rows` and `vectors` are constants at each call, so
 * that what a lane holds stays in registers. */
VX_DEVICE void norm_groups(const struct vx_layer_norm_device_args *args, uint32_t lanes,
                           int32_t rows, int32_t vectors)
{
    struct norm_held held[ROWS_MAX];
    struct norm_row row[ROWS_MAX];
    int32_t columns = args->cp / VX_LANES;
    int32_t in_stride = vx_row_vectors(args->in_stride, args->cp);
    int32_t out_stride = vx_row_vectors(args->out_stride, args->cp);
    int32_t lane = (int32_t)(vx_thread() % lanes);
    int32_t groups = VX_POINTWISE_THREADS / (int32_t)lanes;
    int64_t first = (int64_t)vx_block_x() * (groups * rows) + vx_thread() / lanes;
    VX_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        int64_t at = first + r * groups;
        VX_UNROLL
        for (int32_t k = 0; k < vectors; k++) {
            int32_t column = k * (int32_t)lanes + lane;
            held[r].words[k] = at < args->n && column < columns
                                   ? vx_vector_load(args->in, at * in_stride + column)
                                   : vx_vector_zero();
        }
    }
    VX_UNROLL
    for (int32_t r = 0; r < rows; r++)
        row[r] = norm_statistics(args, &held[r], vectors, lanes);
    VX_UNROLL
    for (int32_t k = 0; k < vectors; k++) {
        int32_t column = k * (int32_t)lanes + lane;
        struct norm_affine affine;
        if (column >= columns) break;
        affine = norm_affine_load(args, column * VX_LANES);
        VX_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            int64_t at = first + r * groups;
            if (at < args->n)
                vx_vector_store(args->out, at * out_stride + column,
                                norm_apply(args, held[r].words[k], column * VX_LANES,
                                           row[r], &affine));
        }
    }
}

/* The sum over the block, the same for all threads: waves are added in their order. */
VX_DEVICE float norm_block_sum(float value)
{
    VX_SHARED float waves[VX_POINTWISE_THREADS / VX_WAVE];
    float sum = 0.0f;
    value = norm_group_sum(value, VX_WAVE);
    if (vx_lane() == 0) waves[vx_wave()] = value;
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < VX_POINTWISE_THREADS / VX_WAVE; k++) sum += waves[k];
    vx_barrier(); /* before the next sum overwrites them */
    return sum;
}

/* A block computes a row, and reads it three times: it stays in the first-level cache. */
VX_DEVICE void norm_block(const struct vx_layer_norm_device_args *args)
{
    struct norm_row row;
    int32_t columns = args->cp / VX_LANES;
    int64_t base = (int64_t)vx_block_x() * vx_row_vectors(args->in_stride, args->cp);
    int64_t to = (int64_t)vx_block_x() * vx_row_vectors(args->out_stride, args->cp);
    int32_t lane = (int32_t)vx_thread();
    float sum = 0.0f, squares = 0.0f;
    for (int32_t column = lane; column < columns; column += VX_POINTWISE_THREADS)
        sum +=
            norm_sum(vx_vector_load(args->in, base + column), column * VX_LANES, args->c);
    row.mean = norm_block_sum(sum) / (float)args->c;
    for (int32_t column = lane; column < columns; column += VX_POINTWISE_THREADS)
        squares += norm_squares(vx_vector_load(args->in, base + column),
                                column * VX_LANES, args->c, row.mean);
    squares = norm_block_sum(squares) / (float)args->c;
    row.scale = 1.0f / vx_sqrt(squares + args->eps);
    for (int32_t column = lane; column < columns; column += VX_POINTWISE_THREADS) {
        struct norm_affine affine = norm_affine_load(args, column * VX_LANES);
        struct vx_words4 words = vx_vector_load(args->in, base + column);
        vx_vector_store(args->out, to + column,
                        norm_apply(args, words, column * VX_LANES, row, &affine));
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 2) layer_norm(struct vx_layer_norm_device_args args)
{
    vx_turn();
    uint32_t lanes = VX_LAYER_NORM_LANES(args.cp);
    if (args.cp <= VX_LAYER_NORM_PAIR_CHANNELS)
        norm_groups(&args, lanes, ROWS_MAX, UNIT);
    else if (args.cp <= VX_LAYER_NORM_WARP_CHANNELS)
        norm_groups(&args, 32, 1, VECTORS_MAX);
    else
        norm_block(&args);
}
