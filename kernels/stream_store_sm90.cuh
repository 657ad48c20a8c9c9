/* stream_store_sm90 - the end of a tile of a stream: from sums in registers to rows in memory.
 *
 * Private to tile_stream_sm90.cuh.  The products leave a lane with two columns of every
 * eight, of two rows; four lanes share a row.  Bias, residual and activation are added
 * there.  Then the four exchange what they have of 32 columns, and each stores eight that
 * lie side by side.
 *
 * Measured (H200, shells 512:128, 128:128, 256:64): 1075, 86, 145 us with the sums passed
 * through shared memory, or here in a loop over pieces of 32 columns, which moves them and
 * waits for itself; 955, 73, 126 us without a loop.  A costly activation has the loop, as its
 * code would be long, and so has a tile with columns that are not used.
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
    uint32_t held;  /* that the stage is full whose products may still run; 0 none */
    float sums[MINE][SUMS];
};

#define PIECE  32 /* columns */
#define PIECES (VX_TILE_CO / PIECE)
#define VALUES 16 /* of a lane in a piece: 4 times 2 columns of 2 rows */

/* A tile of so few columns asks for each piece which are the layer's own, so that 48 channels are
 * no slower than 64. */
#define NARROW (PIECES <= 2)

/* Pieces that a bias is loaded ahead, without a residual: as many as there are registers for. */
#if VX_E4M3
#define BIAS_AHEAD 1
#else
#define BIAS_AHEAD 2
#endif

/* The two rows of a lane, of 16 that the warp has of 64; -1 none. */
struct lane_rows {
    int32_t number[2];
};

/* A piece of 16 rows, as the products leave it: 4j and 4j + 1 are columns 8j + 2q and the
 * one behind it of the upper row, 4j + 2 and 4j + 3 the same of the lower one, 8 below;
 * q = lane % 4. */
struct piece {
    int32_t column; /* of the tile, the first */
    float values[VALUES];
};

struct __attribute__((aligned(8))) float_pair {
    float low, high;
};
/* What is added to a piece. */
struct piece_bias {
    struct float_pair pairs[4];
};
struct piece_residual {
    struct vx_words4 eights[2]; /* of each row eight columns, 8q to 8q + 7 */
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

VX_DEVICE struct lane_rows rows_of(int32_t row)
{
    struct lane_rows rows;
    rows.number[0] = (int32_t)vx_shuffle((uint32_t)row, vx_lane() / 4);
    rows.number[1] = (int32_t)vx_shuffle((uint32_t)row, vx_lane() / 4 + 8);
    return rows;
}

/* Bytes from the beginning of a tensor to the lane's eight columns of a tile's first piece.
 * Worked out for each piece: a compiler that sees that they are the same for all keeps an
 * address for each row and tensor, and has no registers left for them. */
VX_DEVICE uint64_t eight_of(const struct stream_tile *tile, int32_t row, int32_t stride)
{
    asm volatile("" : "+r"(row));
    const uint32_t eight = (uint32_t)tile->first_column / 8 + vx_lane() % 4;
    return (uint64_t)((uint32_t)row * (uint32_t)(stride / 8) + eight) * 16;
}

/* inside: a constant; all columns are some of the layer's. */
VX_DEVICE void bias_load(const struct vx_conv_device_args *args,
                         const struct stream_tile *tile, int32_t column, const int inside,
                         struct piece_bias *bias)
{
    const int32_t first = tile->first_column + column;
    const float *from = args->bias + first + 2 * (int32_t)(vx_lane() % 4);
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (inside || first + 8 * j < args->co)
            bias->pairs[j] = *(const struct float_pair *)(from + 8 * j);
}

VX_DEVICE struct piece_residual residual_load(const struct vx_conv_device_args *args,
                                              const struct stream_tile *tile,
                                              const struct lane_rows *rows,
                                              int32_t column, const int inside)
{
    const int32_t eight = tile->first_column + column + 8 * (int32_t)(vx_lane() % 4);
    struct piece_residual residual = {};
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (rows->number[half] >= 0 && (inside || eight < args->co))
            residual.eights[half] =
                *(const struct vx_words4 *)((const char *)args->residual +
                                            eight_of(tile, rows->number[half],
                                                     args->residual_stride) +
                                            column * (int32_t)sizeof(vx_element));
    return residual;
}

VX_DEVICE void residual_add(const struct piece_residual *residual, struct piece *piece)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const struct vx_words4 *eight = &residual->eights[half];
        uint32_t words[4] = {eight->x, eight->y, eight->z, eight->w};
        float *values = piece->values + 2 * half;
        quad_turn(words);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            values[4 * j] += vx_float_of((vx_element)(words[j] & 0xffffu));
            values[4 * j + 1] += vx_float_of((vx_element)(words[j] >> 16));
        }
    }
}

