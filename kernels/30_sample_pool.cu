/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/30_sample_pool.h"
#include "kernels/activation.cuh"
#include "kernels/sample_walk.cuh"
#include "kernels/turn.cuh"

/* Sums of so many chunks are in flight for each thread of sample_pool. */
#define CHUNKS 4
#define GROUPS (VX_POINTWISE_THREADS / VX_SAMPLE_POOL_WIDE)

/* What nothing changes, when x is joined with it. */
VX_DEVICE double nothing(int32_t mode)
{
    return mode == VX_POOL_MAX ? (double)vx_float_of_bits(0xff800000u) : 0.0;
}

VX_DEVICE double join(int32_t mode, double value, double x)
{
    /* NaN is not equal to itself, and nothing is above it. */
    if (mode == VX_POOL_MAX) return x > value || x != x ? x : value;
    return value + x;
}

/* --- chunks --- */

/* What one thread makes of its rows, for each of its channels. */
VX_DEVICE void chunk_values(const struct vx_sample_pool_args *args,
                            const struct chunk_walk *walk, int32_t column, double *values)
{
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) values[e] = nothing(args->mode);
    for (int64_t at = walk->chunk.begin + walk->above; at < walk->chunk.end;
         at += VX_ROUNDS * walk->step) {
        struct chunk_rows rows = chunk_load(walk, at, column);
        VX_UNROLL
        for (int32_t k = 0; k < VX_ROUNDS; k++) {
            float x[VX_LANES];
            if (k >= rows.count) break;
            vx_vector_unpack(rows.words[k], x);
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++)
                values[e] = join(args->mode, values[e], (double)x[e]);
        }
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 2) sample_chunks(struct vx_sample_pool_args args)
{
    vx_turn();
    VX_SHARED double shared[VX_POINTWISE_THREADS * VX_LANES];
    struct chunk_walk walk =
        chunk_begin(vx_sample_pool_rows(&args), args.in, args.cp, args.in_stride);
    double *partial = args.partial + walk.chunk.slot * args.c;
    if (walk.chunk.begin >= walk.chunk.end) return; /* all threads of the block */
    for (int32_t left = 0; left < walk.columns; left += walk.wide) {
        int32_t column = left + walk.first;
        double values[VX_LANES];
        if (walk.above < walk.step && column < walk.columns) {
            chunk_values(&args, &walk, column, values);
            VX_UNROLL
            for (int32_t e = 0; e < VX_LANES; e++)
                shared[(int32_t)vx_thread() * VX_LANES + e] = values[e];
        }
        vx_barrier();
        for (int32_t at = (int32_t)vx_thread(); at < walk.wide * VX_LANES;
             at += VX_POINTWISE_THREADS) {
            int32_t channel = left * VX_LANES + at;
            double value = nothing(args.mode);
            if (channel >= args.c) continue;
            for (int32_t above = 0; above < walk.step; above++)
                value = join(args.mode, value, shared[above * walk.wide * VX_LANES + at]);
            partial[channel] = value;
        }
        vx_barrier(); /* before the next columns overwrite them */
    }
}

/* --- samples --- */

/* What one thread makes of its chunks of a sample, for one channel. */
VX_DEVICE double chunks_join(const struct vx_sample_pool_args *args,
                             const struct vx_sample_part *part, int32_t channel,
                             int64_t first)
{
    int64_t chunks = (part->end - part->begin + VX_SAMPLE_CHUNK - 1) / VX_SAMPLE_CHUNK;
    double value = nothing(args->mode);
    for (int64_t chunk = first; chunk < chunks; chunk += CHUNKS * GROUPS) {
        double x[CHUNKS];
        VX_UNROLL
        for (int32_t k = 0; k < CHUNKS; k++) {
            int64_t at = chunk + k * GROUPS;
            x[k] = nothing(args->mode);
            if (at < chunks) x[k] = args->partial[(part->slot + at) * args->c + channel];
        }
        VX_UNROLL
        for (int32_t k = 0; k < CHUNKS; k++) value = join(args->mode, value, x[k]);
    }
    return value;
}

VX_KERNEL(VX_POINTWISE_THREADS, 2) sample_pool(struct vx_sample_pool_args args)
{
    vx_turn();
    VX_SHARED double shared[VX_POINTWISE_THREADS];
    struct vx_sample_rows rows = vx_sample_pool_rows(&args);
    int32_t parts = vx_sample_pool_parts(&args);
    int64_t work = (int64_t)*args.count * parts;
    int32_t lane = (int32_t)vx_thread() % VX_SAMPLE_POOL_WIDE;
    int32_t group = (int32_t)vx_thread() / VX_SAMPLE_POOL_WIDE;
    for (int64_t at = vx_block_x(); at < work; at += vx_sample_pool_blocks(&args)) {
        int32_t sample = (int32_t)(at / parts);
        int32_t channel = (int32_t)(at % parts) * VX_SAMPLE_POOL_WIDE + lane;
        struct vx_sample_part part = vx_sample_part(&rows, sample);
        double value = nothing(args.mode);
        if (channel < args.c) value = chunks_join(&args, &part, channel, group);
        shared[vx_thread()] = value;
        vx_barrier();
        if (group == 0 && channel < args.cp) {
            float y = 0.0f;
            for (int32_t other = 1; other < GROUPS; other++)
                value =
                    join(args.mode, value, shared[other * VX_SAMPLE_POOL_WIDE + lane]);
            if (args.mode == VX_POOL_AVG) value /= (double)(part.end - part.begin);
            if (channel < args.c) y = vx_activate(args.activation, (float)value);
            ((vx_element *)args.out)[(int64_t)args.places[sample] * args.cp + channel] =
                vx_element_of(y);
        }
        vx_barrier(); /* before the next sample overwrites them */
    }
}
