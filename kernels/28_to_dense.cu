/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

#include "kernels/28_to_dense_device.h"

/* --- checked --- */

VX_DEVICE void key_least(uint64_t *at, uint64_t key)
{
    uint64_t there = VX_KEY_EMPTY;
    while (key < there) {
        uint64_t was = vx_atomic_swap_if64(at, there, key);
        if (was == there) return;
        there = was;
    }
}

VX_DEVICE void samples_most(int32_t *at, int32_t samples)
{
    int32_t there = 0;
    while (samples > there) {
        int32_t was = (int32_t)vx_atomic_swap_if((uint32_t *)at, (uint32_t)there,
                                                 (uint32_t)samples);
        if (was == there) return;
        there = was;
    }
}

/* What one thread finds in its part of a job. */
VX_DEVICE struct vx_dense_found job_part(const struct vx_dense_job *job, int64_t step)
{
    struct vx_dense_found found = vx_dense_nothing();
    int64_t i = (int64_t)vx_block_x() * VX_DENSE_THREADS + vx_thread();
    for (; i < job->n; i += step) {
        if (job->keys) {
            uint64_t key = job->keys[i];
            if (key < found.key && vx_dense_place(key, job->shape) < 0) found.key = key;
        } else {
            int32_t samples = job->coords[i * 4] + 1;
            if (samples > found.samples) found.samples = samples;
        }
    }
    return found;
}

VX_KERNEL(VX_DENSE_THREADS, 4) dense_check(const struct vx_dense_check_args args)
{
    vx_turn();
    VX_SHARED uint64_t keys[VX_DENSE_THREADS];
    VX_SHARED int32_t samples[VX_DENSE_THREADS];
    struct vx_dense_job job = args.jobs[vx_block_y()];
    int32_t thread = (int32_t)vx_thread();
    if ((int64_t)vx_block_x() * VX_DENSE_THREADS >= job.n) return; /* all of the block */
    struct vx_dense_found mine = job_part(&job, (int64_t)args.blocks * VX_DENSE_THREADS);
    keys[thread] = mine.key;
    samples[thread] = mine.samples;
    for (int32_t half = VX_DENSE_THREADS / 2; half > 0; half /= 2) {
        vx_barrier();
        if (thread >= half) continue;
        if (keys[thread + half] < keys[thread]) keys[thread] = keys[thread + half];
        if (samples[thread + half] > samples[thread])
            samples[thread] = samples[thread + half];
    }
    if (thread != 0) return;
    key_least(&args.found[vx_block_y()].key, keys[0]);
    samples_most(&args.found[vx_block_y()].samples, samples[0]);
}

/* --- placed --- */

VX_KERNEL(VX_DENSE_THREADS, 4) dense_cells(const struct vx_dense_cells_args args)
{
    vx_turn();
    int64_t row = (int64_t)vx_block_x() * VX_DENSE_THREADS + vx_thread();
    if (row >= args.n) return;
    uint64_t key = args.keys[row];
    int64_t sample = vx_key_sample(key) - args.first;
    int64_t place = vx_dense_place(key, args.shape);
    if (place < 0 || sample < 0 || sample >= args.samples) return;
    args.cells[sample * vx_dense_plane(args.shape) + place] = (int32_t)row;
}

/* --- written --- */

/* Vectors of a voxel's part of a tile; a thread's share of the tile's. */
#define PARTS (VX_DENSE_CHANNELS / VX_LANES)
#define LOADS (VX_DENSE_CELLS * PARTS / VX_DENSE_THREADS)
/* The cells of a channel lie one word apart from those of the next, in other banks. */
#define PITCH (VX_DENSE_CELLS + 1)

/* A block's tile: voxels first .. first + count - 1 of a sample, channels from `channel`. */
struct dense_tile {
    int64_t sample, first;
    int32_t count, channel;
};

VX_DEVICE void tile_load(const struct vx_to_dense_device_args *args,
                         const struct dense_tile *tile, const int32_t *rows,
                         float *values)
{
    struct vx_words4 words[LOADS];
    VX_UNROLL
    for (int32_t k = 0; k < LOADS; k++) {
        int32_t at = (int32_t)vx_thread() + k * VX_DENSE_THREADS;
        int32_t channel = tile->channel + at % PARTS * VX_LANES;
        int64_t row = rows[at / PARTS];
        words[k] = vx_vector_zero();
        if (row >= 0 && channel < args->cp)
            words[k] = vx_vector_load(args->in, (row * args->cp + channel) / VX_LANES);
    }
    VX_UNROLL
    for (int32_t k = 0; k < LOADS; k++) {
        int32_t at = (int32_t)vx_thread() + k * VX_DENSE_THREADS;
        float x[VX_LANES];
        vx_vector_unpack(words[k], x);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++)
            values[(at % PARTS * VX_LANES + e) * PITCH + at / PARTS] = x[e];
    }
}

VX_DEVICE uint32_t half_of(int32_t number, float value)
{
    return number == VX_TYPE_F16 ? vx_f16_of_float(value) : vx_bf16_of_float(value);
}

/* Writes words: of one number each, or of two halves where `each` is 2, for which the
 * number of voxels is even. */
VX_DEVICE void tile_store(const struct vx_to_dense_device_args *args,
                          const struct dense_tile *tile, int32_t each,
                          const float *values)
{
    int64_t plane = vx_dense_plane(args->shape);
    int64_t from = (tile->sample * args->c + tile->channel) * plane + tile->first;
    int32_t words = VX_DENSE_CELLS / each;
    for (int32_t at = (int32_t)vx_thread(); at < words * VX_DENSE_CHANNELS;
         at += VX_DENSE_THREADS) {
        int32_t c = at / words, cell = at % words * each;
        const float *x = values + c * PITCH + cell;
        int64_t to = from + c * plane + cell;
        if (tile->channel + c >= args->c || cell >= tile->count) continue;
        if (args->number == VX_TYPE_F32)
            ((float *)args->out)[to] = x[0];
        else if (each == 2)
            ((uint32_t *)args->out)[to / 2] =
                half_of(args->number, x[0]) | half_of(args->number, x[1]) << 16;
        else
            ((uint16_t *)args->out)[to] = (uint16_t)half_of(args->number, x[0]);
    }
}

VX_KERNEL(VX_DENSE_THREADS, 4) to_dense(const struct vx_to_dense_device_args args)
{
    vx_turn();
    VX_SHARED int32_t rows[VX_DENSE_CELLS];
    VX_SHARED float values[VX_DENSE_CHANNELS * PITCH];
    int64_t plane = vx_dense_plane(args.shape), tiles = vx_dense_tiles(&args);
    int64_t left;
    struct dense_tile tile;
    tile.sample = vx_block_x() / tiles;
    tile.first = (vx_block_x() - tile.sample * tiles) * VX_DENSE_CELLS;
    left = plane - tile.first;
    tile.count = left < VX_DENSE_CELLS ? (int32_t)left : VX_DENSE_CELLS;
    tile.channel = (int32_t)vx_block_y() * VX_DENSE_CHANNELS;
    for (int32_t at = (int32_t)vx_thread(); at < VX_DENSE_CELLS; at += VX_DENSE_THREADS)
        rows[at] =
            at < tile.count ? args.cells[tile.sample * plane + tile.first + at] : -1;
    vx_barrier();
    tile_load(&args, &tile, rows, values);
    vx_barrier();
    if (args.number != VX_TYPE_F32 && plane % 2 == 0 && (uint64_t)args.out % 4 == 0)
        tile_store(&args, &tile, 2, values);
    else
        tile_store(&args, &tile, 1, values);
}
