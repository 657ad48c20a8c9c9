/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/18_group_norm.h"
#include "kernels/activation.cuh"
#include "kernels/sample_walk.cuh"
#include "kernels/turn.cuh"

#define WAVES (VX_POINTWISE_THREADS / VX_WAVE)

/* --- f64 --- */

/* The sum over a wave, a tree: every lane gets the same bits. */
VX_DEVICE double wave_sum(double value)
{
    for (uint32_t mask = 1; mask < VX_WAVE; mask *= 2) {
        uint64_t bits = vx_bits_of_double(value);
        uint64_t low = vx_shuffle_xor((uint32_t)bits, mask);
        uint64_t high = vx_shuffle_xor((uint32_t)(bits >> 32), mask);
        value += vx_double_of_bits(high << 32 | low);
    }
    return value;
}

/* The group's place in mean and scale, for a channel. */
VX_DEVICE int64_t group_of(const struct vx_group_norm_device_args *args, int32_t sample,
                           int32_t channel)
{
    int32_t group = channel / (args->c / args->groups);
    return (int64_t)sample * args->groups + (channel < args->c ? group : 0);
}

/* --- sums of a chunk --- */

/* What one thread adds up of its rows, for each of its channels. */
VX_DEVICE void chunk_sums(const struct vx_group_norm_device_args *args,
                          const struct chunk_walk *walk, int32_t column, double *sums)
{
    double mean[VX_LANES];
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) {
        sums[e] = 0.0;
        mean[e] = 0.0;
        if (args->squares)
            mean[e] =
                args->mean[group_of(args, walk->chunk.sample, column * VX_LANES + e)];
    }
    for (int64_t at = walk->chunk.begin + walk->above; at < walk->chunk.end;
         at += VX_ROUNDS * walk->step) {
        struct chunk_rows rows = chunk_load(walk, at, column);
        VX_UNROLL
        for (int32_t k = 0; k < VX_ROUNDS; k++) {
            float x[VX_LANES];
            if (k >= rows.count) break;
            vx_vector_unpack(rows.words[k], x);
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++) {
                double away = (double)x[e] - mean[e];
                sums[e] += args->squares ? away * away : away;
            }
        }
    }
}

/* The channels of a group become their sum, in the place of the first. */
VX_DEVICE void group_join(const struct vx_group_norm_device_args *args, double *partial)
{
    int32_t width = args->c / args->groups;
    for (int32_t group = (int32_t)vx_wave(); group < args->groups; group += WAVES) {
        double sum = 0.0;
        for (int32_t c = (int32_t)vx_lane(); c < width; c += VX_WAVE)
            sum += partial[group * width + c];
        sum = wave_sum(sum); /* all lanes have read */
        if (vx_lane() == 0) partial[group * width] = sum;
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 2) group_sums(struct vx_group_norm_device_args args)
{
    vx_turn();
    VX_SHARED double shared[VX_POINTWISE_THREADS * VX_LANES];
    struct chunk_walk walk =
        chunk_begin(vx_group_norm_rows(&args), args.in, args.cp, args.in_stride);
    double *partial = args.partial + walk.chunk.slot * args.c;
    if (walk.chunk.begin >= walk.chunk.end) return; /* all threads of the block */
    for (int32_t left = 0; left < walk.columns; left += walk.wide) {
        int32_t column = left + walk.first;
        double sums[VX_LANES];
        if (walk.above < walk.step && column < walk.columns) {
            chunk_sums(&args, &walk, column, sums);
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++)
                shared[(int32_t)vx_thread() * VX_LANES + e] = sums[e];
        }
        vx_barrier();
        for (int32_t at = (int32_t)vx_thread(); at < walk.wide * VX_LANES;
             at += VX_POINTWISE_THREADS) {
            int32_t channel = left * VX_LANES + at;
            double sum = 0.0;
            if (channel >= args.c) continue;
            for (int32_t above = 0; above < walk.step; above++)
                sum += shared[above * walk.wide * VX_LANES + at];
            partial[channel] = sum;
        }
        vx_barrier(); /* before the next columns overwrite them */
    }
    if (args.groups < args.c) group_join(&args, partial);
}