VX_DEVICE void bias_add(const struct piece_bias *bias, struct piece *piece)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        piece->values[4 * j] += bias->pairs[j].low;
        piece->values[4 * j + 1] += bias->pairs[j].high;
        piece->values[4 * j + 2] += bias->pairs[j].low;
        piece->values[4 * j + 3] += bias->pairs[j].high;
    }
}

/* `activation` is a constant: it is chosen once for all values. */
VX_DEVICE void piece_activate_as(const int32_t activation, struct piece *piece)
{
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        piece->values[i] = vx_activate(activation, piece->values[i]);
}

VX_DEVICE void piece_activate(int32_t activation, struct piece *piece)
{
    if (activation == VX_ACTIVATION_RELU)
        piece_activate_as(VX_ACTIVATION_RELU, piece);
    else if (activation == VX_ACTIVATION_SILU)
        piece_activate_as(VX_ACTIVATION_SILU, piece);
    else if (activation == VX_ACTIVATION_GELU)
        piece_activate_as(VX_ACTIVATION_GELU, piece);
    else if (activation == VX_ACTIVATION_SIGMOID)
        piece_activate_as(VX_ACTIVATION_SIGMOID, piece);
}

/* In a padded column an infinity times the zero weight is NaN. */
VX_DEVICE void piece_clear(const struct stream_tile *tile, int32_t used,
                           struct piece *piece)
{
    const int32_t pair =
        tile->first_column + piece->column + 2 * (int32_t)(vx_lane() % 4);
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        if (pair + i / 4 * 8 + i % 2 >= used) piece->values[i] = 0.0f;
}

/* there: the lane's eight columns are some of the layer's. */
VX_DEVICE void piece_store(const struct vx_conv_device_args *args,
                           const struct stream_tile *tile, const struct lane_rows *rows,
                           const struct piece *piece, int there)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            words[j] = vx_pair_of(piece->values[4 * j + 2 * half],
                                  piece->values[4 * j + 2 * half + 1]);
        quad_turn(words);
        const struct vx_words4 out = {words[0], words[1], words[2], words[3]};
        if (rows->number[half] >= 0 && there)
            *(struct vx_words4 *)((char *)args->out +
                                  eight_of(tile, rows->number[half], args->out_stride) +
                                  piece->column * (int32_t)sizeof(vx_element)) = out;
    }
}

VX_DEVICE void piece_store_partial(const struct vx_conv_device_args *args,
                                   const struct stream_tile *tile,
                                   const struct lane_rows *rows, const int inside,
                                   const struct piece *piece)
{
    const int32_t pair = tile->first_column + 2 * (int32_t)(vx_lane() % 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t row = (int64_t)tile->group * args->n + rows->number[half];
        float *to = args->partial + (row * args->co + pair) + piece->column;
        if (rows->number[half] < 0) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const struct float_pair values = {piece->values[4 * j + 2 * half],
                                              piece->values[4 * j + 2 * half + 1]};
            if (inside || tile->first_column + piece->column + 8 * j < args->co)
                *(struct float_pair *)(to + 8 * j) = values;
        }
    }
}

/* Loaded where it is used: to hold it for the next piece too there are no registers left. */
VX_DEVICE void piece_scale(const struct vx_conv_device_args *args,
                           const struct stream_tile *tile, struct piece *piece)
{
#if VX_E4M3
    const int32_t column = tile->first_column + piece->column;
    const float *from = args->scale + column + 2 * (int32_t)(vx_lane() % 4);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (column + 8 * j >= args->co) break;
        const struct float_pair scale = *(const struct float_pair *)(from + 8 * j);
        piece->values[4 * j] *= scale.low;
        piece->values[4 * j + 1] *= scale.high;
        piece->values[4 * j + 2] *= scale.low;
        piece->values[4 * j + 3] *= scale.high;
    }
#endif
}

/* `at` is a constant: it counts pieces of all rows, those of the same columns one after the
 * other. */
VX_DEVICE void sums_take(const struct multiply *it, const int at, struct piece *piece)
{
    piece->column = at / MINE * PIECE;
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        piece->values[i] = it->sums[at % MINE][at / MINE * VALUES + i];
}

enum store_terms { STORE_SUMS, STORE_BIAS, STORE_BIAS_RESIDUAL };

/* A tile whose columns are all used: without a loop, so that no sum is moved, and without
 * questions that have one answer for all pieces.  terms: a constant; what is added. */
