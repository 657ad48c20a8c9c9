/* stream_store_sm90 - the end of a tile of a stream: from sums in registers to rows in memory.
 *
 * Private to tile_stream_sm90.cuh.  The products leave a lane with two columns of every
 * eight, of two rows; four lanes share a row.  Bias, residual and activation are added
 * there.  Then the four exchange what they have of 32 columns, and each stores eight that
 * lie side by side.
 *
 * Measured (H200, shells 512:128, 128:128, 256:64): 1075, 86, 145 us with the sums passed
 * through shared memory, or here in a loop over pieces of 32 columns, which moves them and
 * waits for itself; 955, 73, 126 us without a loop.  A costly activation has the loop: its
 * code would be long.
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

#define PIECE  32 /* columns */
#define PIECES (VX_TILE_CO / PIECE)
#define VALUES 16 /* of a lane in a piece: 4 times 2 columns of 2 rows */

/* A piece of 16 rows, as the products leave it: 4j and 4j + 1 are columns 8j + 2q and the
 * one behind it of the upper row, 4j + 2 and 4j + 3 the same of the lower one, 8 below;
 * q = lane % 4. */
struct piece {
    int32_t rows[2]; /* -1 none */
    int32_t column;  /* the first */
    float values[VALUES];
};

struct __attribute__((aligned(8))) float_pair {
    float low, high;
};
/* What is added to a piece, loaded while the one before it is finished. */
struct piece_terms {
    struct float_pair bias[4];
    struct vx_words4 residual[2]; /* of each row eight columns, 8q to 8q + 7 */
};

/* Word p of lane q of four becomes word q of lane p. */
VX_DEVICE void quad_turn(uint32_t words[4])
{
    const uint32_t odd = vx_lane() & 1u, high = vx_lane() & 2u;
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        const uint32_t got = vx_shuffle_xor(odd ? words[k] : words[k + 1], 1);
        words[k] = odd ? got : words[k];
        words[k + 1] = odd ? words[k + 1] : got;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const uint32_t got = vx_shuffle_xor(high ? words[k] : words[k + 2], 2);
        words[k] = high ? got : words[k];
        words[k + 2] = high ? words[k + 2] : got;
    }
}

/* `at` counts pieces of all rows, those of the same columns one after the other. */
VX_DEVICE void piece_place(const struct stream_tile *tile, const struct tile_about *about,
                           int at, struct piece *piece)
{
    const int32_t rows = at % MINE ? about->rows[MINE - 1] : about->rows[0];
    piece->column = tile->first_column + at / MINE * PIECE;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++)
        piece->rows[half] = (int32_t)vx_shuffle((uint32_t)rows, vx_lane() / 4 + 8 * half);
}

VX_DEVICE void terms_load(const struct vx_conv_device_args *args,
                          const struct piece *piece, struct piece_terms *terms)
{
    const int32_t pair = piece->column + 2 * (int32_t)(vx_lane() % 4);
    const int32_t eight = piece->column + 8 * (int32_t)(vx_lane() % 4);
    if (args->bias) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (piece->column + 8 * j < args->co)
                terms->bias[j] = *(const struct float_pair *)(args->bias + pair + 8 * j);
    }
    if (!args->residual || eight >= args->co) return;
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (piece->rows[half] >= 0)
            terms->residual[half] =
                *(const struct vx_words4 *)((const vx_element *)args->residual +
                                            (int64_t)piece->rows[half] *
                                                args->residual_stride +
                                            eight);
}

VX_DEVICE void residual_add(const struct vx_words4 *residual, float *values)
{
    uint32_t words[4] = {residual->x, residual->y, residual->z, residual->w};
    quad_turn(words);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        values[4 * j] += vx_float_of((vx_element)(words[j] & 0xffffu));
        values[4 * j + 1] += vx_float_of((vx_element)(words[j] >> 16));
    }
}

VX_DEVICE void terms_add(const struct vx_conv_device_args *args,
                         const struct piece_terms *terms, struct piece *piece)
{
    if (args->bias) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            piece->values[4 * j] += terms->bias[j].low;
            piece->values[4 * j + 1] += terms->bias[j].high;
            piece->values[4 * j + 2] += terms->bias[j].low;
            piece->values[4 * j + 3] += terms->bias[j].high;
        }
    }
    if (!args->residual) return;
    residual_add(&terms->residual[0], piece->values);
    residual_add(&terms->residual[1], piece->values + 2);
}

/* `activation` is a constant: it is chosen once for all values. */
VX_DEVICE void piece_activate_as(const int32_t activation, struct piece *piece)
{
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        piece->values[i] = vx_activate(activation, piece->values[i]);
}

/* In a padded column an infinity times the zero weight is NaN. */
VX_DEVICE void piece_clear(int32_t used, struct piece *piece)
{
    const int32_t pair = piece->column + 2 * (int32_t)(vx_lane() % 4);
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        if (pair + i / 4 * 8 + i % 2 >= used) piece->values[i] = 0.0f;
}