/* --- means and scales --- */

/* The sum over the block, for thread 0: waves are added in their order. */
VX_DEVICE double block_sum(double value)
{
    VX_SHARED double waves[WAVES];
    double sum = 0.0;
    value = wave_sum(value);
    if (vx_lane() == 0) waves[vx_wave()] = value;
    vx_barrier();
    for (int32_t k = 0; k < WAVES; k++) sum += waves[k];
    vx_barrier(); /* before the next sum overwrites them */
    return sum;
}

VX_KERNEL(VX_POINTWISE_THREADS, 4) group_means(struct vx_group_norm_device_args args)
{
    vx_turn();
    int64_t groups = (int64_t)*args.count * args.groups;
    struct vx_sample_rows rows_of = vx_group_norm_rows(&args);
    int32_t width = args.c / args.groups;
    double *to = args.squares ? args.scale : args.mean;
    for (int64_t at = vx_block_x(); at < groups; at += vx_group_norm_blocks(&args)) {
        int32_t sample = (int32_t)(at / args.groups);
        int32_t channel = (int32_t)(at - (int64_t)sample * args.groups) * width;
        struct vx_sample_part part = vx_sample_part(&rows_of, sample);
        int64_t rows = part.end - part.begin;
        int64_t chunks = (rows + VX_SAMPLE_CHUNK - 1) / VX_SAMPLE_CHUNK;
        double sum = 0.0;
        for (int64_t chunk = vx_thread(); chunk < chunks; chunk += VX_POINTWISE_THREADS)
            sum += args.partial[(part.slot + chunk) * args.c + channel];
        sum = block_sum(sum) / (double)(rows * width);
        if (args.squares) sum = 1.0 / vx_sqrt_double(sum + (double)args.eps);
        if (vx_thread() == 0) to[at] = sum;
    }
}

/* --- the result --- */

/* What is applied to one thread's channels. */
struct group_affine {
    double mean[VX_LANES];
    float scale[VX_LANES], weight[VX_LANES], bias[VX_LANES];
};

VX_DEVICE struct group_affine
group_affine_load(const struct vx_group_norm_device_args *args, int32_t sample,
                  int32_t first)
{
    struct group_affine affine;
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) {
        int32_t channel = first + e, real = channel < args->c;
        int64_t group = group_of(args, sample, channel);
        affine.mean[e] = args->mean[group];
        affine.scale[e] = (float)args->scale[group];
        affine.weight[e] = args->weight && real ? args->weight[channel] : 1.0f;
        affine.bias[e] = args->bias && real ? args->bias[channel] : 0.0f;
    }
    return affine;
}

VX_KERNEL(VX_POINTWISE_THREADS, 2) group_apply(struct vx_group_norm_device_args args)
{
    vx_turn();
    struct chunk_walk walk =
        chunk_begin(vx_group_norm_rows(&args), args.in, args.cp, args.in_stride);
    if (walk.above >= walk.step) return;
    for (int32_t column = walk.first; column < walk.columns; column += walk.wide) {
        int32_t real = args.c - column * VX_LANES;
        struct group_affine affine;
        if (walk.chunk.begin >= walk.chunk.end) break;
        affine = group_affine_load(&args, walk.chunk.sample, column * VX_LANES);
        for (int64_t at = walk.chunk.begin + walk.above; at < walk.chunk.end;
             at += VX_ROUNDS * walk.step) {
            struct chunk_rows rows = chunk_load(&walk, at, column);
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                float x[VX_LANES];
                if (k >= rows.count) break;
                vx_vector_unpack(rows.words[k], x);
                VX_UNROLL
                for (int32_t e = 0; e < VX_LANES; e++) {
                    float y = (float)((double)x[e] - affine.mean[e]) * affine.scale[e];
                    y = y * affine.weight[e] + affine.bias[e];
                    x[e] = e < real ? vx_activate(args.activation, y) : 0.0f;
                }
                vx_vector_store(args.out, (int64_t)rows.rows[k] * walk.columns + column,
                                vx_vector_pack(x));
            }
        }
    }
}