VX_DEVICE void whole_store(const struct vx_conv_device_args *args,
                           const struct stream_tile *tile, const struct lane_rows *rows,
                           const struct multiply *it, const enum store_terms terms)
{
    const int bias = terms != STORE_SUMS, residual = terms == STORE_BIAS_RESIDUAL;
    const int inside = !NARROW;
    const int32_t columns = args->co - tile->first_column;
    const int ahead = residual ? BIAS_AHEAD / 2 : BIAS_AHEAD;
    struct piece_bias biases[3] = {};
    struct piece_residual residuals[2] = {};
#pragma unroll
    for (int first = 0; first < ahead && first < PIECES; first++)
        if (bias) bias_load(args, tile, first * PIECE, inside, &biases[first]);
    if (residual) residuals[0] = residual_load(args, tile, &rows[0], 0, inside);
#pragma unroll
    for (int at = 0; at < MINE * PIECES; at++) {
        const int later = at / MINE + ahead, next = at + 1;
        struct piece piece;
        sums_take(it, at, &piece);
        if (bias && at % MINE == 0 && later < PIECES)
            bias_load(args, tile, later * PIECE, inside, &biases[later % 3]);
        if (residual && next < MINE * PIECES)
            residuals[next % 2] = residual_load(args, tile, &rows[next % MINE],
                                                next / MINE * PIECE, inside);
        piece_scale(args, tile, &piece);
        if (bias) bias_add(&biases[at / MINE % 3], &piece);
        if (residual) residual_add(&residuals[at % 2], &piece);
        if (args->activation == VX_ACTIVATION_RELU)
            piece_activate_as(VX_ACTIVATION_RELU, &piece);
        piece_store(args, tile, &rows[at % MINE], &piece,
                    inside || piece.column + 8 * (int32_t)(vx_lane() % 4) < columns);
    }
}

VX_DEVICE void whole_store_partial(const struct vx_conv_device_args *args,
                                   const struct stream_tile *tile,
                                   const struct lane_rows *rows,
                                   const struct multiply *it)
{
#pragma unroll
    for (int at = 0; at < MINE * PIECES; at++) {
        struct piece piece;
        sums_take(it, at, &piece);
        piece_scale(args, tile, &piece);
        piece_store_partial(args, tile, &rows[at % MINE], !NARROW, &piece);
    }
}

/* Any tile, one piece after the other by the same code, which is long. */
VX_DEVICE void pieces_store(const struct vx_conv_device_args *args,
                            const struct stream_tile *tile, const struct lane_rows *rows,
                            const struct multiply *it)
{
    const int32_t columns = args->co - tile->first_column;
#pragma unroll 1
    for (int at = 0; at < MINE * PIECES && at / MINE * PIECE < columns; at++) {
        const struct lane_rows mine = at % MINE ? rows[MINE - 1] : rows[0];
        struct piece piece;
        struct piece_bias bias = {};
        struct piece_residual residual = {};
#pragma unroll
        for (int constant = 0; constant < MINE * PIECES; constant++)
            if (constant == at) sums_take(it, constant, &piece);
        if (args->bias) bias_load(args, tile, piece.column, 0, &bias);
        if (args->residual) residual = residual_load(args, tile, &mine, piece.column, 0);
        piece_scale(args, tile, &piece);
        if (args->partial) {
            piece_store_partial(args, tile, &mine, 0, &piece);
            continue;
        }
        if (args->bias) bias_add(&bias, &piece);
        if (args->residual) residual_add(&residual, &piece);
        piece_activate(args->activation, &piece);
        if (args->used && tile->first_column + piece.column + PIECE > args->used)
            piece_clear(tile, args->used, &piece);
        piece_store(args, tile, &mine, &piece,
                    piece.column + 8 * (int32_t)(vx_lane() % 4) < columns);
    }
}

/* All columns of the tile are used, and the layer's own; of a narrow one those that are its own. */
VX_DEVICE int tile_whole(const struct vx_conv_device_args *args,
                         const struct stream_tile *tile)
{
    const int32_t last = tile->first_column + VX_TILE_CO;
    const int32_t end = NARROW && last > args->co ? args->co : last;
    return end <= args->co && (end <= args->used || !args->used || args->partial);
}

VX_DEVICE void tile_store(const struct vx_conv_device_args *args,
                          const struct stream_tile *given, const struct tile_about *about,
                          const struct multiply *it)
{
    struct lane_rows rows[MINE];
    struct stream_tile copy = *given;
    const struct stream_tile *tile = &copy;
    /* What follows from the column must not be worked out before the products and kept. */
    asm volatile("" : "+r"(copy.first_column));
#pragma unroll
    for (int m = 0; m < MINE; m++) rows[m] = rows_of(about->rows[m]);
    if (!tile_whole(args, tile) || args->activation > VX_ACTIVATION_RELU ||
        (args->residual && !args->bias))
        pieces_store(args, tile, rows, it);
    else if (args->partial)
        whole_store_partial(args, tile, rows, it);
    else if (args->residual)
        whole_store(args, tile, rows, it, STORE_BIAS_RESIDUAL);
    else if (args->bias)
        whole_store(args, tile, rows, it, STORE_BIAS);
    else
        whole_store(args, tile, rows, it, STORE_SUMS);
}

#endif
