/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/01_coord_hash.h"
#include "kernels/32_devoxelize.h"
#include "kernels/activation.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

/* Rows at the corners of a point's cell, -1 = none or without weight, and their weights. */
struct corners {
    int32_t rows[VX_CORNERS];
    float weights[VX_CORNERS];
};

/* How near a coordinate is to the two ends of its cell, as parts of 1. */
VX_DEVICE void shares_of(int32_t p, int32_t stride, float *shares)
{
    int32_t in_cell = p % stride;
    if (in_cell < 0) in_cell += stride;
    shares[0] = (float)(stride - in_cell) / (float)stride;
    shares[1] = (float)in_cell / (float)stride;
}

VX_DEVICE void corners_of(const struct vx_devoxelize_device_args *args, uint64_t key,
                          int64_t row, struct corners *corners)
{
    const int32_t *entries = args->nbr + row * args->nbr_stride;
    float shares[3][2], sum = 0.0f;
    VX_UNROLL
    for (int32_t axis = 0; axis < 3; axis++)
        shares_of(vx_key_axis(key, axis), args->stride[axis], shares[axis]);
    VX_UNROLL
    for (int32_t k = 0; k < VX_CORNERS; k++) {
        float weight = shares[0][k >> 2] * shares[1][k >> 1 & 1] * shares[2][k & 1];
        int32_t from = entries[k];
        if (weight == 0.0f) from = -1;
        if (from < 0) weight = 0.0f;
        corners->rows[k] = from;
        corners->weights[k] = weight;
        sum += weight;
    }
    sum += (float)VX_CORNERS_EPS;
    VX_UNROLL
    for (int32_t k = 0; k < VX_CORNERS; k++) corners->weights[k] /= sum;
}

/* Adds up one thread's channels of a point. */
VX_DEVICE void blend(const struct vx_devoxelize_device_args *args,
                     const struct corners *corners, int32_t column, float *sum)
{
    struct vx_words4 words[VX_CORNERS];
    int32_t columns = args->cp / VX_LANES;
    VX_UNROLL
    for (int32_t k = 0; k < VX_CORNERS; k++) {
        words[k] = vx_vector_zero();
        if (corners->rows[k] >= 0)
            words[k] =
                vx_vector_load(args->in, (int64_t)corners->rows[k] * columns + column);
    }
    VX_UNROLL
    for (int32_t k = 0; k < VX_CORNERS; k++) {
        float x[VX_LANES];
        vx_vector_unpack(words[k], x);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) sum[e] += corners->weights[k] * x[e];
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 2) devoxelize(struct vx_devoxelize_device_args args)
{
    vx_turn();
    int32_t columns = args.cp / VX_LANES;
    struct vx_walk walk = vx_walk_begin(args.n, args.cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        int32_t real = args.c - walk.column * VX_LANES;
        for (int64_t place = walk.row; place < walk.last; place += walk.step) {
            int64_t row = args.rows[place];
            struct corners corners;
            float value[VX_LANES];
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++) value[e] = 0.0f;
            corners_of(&args, args.keys[place], row, &corners);
            blend(&args, &corners, walk.column, value);
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++) {
                float y = vx_activate(args.activation, value[e]);
                value[e] = e < real ? y : 0.0f;
            }
            vx_vector_store(args.out, row * columns + walk.column, vx_vector_pack(value));
        }
    }
}
