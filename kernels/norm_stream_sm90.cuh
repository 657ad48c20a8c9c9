/* norm_stream_sm90 - the end of a tile of 35_conv_norm in a stream: from sums in registers to normed rows.
 *
 * In place of tile_store of stream_store_sm90.cuh, which tile_stream_sm90.cuh calls: the text
 * of a convolution without a norm, and with it the hash of its measured tiles, has nothing
 * of this.
 *
 * Once rounded and exchanged, lane q of four has vectors q, q + 4, ... of eight columns of two
 * rows, in half of the registers that the sums had.  Layer norm has a lane for each vector
 * and adds lanes in a tree, neighbours first.  Its first two levels are the four lanes here;
 * the others are numbers of one lane, the same in all four.
 *
 * Owner    -
 * Thread   device code, all lanes of a warp.
 * Limits   as 35_conv_norm.h and tile_stream_sm90.cuh.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_NORM_STREAM_SM90_CUH
#define VX_KERNELS_NORM_STREAM_SM90_CUH

#include "kernels/35_conv_norm.h"

#define tile_store tile_store_without_norm
#include "kernels/stream_store_sm90.cuh"
#undef tile_store
#include "kernels/norm_row.cuh"

static_assert(VX_LANES == 8 && PIECE == 4 * VX_LANES, "a lane has one vector of a piece");

/* What a lane has of two rows. */
struct row_vectors {
    int32_t rows[2]; /* -1 none */
    struct vx_words4 words[2][PIECES];
};

/* Rounds a piece as a convolution stores it; zeros behind the last column. */
VX_DEVICE void piece_round(const struct vx_conv_device_args *args,
                           const struct piece *piece, const int at,
                           struct row_vectors *to)
{
    const int present = piece->column + 8 * (int32_t)(vx_lane() % 4) < args->co;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            words[j] = vx_pair_of(piece->values[4 * j + 2 * half],
                                  piece->values[4 * j + 2 * half + 1]);
        quad_turn(words);
        const struct vx_words4 out = {words[0], words[1], words[2], words[3]};
        to->words[half][at] = present ? out : vx_vector_zero();
    }
}

/* `which` of the groups of 64 rows is a constant, `first` where its first piece lies.  No
 * loop, so that no sum is moved. */
VX_DEVICE void vectors_take(const struct vx_conv_device_args *args,
                            const struct multiply *it, const int which,
                            const struct piece *first, struct row_vectors *to)
{
    struct piece piece, next = *first;
    struct piece_terms terms, next_terms = {};
    to->rows[0] = next.rows[0], to->rows[1] = next.rows[1];
    terms_load(args, &next, &next_terms);
#pragma unroll
    for (int at = 0; at < PIECES; at++) {
        piece = next;
        terms = next_terms;
        next.column += PIECE;
        if (at + 1 < PIECES) terms_load(args, &next, &next_terms);
        sums_take(it, at * MINE + which, &piece);
        terms_add(args, &terms, &piece);
        piece_round(args, &piece, at, to);
    }
}

/* The sum of a row of what four lanes have of each of its pieces. */
VX_DEVICE float pieces_sum(float sums[PIECES])
{
#pragma unroll
    for (int at = 0; at < PIECES; at++) sums[at] = norm_group_sum(sums[at], 4);
#pragma unroll
    for (int step = 1; step < PIECES; step *= 2)
#pragma unroll
        for (int at = 0; at < PIECES; at += 2 * step) sums[at] += sums[at + step];
    return sums[0];
}

VX_DEVICE struct norm_row vectors_measure(const struct vx_layer_norm_device_args *norm,
                                          const struct vx_words4 words[PIECES])
{
    const int32_t first = 8 * (int32_t)(vx_lane() % 4);
    struct norm_row row;
    float sums[PIECES];
#pragma unroll
    for (int at = 0; at < PIECES; at++)
        sums[at] = norm_sum(words[at], first + at * PIECE, norm->c);
    row.mean = pieces_sum(sums) / (float)norm->c;
#pragma unroll
    for (int at = 0; at < PIECES; at++)
        sums[at] = norm_squares(words[at], first + at * PIECE, norm->c, row.mean);
    row.scale = 1.0f / vx_sqrt(pieces_sum(sums) / (float)norm->c + norm->eps);
    return row;
}

/* One piece after the other by the same code, which an activation makes long.  `activation`
 * is a constant. */
VX_DEVICE void vectors_store_as(const struct vx_conv_norm_args *args,
                                const int32_t activation,
                                const struct row_vectors *vectors,
                                const struct norm_row measured[2])
{
    int32_t column = 8 * (int32_t)(vx_lane() % 4);
#pragma unroll 1
    for (int at = 0; at < PIECES; at++, column += PIECE) {
        struct vx_words4 words[2] = {vectors->words[0][0], vectors->words[1][0]};
        if (column >= args->conv.co) return;
#pragma unroll
        for (int constant = 1; constant < PIECES; constant++)
            if (constant == at) {
                words[0] = vectors->words[0][constant];
                words[1] = vectors->words[1][constant];
            }
        struct norm_affine affine = norm_affine_load(&args->norm, column);
        affine.activation = activation;
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (vectors->rows[half] >= 0)
                *(struct vx_words4 *)((vx_element *)args->conv.out +
                                      (int64_t)vectors->rows[half] *
                                          args->conv.out_stride +
                                      column) =
                    norm_apply(&args->norm, words[half], column, measured[half], &affine);
    }
}

VX_DEVICE void vectors_store(const struct vx_conv_norm_args *args,
                             const struct row_vectors *vectors,
                             const struct norm_row measured[2])
{
    const int32_t activation = args->norm.activation;
    if (activation == VX_ACTIVATION_NONE)
        vectors_store_as(args, VX_ACTIVATION_NONE, vectors, measured);
    else if (activation == VX_ACTIVATION_SILU)
        vectors_store_as(args, VX_ACTIVATION_SILU, vectors, measured);
    else if (activation == VX_ACTIVATION_GELU)
        vectors_store_as(args, VX_ACTIVATION_GELU, vectors, measured);
    else if (activation == VX_ACTIVATION_RELU)
        vectors_store_as(args, VX_ACTIVATION_RELU, vectors, measured);
    else
        vectors_store_as(args, VX_ACTIVATION_SIGMOID, vectors, measured);
}

VX_DEVICE void tile_store(const struct vx_conv_device_args *args,
                          const struct stream_tile *tile, const struct tile_about *about,
                          const struct multiply *it)
{
    const struct vx_conv_norm_args *all = (const struct vx_conv_norm_args *)args;
#pragma unroll
    for (int which = 0; which < MINE; which++) {
        struct piece first;
        struct row_vectors vectors;
        struct norm_row measured[2];
        piece_place(tile, about, which, &first);
        vectors_take(args, it, which, &first, &vectors);
        measured[0] = vectors_measure(&all->norm, vectors.words[0]);
        measured[1] = vectors_measure(&all->norm, vectors.words[1]);
        vectors_store(all, &vectors, measured);
    }
}

#include "kernels/tile_stream_sm90.cuh"

#endif