VX_DEVICE void piece_store(const struct vx_conv_device_args *args,
                           const struct piece *piece)
{
    const int32_t eight = piece->column + 8 * (int32_t)(vx_lane() % 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            words[j] = vx_pair_of(piece->values[4 * j + 2 * half],
                                  piece->values[4 * j + 2 * half + 1]);
        quad_turn(words);
        const struct vx_words4 out = {words[0], words[1], words[2], words[3]};
        if (piece->rows[half] >= 0 && eight < args->co)
            *(struct vx_words4 *)((vx_element *)args->out +
                                  (int64_t)piece->rows[half] * args->out_stride + eight) =
                out;
    }
}

VX_DEVICE void piece_store_partial(const struct vx_conv_device_args *args, int32_t group,
                                   const struct piece *piece)
{
    const int32_t pair = piece->column + 2 * (int32_t)(vx_lane() % 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float *to = args->partial +
                    ((int64_t)group * args->n + piece->rows[half]) * args->co + pair;
        if (piece->rows[half] < 0) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const struct float_pair values = {piece->values[4 * j + 2 * half],
                                              piece->values[4 * j + 2 * half + 1]};
            if (piece->column + 8 * j < args->co)
                *(struct float_pair *)(to + 8 * j) = values;
        }
    }
}

VX_DEVICE void piece_end(const struct vx_conv_device_args *args, struct piece *piece)
{
    if (args->used && piece->column + PIECE > args->used) piece_clear(args->used, piece);
    piece_store(args, piece);
}

#if VX_E4M3
/* Loaded where it is used: to hold it for the next piece too there are no registers left. */
VX_DEVICE void piece_scale(const struct vx_conv_device_args *args, struct piece *piece)
{
    const float *from = args->scale + piece->column + 2 * (int32_t)(vx_lane() % 4);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (piece->column + 8 * j >= args->co) break;
        const struct float_pair scale = *(const struct float_pair *)(from + 8 * j);
        piece->values[4 * j] *= scale.low;
        piece->values[4 * j + 1] *= scale.high;
        piece->values[4 * j + 2] *= scale.low;
        piece->values[4 * j + 3] *= scale.high;
    }
}
#endif

/* `at` is a constant. */
VX_DEVICE void sums_take(const struct multiply *it, const int at, struct piece *piece)
{
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        piece->values[i] = it->sums[at % MINE][at / MINE * VALUES + i];
}

/* Without a loop, so that no sum is moved: where the activation costs next to nothing. */
VX_DEVICE void tile_store_light(const struct vx_conv_device_args *args,
                                const struct stream_tile *tile,
                                const struct tile_about *about, const struct multiply *it)
{
    struct piece piece, next;
    struct piece_terms terms, next_terms = {};
    piece_place(tile, about, 0, &next);
    terms_load(args, &next, &next_terms);
#pragma unroll
    for (int at = 0; at < MINE * PIECES; at++) {
        piece = next;
        terms = next_terms;
        if (piece.column >= args->co) return;
        if (at + 1 < MINE * PIECES) {
            piece_place(tile, about, at + 1, &next);
            terms_load(args, &next, &next_terms);
        }
        sums_take(it, at, &piece);
#if VX_E4M3
        piece_scale(args, &piece);
#endif
        if (args->partial) {
            piece_store_partial(args, tile->group, &piece);
            continue;
        }
        terms_add(args, &terms, &piece);
        if (args->activation == VX_ACTIVATION_RELU)
            piece_activate_as(VX_ACTIVATION_RELU, &piece);
        piece_end(args, &piece);
    }
}

/* One piece after the other by the same code, which is long. */
VX_DEVICE void tile_store_heavy(const struct vx_conv_device_args *args,
                                const struct stream_tile *tile,
                                const struct tile_about *about, const struct multiply *it)
{
    struct piece piece, next;
    struct piece_terms terms, next_terms = {};
    piece_place(tile, about, 0, &next);
    terms_load(args, &next, &next_terms);
#pragma unroll 1
    for (int at = 0; at < MINE * PIECES; at++) {
        piece = next;
        terms = next_terms;
        if (piece.column >= args->co) return;
        piece_place(tile, about, at + 1, &next);
        terms_load(args, &next, &next_terms);
#pragma unroll
        for (int constant = 0; constant < MINE * PIECES; constant++)
            if (constant == at) sums_take(it, constant, &piece);
#if VX_E4M3
        piece_scale(args, &piece);
#endif
        terms_add(args, &terms, &piece);
        if (args->activation == VX_ACTIVATION_SILU)
            piece_activate_as(VX_ACTIVATION_SILU, &piece);
        else if (args->activation == VX_ACTIVATION_GELU)
            piece_activate_as(VX_ACTIVATION_GELU, &piece);
        else
            piece_activate_as(VX_ACTIVATION_SIGMOID, &piece);
        piece_end(args, &piece);
    }
}

VX_DEVICE void tile_store(const struct vx_conv_device_args *args,
                          const struct stream_tile *tile, const struct tile_about *about,
                          const struct multiply *it)
{
    if (args->partial || args->activation <= VX_ACTIVATION_RELU)
        tile_store_light(args, tile, about, it);
    else
        tile_store_heavy(args, tile, about, it);
}

#endif
