/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/24_conv_group.h"
#include "kernels/activation.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

/* Neighbours of a row whose vectors are in flight together, depthwise. */
#define PARTS 4

/* One thread's channels of VX_ROUNDS rows: row, row + step, ... */
struct group_part {
    float sums[VX_ROUNDS][VX_LANES];
    int64_t row, last;
    int32_t step, column;
};

/* The entry of row k of the part, -1: none. */
VX_DEVICE int32_t group_entry(const struct vx_conv_group_args *args,
                              const struct group_part *part, int32_t k, int32_t v)
{
    int64_t at = part->row + k * part->step;
    return at < part->last && v < args->v ? args->nbr[at * args->nbr_stride + v] : -1;
}

VX_DEVICE void group_load(const void *base, int64_t vector, float *values)
{
    vx_vector_unpack(vx_vector_load(base, vector), values);
}

/* Channels of in are those of out. */
VX_DEVICE void group_depthwise(const struct vx_conv_group_args *args,
                               struct group_part *part)
{
    int32_t columns = args->cp / VX_LANES, in_columns = args->in_cp / VX_LANES;
    for (int32_t v = 0; v < args->v; v += PARTS) {
        struct vx_words4 words[PARTS][VX_ROUNDS];
        int32_t from[PARTS][VX_ROUNDS];
        VX_UNROLL
        for (int32_t p = 0; p < PARTS * VX_ROUNDS; p++)
            from[p / VX_ROUNDS][p % VX_ROUNDS] =
                group_entry(args, part, p % VX_ROUNDS, v + p / VX_ROUNDS);
        VX_UNROLL
        for (int32_t p = 0; p < PARTS * VX_ROUNDS; p++) {
            int64_t row = from[p / VX_ROUNDS][p % VX_ROUNDS];
            words[p / VX_ROUNDS][p % VX_ROUNDS] = vx_vector_zero();
            if (row >= 0)
                words[p / VX_ROUNDS][p % VX_ROUNDS] =
                    vx_vector_load(args->in, row * in_columns + part->column);
        }
        VX_UNROLL
        for (int32_t p = 0; p < PARTS; p++) {
            float weight[VX_LANES];
            if (v + p >= args->v) break;
            group_load(args->weight, (int64_t)(v + p) * columns + part->column, weight);
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                float x[VX_LANES];
                if (from[p][k] < 0) continue;
                vx_vector_unpack(words[p][k], x);
                VX_UNROLL
                for (int32_t e = 0; e < VX_LANES; e++)
                    part->sums[k][e] += x[e] * weight[e];
            }
        }
    }
}

/* `mixed`, a constant: the channels of a vector may be of different groups. */
VX_DEVICE void group_general(const struct vx_conv_group_args *args,
                             struct group_part *part, int32_t mixed)
{
    const vx_element *in = (const vx_element *)args->in;
    int32_t columns = args->cp / VX_LANES;
    int32_t firsts[VX_LANES]; /* the group's first channel of in */
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) {
        int32_t group = (part->column * VX_LANES + (mixed ? e : 0)) / args->cog;
        /* Behind the last group there is padding: any channel will do. */
        firsts[e] = (group < args->groups ? group : 0) * args->cig;
    }
    for (int32_t v = 0; v < args->v; v++) {
        int32_t from[VX_ROUNDS], any = 0;
        VX_UNROLL
        for (int32_t k = 0; k < VX_ROUNDS; k++) {
            from[k] = group_entry(args, part, k, v);
            any |= from[k] >= 0;
        }
        if (!any) continue;
        for (int32_t c = 0; c < args->cig; c++) {
            float weight[VX_LANES];
            group_load(args->weight,
                       ((int64_t)v * args->cig + c) * columns + part->column, weight);
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                const vx_element *row = in + (int64_t)from[k] * args->in_cp + c;
                if (from[k] < 0) continue;
                VX_UNROLL
                for (int32_t e = 0; e < VX_LANES; e++)
                    part->sums[k][e] += vx_float_of(row[firsts[e]]) * weight[e];
            }
        }
    }
}

/* Bias, residual and activation of the part, and its zeros. */
VX_DEVICE void group_finish(const struct vx_conv_group_args *args,
                            const struct group_part *part)
{
    int32_t columns = args->cp / VX_LANES;
    int32_t real = args->groups * args->cog - part->column * VX_LANES;
    float bias[VX_LANES];
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) bias[e] = 0.0f;
    if (args->bias) vx_floats_load(args->bias, part->column * VX_LANES, bias);
    VX_UNROLL
    for (int32_t k = 0; k < VX_ROUNDS; k++) {
        int64_t at = part->row + k * part->step;
        float x[VX_LANES], residual[VX_LANES];
        if (at >= part->last) break;
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) residual[e] = 0.0f;
        if (args->residual)
            group_load(args->residual, at * columns + part->column, residual);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) {
            float y = part->sums[k][e] + bias[e] + residual[e];
            x[e] = e < real ? vx_activate(args->activation, y) : 0.0f;
        }
        vx_vector_store(args->out, at * columns + part->column, vx_vector_pack(x));
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 2) conv_group(struct vx_conv_group_args args)
{
    vx_turn();
    int32_t columns = args.cp / VX_LANES;
    struct vx_walk walk = vx_walk_begin(args.n, args.cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS)
        for (int64_t row = walk.row; row < walk.last; row += VX_ROUNDS * walk.step) {
            struct group_part part;
            VX_UNROLL
            for (int32_t e = 0; e < VX_ROUNDS * VX_LANES; e++)
                part.sums[e / VX_LANES][e % VX_LANES] = 0.0f;
            part.row = row;
            part.last = walk.last;
            part.step = walk.step;
            part.column = walk.column;
            if (args.cig == 1 && args.cog == 1)
                group_depthwise(&args, &part);
            else if (args.cog % VX_LANES == 0)
                group_general(&args, &part, 0);
            else
                group_general(&args, &part, 1);
            group_finish(&args, &part);
        }
}
