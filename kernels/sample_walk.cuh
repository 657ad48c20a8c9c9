/* sample_walk - the way of a block over one chunk of the rows of a sample.
 *
 * What 18_group_norm and 30_sample_pool share.  A thread has a column, 16 bytes of
 * channels, and rows at equal distances; a block has the chunk of the slot that is its
 * number (sample_rows.h).
 *
 * Owner    -
 * Thread   device code.
 * Limits   those of vector.cuh and sample_rows.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_SAMPLE_WALK_CUH
#define VX_KERNELS_SAMPLE_WALK_CUH

#include "kernels/sample_rows.h"
#include "kernels/vector.cuh"

struct chunk_walk {
    struct vx_sample_part chunk;
    const int32_t *rows;
    const void *in; /* (N, stride) vectors */
    int32_t stride;
    int32_t columns; /* of a row */
    int32_t wide;    /* columns that are passed over together */
    int32_t first;   /* the first of the thread, counted from those */
    int32_t above;   /* its first row, counted from the chunk's; step: none */
    int32_t step;
};

/* stride: elements from a row of `in` to the next; 0: cp. */
VX_DEVICE struct chunk_walk chunk_begin(struct vx_sample_rows samples, const void *in,
                                        int32_t cp, int32_t stride)
{
    struct chunk_walk walk;
    walk.chunk = vx_sample_chunk(&samples, vx_block_x());
    walk.rows = samples.rows;
    walk.in = in;
    walk.stride = vx_row_vectors(stride, cp);
    walk.columns = cp / VX_LANES;
    walk.wide = walk.columns < VX_POINTWISE_THREADS ? walk.columns : VX_POINTWISE_THREADS;
    walk.step = VX_POINTWISE_THREADS / walk.wide;
    walk.above = (int32_t)vx_thread() / walk.wide;
    walk.first = (int32_t)vx_thread() - walk.above * walk.wide;
    return walk;
}

/* A column of up to VX_ROUNDS rows. */
struct chunk_rows {
    struct vx_words4 words[VX_ROUNDS];
    int32_t rows[VX_ROUNDS];
    int32_t count;
};

/* The rows from place `at` on that the thread passes over. */
VX_DEVICE struct chunk_rows chunk_load(const struct chunk_walk *walk, int64_t at,
                                       int32_t column)
{
    struct chunk_rows rows;
    rows.count = 0;
    VX_UNROLL
    for (int32_t k = 0; k < VX_ROUNDS; k++) {
        int64_t place = at + k * walk->step;
        if (place >= walk->chunk.end) break;
        rows.rows[k] = walk->rows[place];
        rows.count++;
    }
    VX_UNROLL
    for (int32_t k = 0; k < VX_ROUNDS; k++)
        rows.words[k] =
            k < rows.count
                ? vx_vector_load(walk->in, (int64_t)rows.rows[k] * walk->stride + column)
                : vx_vector_zero();
    return rows;
}

#endif
