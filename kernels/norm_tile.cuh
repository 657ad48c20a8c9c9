/* norm_tile - the end of a tile of 35_conv_norm: rows in shared memory are normed as they are stored.
 *
 * In place of tile_finish of conv_tile.cuh, which conv_body.cuh calls: the text of a
 * convolution without a norm, and with it the hash of its measured tiles, has nothing of
 * this.  A row belongs to as many lanes as in layer norm, each with the vectors that it has
 * there.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   as 35_conv_norm.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_NORM_TILE_CUH
#define VX_KERNELS_NORM_TILE_CUH

#include "kernels/35_conv_norm.h"

#define tile_finish tile_finish_without_norm
#include "kernels/conv_tile.cuh"
#undef tile_finish
#include "kernels/norm_row.cuh"

#define UNIT (VX_LAYER_NORM_UNIT / VX_LANES) /* vectors of a row that a lane has */

static_assert(OUT_ELEMENTS == VX_LANES, "a chunk is a vector");

/* A vector of a row, as a convolution stores it. */
VX_DEVICE struct vx_words4 chunk_round(const struct vx_conv_device_args *args,
                                       const float *sums, int64_t row, int column)
{
    union chunk_floats value = chunk_read(sums);
    union chunk_elements out;
    if (args->bias) {
        union chunk_floats bias = chunk_read(args->bias + column);
#pragma unroll
        for (int i = 0; i < OUT_ELEMENTS; i++) value.floats[i] += bias.floats[i];
    }
    if (args->residual) {
        union chunk_elements residual;
        residual.words =
            *(const struct vx_words4 *)((const vx_element *)args->residual +
                                        row * args->residual_stride + column);
#pragma unroll
        for (int i = 0; i < OUT_ELEMENTS; i++)
            value.floats[i] += vx_float_of(residual.elements[i]);
    }
#pragma unroll
    for (int i = 0; i < OUT_ELEMENTS; i++)
        out.elements[i] = vx_element_of(value.floats[i]);
    return out.words;
}

/* A lane's vectors of a row: k * lanes + lane, as in layer norm. */
struct row_lane {
    uint32_t lanes;
    int32_t columns[UNIT]; /* the first of each */
    struct vx_words4 words[UNIT];
};

VX_DEVICE void lane_load(const struct vx_conv_device_args *args, const float *sums,
                         int64_t row, struct row_lane *lane)
{
#pragma unroll
    for (int k = 0; k < UNIT; k++) {
        const int column = lane->columns[k];
        lane->words[k] = vx_vector_zero();
        if (row >= 0 && column < args->co)
            lane->words[k] = chunk_round(args, sums + column, row, column);
    }
}

/* All lanes of a row take part. */
VX_DEVICE struct norm_row lane_measure(const struct vx_layer_norm_device_args *norm,
                                       const struct row_lane *lane)
{
    struct norm_row row;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < UNIT; k++)
        sum += norm_sum(lane->words[k], lane->columns[k], norm->c);
    row.mean = norm_group_sum(sum, lane->lanes) / (float)norm->c;
#pragma unroll
    for (int k = 0; k < UNIT; k++)
        squares += norm_squares(lane->words[k], lane->columns[k], norm->c, row.mean);
    squares = norm_group_sum(squares, lane->lanes) / (float)norm->c;
    row.scale = 1.0f / vx_sqrt(squares + norm->eps);
    return row;
}

VX_DEVICE void tile_finish(const struct vx_conv_device_args *args,
                           const struct tile_memory *memory,
                           const struct tile_place *place, const float *sums)
{
    const struct vx_layer_norm_device_args *norm =
        &((const struct vx_conv_norm_args *)args)->norm;
    struct norm_affine affine[UNIT];
    struct row_lane lane;
    (void)place; /* the first column: a tile has all of them */
    lane.lanes = VX_LAYER_NORM_LANES(args->co);
#pragma unroll
    for (int k = 0; k < UNIT; k++) {
        lane.columns[k] =
            (int32_t)((uint32_t)k * lane.lanes + vx_thread() % lane.lanes) * VX_LANES;
        affine[k] = norm_affine_load(norm, lane.columns[k]);
    }
    for (int first = 0; first < VX_TILE_N; first += THREADS / (int)lane.lanes) {
        const int at = first + (int)(vx_thread() / lane.lanes);
        const int64_t row = at < VX_TILE_N ? memory->rows[at] : -1;
        lane_load(args, sums + at * SUM_STRIDE, row, &lane);
        const struct norm_row measured = lane_measure(norm, &lane);
#pragma unroll
        for (int k = 0; k < UNIT; k++)
            if (row >= 0 && lane.columns[k] < args->co)
                *(struct vx_words4 *)((vx_element *)args->out + row * args->out_stride +
                                      lane.columns[k]) =
                    norm_apply(norm, lane.words[k], lane.columns[k], measured,
                               &affine[k]);
    }
}

#include "kernels/conv_body.cuh"

#endif
