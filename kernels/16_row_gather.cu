/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/16_row_gather.h"
#include "kernels/activation.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

/* Where a channel of out comes from, in every row. */
struct gather_source {
    int32_t v;       /* the entry of the row's map; -1: padding, zero */
    int32_t channel; /* of a block */
};

VX_DEVICE struct gather_source gather_find(const struct vx_row_gather_device_args *args,
                                           int32_t channel)
{
    int32_t w = channel / args->c;
    int32_t x = w % args->kernel[0], rest = w / args->kernel[0];
    int32_t y = rest % args->kernel[1], z = rest / args->kernel[1];
    struct gather_source source = {(x * args->kernel[1] + y) * args->kernel[2] + z,
                                   channel - w * args->c};
    if (w >= args->v) source.v = -1;
    return source;
}

/* The entry of a row of the map, -1: none. */
VX_DEVICE int32_t gather_entry(const struct vx_row_gather_device_args *args, int64_t row,
                               int32_t v)
{
    return v < 0 ? -1 : args->nbr[row * args->nbr_stride + v];
}

/* Where `channel` of the block that an entry names is in `in`. */
VX_DEVICE int64_t gather_at(const struct vx_row_gather_device_args *args, int32_t entry,
                            int32_t channel)
{
    int32_t row = entry, block = 0;
    if (args->blocks > 1) {
        row = entry / args->blocks;
        block = entry - row * args->blocks;
    }
    return (int64_t)row * args->in_cp + (int64_t)block * args->c + channel;
}

/* A vector lies in one block, and is aligned there. */
VX_DEVICE void gather_copy(const struct vx_row_gather_device_args *args,
                           struct vx_walk walk, int32_t stride)
{
    struct gather_source source = gather_find(args, walk.column * VX_LANES);
    const vx_element *in = (const vx_element *)args->in;
    int32_t curved = args->activation != VX_ACTIVATION_NONE && source.v >= 0;
    for (int64_t row = walk.row; row < walk.last; row += VX_ROUNDS * walk.step) {
        struct vx_words4 words[VX_ROUNDS];
        int32_t entries[VX_ROUNDS];
        VX_UNROLL
        for (int32_t k = 0; k < VX_ROUNDS; k++) {
            int64_t at = row + k * walk.step;
            entries[k] = at < walk.last ? gather_entry(args, at, source.v) : -1;
        }
        VX_UNROLL
        for (int32_t k = 0; k < VX_ROUNDS; k++) {
            words[k] = vx_vector_zero();
            if (entries[k] >= 0)
                words[k] =
                    vx_vector_load(in + gather_at(args, entries[k], source.channel), 0);
        }
        VX_UNROLL
        for (int32_t k = 0; k < VX_ROUNDS; k++) {
            int64_t at = row + k * walk.step;
            float x[VX_LANES];
            if (at >= walk.last) break;
            if (curved) {
                vx_vector_unpack(words[k], x);
                VX_UNROLL
                for (int32_t e = 0; e < VX_LANES; e++)
                    x[e] = vx_activate(args->activation, x[e]);
                words[k] = vx_vector_pack(x);
            }
            vx_vector_store(args->out, at * stride + walk.column, words[k]);
        }
    }
}

/* A vector is joined from several blocks, from one that is not aligned, or with padding. */
VX_DEVICE void gather_join(const struct vx_row_gather_device_args *args,
                           struct vx_walk walk, int32_t stride)
{
    struct gather_source sources[VX_LANES];
    const vx_element *in = (const vx_element *)args->in;
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++)
        sources[e] = gather_find(args, walk.column * VX_LANES + e);
    for (int64_t row = walk.row; row < walk.last; row += walk.step) {
        float x[VX_LANES];
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) {
            int32_t entry = gather_entry(args, row, sources[e].v);
            x[e] = 0.0f;
            if (entry >= 0)
                x[e] = vx_float_of(in[gather_at(args, entry, sources[e].channel)]);
            if (sources[e].v >= 0) x[e] = vx_activate(args->activation, x[e]);
        }
        vx_vector_store(args->out, row * stride + walk.column, vx_vector_pack(x));
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 3) row_gather(struct vx_row_gather_device_args args)
{
    vx_turn();
    int32_t columns = args.cp / VX_LANES;
    int32_t stride = vx_row_vectors(args.out_stride, args.cp);
    struct vx_walk walk = vx_walk_begin(args.n, args.cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        if (args.c % VX_LANES == 0)
            gather_copy(&args, walk, stride);
        else
            gather_join(&args, walk, stride);
    }
}
