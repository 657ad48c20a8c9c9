/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/13_elementwise.h"
#include "kernels/activation.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

/* add, or mul: `product` is a constant at each call. */
VX_DEVICE void join_vectors(const struct vx_add_device_args *args, int32_t product)
{
    struct vx_words4 a[VX_ROUNDS], b[VX_ROUNDS];
    int64_t count = args->n * (args->cp / VX_LANES);
    int64_t first =
        (int64_t)vx_block_x() * (VX_ROUNDS * VX_POINTWISE_THREADS) + vx_thread();
    VX_UNROLL
    for (int32_t k = 0; k < VX_ROUNDS; k++) {
        int64_t at = first + k * VX_POINTWISE_THREADS;
        a[k] = at < count ? vx_vector_load(args->a, at) : vx_vector_zero();
        b[k] = at < count ? vx_vector_load(args->b, at) : vx_vector_zero();
    }
    VX_UNROLL
    for (int32_t k = 0; k < VX_ROUNDS; k++) {
        int64_t at = first + k * VX_POINTWISE_THREADS;
        float x[VX_LANES], y[VX_LANES];
        if (at >= count) break;
        vx_vector_unpack(a[k], x);
        vx_vector_unpack(b[k], y);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++)
            x[e] = vx_activate(args->activation, product ? x[e] * y[e] : x[e] + y[e]);
        vx_vector_store(args->out, at, vx_vector_pack(x));
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 4) add(struct vx_add_device_args args)
{
    vx_turn();
    join_vectors(&args, 0);
}

VX_KERNEL(VX_POINTWISE_THREADS, 4) mul(struct vx_add_device_args args)
{
    vx_turn();
    join_vectors(&args, 1);
}

VX_KERNEL(VX_POINTWISE_THREADS, 4) affine(struct vx_affine_device_args args)
{
    vx_turn();
    int32_t columns = args.cp / VX_LANES;
    struct vx_walk walk = vx_walk_begin(args.n, args.cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        int32_t real = args.c - walk.column * VX_LANES;
        for (int64_t row = walk.row; row < walk.last; row += VX_ROUNDS * walk.step) {
            struct vx_words4 words[VX_ROUNDS];
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                int64_t at = row + k * walk.step;
                words[k] = at < walk.last
                               ? vx_vector_load(args.in, at * columns + walk.column)
                               : vx_vector_zero();
            }
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                int64_t at = row + k * walk.step;
                float x[VX_LANES];
                if (at >= walk.last) break;
                vx_vector_unpack(words[k], x);
                VX_UNROLL
                for (int32_t e = 0; e < VX_LANES; e++) {
                    float y =
                        vx_activate(args.activation, x[e] * args.scale + args.shift);
                    x[e] = e < real ? y : 0.0f;
                }
                vx_vector_store(args.out, at * columns + walk.column, vx_vector_pack(x));
            }
        }
    }
}

/* Where one channel of out comes from; data NULL: left 0 = padding, zero, else it is there. */
struct concat_source {
    const vx_element *data; /* of row 0 */
    int32_t stride;         /* elements from row to row */
    int32_t left;           /* real channels of the same input from here on */
};

VX_DEVICE struct concat_source concat_find(const struct vx_concat_device_args *args,
                                           int32_t channel)
{
    struct concat_source source = {0, 0, 0};
    VX_UNROLL
    for (int32_t k = 0; k < VX_CONCAT_INPUTS_MAX; k++) {
        if (k >= args->inputs_count) break;
        if (channel >= 0 && channel < args->inputs[k].c) {
            if (args->inputs[k].data)
                source.data = (const vx_element *)args->inputs[k].data + channel;
            source.stride = args->inputs[k].cp;
            source.left = args->inputs[k].c - channel;
        }
        channel -= args->inputs[k].c;
    }
    return source;
}

/* Copies a vector that lies in one input and is aligned there: the common case, since
 * widths are mostly multiples of 8. */
VX_DEVICE void concat_copy(void *out, int32_t columns, struct vx_walk walk,
                           struct concat_source source)
{
    for (int64_t row = walk.row; row < walk.last; row += VX_ROUNDS * walk.step) {
        struct vx_words4 words[VX_ROUNDS];
        VX_UNROLL
        for (int32_t k = 0; k < VX_ROUNDS; k++) {
            int64_t at = row + k * walk.step;
            words[k] = at < walk.last
                           ? vx_vector_load(source.data + at * source.stride, 0)
                           : vx_vector_zero();
        }
        VX_UNROLL
        for (int32_t k = 0; k < VX_ROUNDS; k++) {
            int64_t at = row + k * walk.step;
            if (at < walk.last)
                vx_vector_store(out, at * columns + walk.column, words[k]);
        }
    }
}

/* Joins a vector from several inputs, from one that is not aligned, or with padding. */
VX_DEVICE void concat_join(const struct vx_concat_device_args *args, int32_t columns,
                           struct vx_walk walk)
{
    struct concat_source sources[VX_LANES];
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++)
        sources[e] = concat_find(args, walk.column * VX_LANES + e);
    for (int64_t row = walk.row; row < walk.last; row += walk.step) {
        float x[VX_LANES];
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) {
            x[e] = 0.0f;
            if (sources[e].data)
                x[e] = vx_float_of(sources[e].data[row * sources[e].stride]);
        }
        vx_vector_store(args->out, row * columns + walk.column, vx_vector_pack(x));
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 3) concat(struct vx_concat_device_args args)
{
    vx_turn();
    int32_t columns = args.cp / VX_LANES;
    struct vx_walk walk = vx_walk_begin(args.n, args.cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        struct concat_source source = concat_find(&args, walk.column * VX_LANES);
        int aligned = ((uint64_t)source.data & 15u) == 0;
        if (source.left > 0 && !source.data) continue;
        if (source.left >= VX_LANES && aligned)
            concat_copy(args.out, columns, walk, source);
        else
            concat_join(&args, columns, walk);
    }
}
