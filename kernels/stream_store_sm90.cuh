/* stream_store_sm90 - the end of a tile of a stream: from sums in registers to rows in memory.
 *
 * Private to tile_stream_sm90.cuh.  A warp passes its 16 rows through shared memory, 32
 * columns at a time: written as the products lie in registers, read as whole pieces of
 * rows.  The loop over these slabs keeps the code short.
 *
 * Measured (H200, 64,160 rows, 256 to 1024 channels): 272 us with a switch for the
 * activation of each value and the bias loaded where it is added, 120 us as it is, 70 us
 * without any end.
 *
 * Owner    -
 * Thread   device code, all lanes of a warp.
 * Limits   as tile_stream_sm90.cuh.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_STREAM_STORE_SM90_CUH
#define VX_KERNELS_STREAM_STORE_SM90_CUH

#include "kernels/activation.cuh"
#include "kernels/stream_sm90.cuh"

/* What a warpgroup knows of a tile before it begins. */
struct tile_about {
    uint32_t all, own[MINE]; /* offsets of the first word */
    int32_t rows[MINE];      /* of the warp's 16 rows of 64, that of lane % 16; -1 none */
};

struct multiply {
    uint32_t group; /* of the two warpgroups */
    int held;       /* the stage whose products may still run, -1 none */
    float sums[MINE][SUMS];
};

#define SLAB        32 /* columns */
#define SLAB_STRIDE 40 /* words of a row: half a warp's pairs fall in different banks */
#define SLAB_WORDS  (16 * SLAB_STRIDE)
/* Columns that a lane finishes of a row: eight lanes have a slab of it. */
#define LANE_COLUMNS 4

/* A lane has columns 2q and 2q + 1 of every eight, of two rows. */
VX_DEVICE void slab_put(float *slab, const float *sums)
{
    float *to = slab + vx_lane() / 4 * SLAB_STRIDE + 2 * (vx_lane() % 4);
#pragma unroll
    for (int j = 0; j < SLAB / 8; j++) {
        to[j * 8] = sums[j * 4];
        to[j * 8 + 1] = sums[j * 4 + 1];
        to[j * 8 + 8 * SLAB_STRIDE] = sums[j * 4 + 2];
        to[j * 8 + 8 * SLAB_STRIDE + 1] = sums[j * 4 + 3];
    }
}

/* Pieces of rows that a lane finishes of a slab. */
#define PIECES 4

struct slab_pieces {
    int32_t column;
    int32_t rows[PIECES]; /* -1 none */
    float values[PIECES * LANE_COLUMNS];
};

struct __attribute__((aligned(8))) piece_words {
    uint32_t low, high;
};

/* rows: lane l has the row of place l % 16. */
VX_DEVICE void pieces_get(const float *slab, int32_t rows, struct slab_pieces *it)
{
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        uint32_t place = (uint32_t)k * 4 + vx_lane() / 8;
        const struct vx_words4 words =
            *(const struct vx_words4 *)(slab + place * SLAB_STRIDE +
                                        vx_lane() % 8 * LANE_COLUMNS);
        float *to = it->values + k * LANE_COLUMNS;
        it->rows[k] = (int32_t)vx_shuffle((uint32_t)rows, place);
        to[0] = vx_float_of_bits(words.x);
        to[1] = vx_float_of_bits(words.y);
        to[2] = vx_float_of_bits(words.z);
        to[3] = vx_float_of_bits(words.w);
    }
}

VX_DEVICE void pieces_add(const struct vx_conv_device_args *args,
                          const struct vx_words4 *bias, struct slab_pieces *it)
{
    if (args->bias) {
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            it->values[k * 4] += vx_float_of_bits(bias->x);
            it->values[k * 4 + 1] += vx_float_of_bits(bias->y);
            it->values[k * 4 + 2] += vx_float_of_bits(bias->z);
            it->values[k * 4 + 3] += vx_float_of_bits(bias->w);
        }
    }
    if (!args->residual) return;
    struct piece_words words[PIECES];
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        words[k] =
            *(const struct piece_words *)((const vx_element *)args->residual +
                                          (int64_t)(it->rows[k] < 0 ? 0 : it->rows[k]) *
                                              args->residual_stride +
                                          it->column);
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        it->values[k * 4] += vx_float_of((vx_element)(words[k].low & 0xffffu));
        it->values[k * 4 + 1] += vx_float_of((vx_element)(words[k].low >> 16));
        it->values[k * 4 + 2] += vx_float_of((vx_element)(words[k].high & 0xffffu));
        it->values[k * 4 + 3] += vx_float_of((vx_element)(words[k].high >> 16));
    }
}

