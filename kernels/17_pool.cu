/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/17_pool.h"
#include "kernels/activation.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

/* Neighbours whose vectors are in flight together: rows of a map have a multiple of 4. */
#define PARTS 4

/* One thread's channels of one row. */
struct pool_state {
    float value[VX_LANES];
    int32_t count;
};

VX_DEVICE void pool_add(struct pool_state *state, int32_t mode, struct vx_words4 words)
{
    float x[VX_LANES];
    vx_vector_unpack(words, x);
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) {
        float next = x[e], held = state->value[e];
        /* NaN is not equal to itself, and nothing is above it. */
        int32_t above = state->count == 0 || next > held || next != next;
        float most = above ? next : held;
        state->value[e] = mode == VX_POOL_MAX ? most : held + next;
    }
    state->count++;
}

VX_DEVICE void pool_row(const struct vx_pool_device_args *args, int64_t row,
                        int32_t column, struct pool_state *state)
{
    const int32_t *entries = args->nbr + row * args->nbr_stride;
    int32_t stride = vx_row_vectors(args->in_stride, args->cp);
    for (int32_t v = 0; v < args->v; v += PARTS) {
        struct vx_words4 words[PARTS];
        int32_t from[PARTS];
        VX_UNROLL
        for (int32_t k = 0; k < PARTS; k++)
            from[k] = v + k < args->v ? entries[v + k] : -1;
        VX_UNROLL
        for (int32_t k = 0; k < PARTS; k++) {
            words[k] = vx_vector_zero();
            if (from[k] >= 0)
                words[k] = vx_vector_load(args->in, (int64_t)from[k] * stride + column);
        }
        VX_UNROLL
        for (int32_t k = 0; k < PARTS; k++)
            if (from[k] >= 0) pool_add(state, args->mode, words[k]);
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 4) pool(struct vx_pool_device_args args)
{
    vx_turn();
    int32_t columns = args.cp / VX_LANES;
    int32_t stride = vx_row_vectors(args.out_stride, args.cp);
    struct vx_walk walk = vx_walk_begin(args.n, args.cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        int32_t real = args.c - walk.column * VX_LANES;
        for (int64_t row = walk.row; row < walk.last; row += walk.step) {
            struct pool_state state;
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++) state.value[e] = 0.0f;
            state.count = 0;
            pool_row(&args, row, walk.column, &state);
            float parts = args.mode == VX_POOL_AVG && state.count > 0 ? state.count : 1;
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++) {
                float y = vx_activate(args.activation, state.value[e] / parts);
                state.value[e] = e < real ? y : 0.0f;
            }
            vx_vector_store(args.out, row * stride + walk.column,
                            vx_vector_pack(state.value));
        }
    }
}