/* The activation is the same for all: it is chosen once, not for each value. */
VX_DEVICE void pieces_activate_as(const int32_t activation, struct slab_pieces *it)
{
#pragma unroll
    for (int i = 0; i < PIECES * LANE_COLUMNS; i++)
        it->values[i] = vx_activate(activation, it->values[i]);
}
VX_DEVICE void pieces_activate(int32_t activation, struct slab_pieces *it)
{
    if (activation == VX_ACTIVATION_RELU)
        pieces_activate_as(VX_ACTIVATION_RELU, it);
    else if (activation == VX_ACTIVATION_SILU)
        pieces_activate_as(VX_ACTIVATION_SILU, it);
    else if (activation == VX_ACTIVATION_GELU)
        pieces_activate_as(VX_ACTIVATION_GELU, it);
    else if (activation == VX_ACTIVATION_SIGMOID)
        pieces_activate_as(VX_ACTIVATION_SIGMOID, it);
}

/* In a padded column an infinity times the zero weight is NaN. */
VX_DEVICE void pieces_clear(int32_t used, struct slab_pieces *it)
{
#pragma unroll
    for (int i = 0; i < PIECES * LANE_COLUMNS; i++)
        if (it->column + i % LANE_COLUMNS >= used) it->values[i] = 0.0f;
}

VX_DEVICE void pieces_store(const struct vx_conv_device_args *args,
                            const struct slab_pieces *it)
{
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const float *from = it->values + k * LANE_COLUMNS;
        struct piece_words words;
        words.low = (uint32_t)vx_element_of(from[0]) | (uint32_t)vx_element_of(from[1])
                                                           << 16;
        words.high = (uint32_t)vx_element_of(from[2]) | (uint32_t)vx_element_of(from[3])
                                                            << 16;
        if (it->rows[k] >= 0)
            *(struct piece_words *)((vx_element *)args->out +
                                    (int64_t)it->rows[k] * args->out_stride +
                                    it->column) = words;
    }
}

VX_DEVICE void pieces_store_partial(const struct vx_conv_device_args *args, int32_t group,
                                    const struct slab_pieces *it)
{
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const float *from = it->values + k * LANE_COLUMNS;
        float *to = args->partial + ((int64_t)group * args->n + it->rows[k]) * args->co +
                    it->column;
        if (it->rows[k] < 0) continue;
        to[0] = from[0], to[1] = from[1], to[2] = from[2], to[3] = from[3];
    }
}

VX_DEVICE struct vx_words4 bias_load(const struct vx_conv_device_args *args,
                                     int32_t column)
{
    struct vx_words4 words = {0, 0, 0, 0};
    if (args->bias && column < args->co)
        words = *(const struct vx_words4 *)(args->bias + column);
    return words;
}

VX_DEVICE void slab_finish(const struct vx_conv_device_args *args, int32_t group,
                           const struct vx_words4 *bias, struct slab_pieces *it)
{
    if (it->column >= args->co) return;
    if (args->partial) {
        pieces_store_partial(args, group, it);
        return;
    }
    pieces_add(args, bias, it);
    pieces_activate(args->activation, it);
    if (args->used && it->column + LANE_COLUMNS > args->used)
        pieces_clear(args->used, it);
    pieces_store(args, it);
}

VX_DEVICE void tile_store(const struct vx_conv_device_args *args,
                          const struct stream_tile *tile, const struct tile_about *about,
                          const struct multiply *it, float *slab)
{
    const int32_t column = tile->first_column + (int32_t)(vx_lane() % 8) * LANE_COLUMNS;
#pragma unroll
    for (int m = 0; m < MINE; m++) {
        struct vx_words4 bias, next = bias_load(args, column);
#pragma unroll 1
        for (int s = 0; s < VX_TILE_CO / SLAB; s++) {
            struct slab_pieces pieces;
            bias = next;
            next = bias_load(args, column + (s + 1) * SLAB);
#pragma unroll
            for (int constant = 0; constant < VX_TILE_CO / SLAB; constant++)
                if (constant == s) slab_put(slab, it->sums[m] + constant * (SLAB / 2));
            vx_wave_barrier();
            pieces_get(slab, about->rows[m], &pieces);
            vx_wave_barrier();
            pieces.column = column + s * SLAB;
            slab_finish(args, tile->group, &bias, &pieces);
        }
    }
}

#endif
