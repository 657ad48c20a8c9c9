/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/07_conv_reduce.h"
#include "kernels/activation.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

#define PARTS  4 /* loads in flight for each row: a row of places is read four at a time */
#define ROUNDS 2 /* rows in flight: with four parts each, 8 loads of 16 bytes */

/* Four channels of `out` or `residual`: 8 or 16 bytes. */
struct __attribute__((aligned(4 * sizeof(vx_element)))) reduce_four {
    vx_element x, y, z, w;
};

/* The sum of one row so far: the first part is copied, the others are added. */
struct reduce_sum {
    struct vx_floats4 value;
    int32_t begun;
};

VX_DEVICE void reduce_add(struct reduce_sum *sum, struct vx_floats4 part, int32_t there)
{
    if (!there) return;
    sum->value.x = sum->begun ? sum->value.x + part.x : part.x;
    sum->value.y = sum->begun ? sum->value.y + part.y : part.y;
    sum->value.z = sum->begun ? sum->value.z + part.z : part.z;
    sum->value.w = sum->begun ? sum->value.w + part.w : part.w;
    sum->begun = 1;
}

VX_DEVICE struct reduce_sum reduce_begin(void)
{
    struct reduce_sum sum = {{0.0f, 0.0f, 0.0f, 0.0f}, 0};
    return sum;
}

/* The epilogue of four channels, which are those at residual and out of row 0. */
struct reduce_end {
    struct vx_floats4 bias;
    const struct reduce_four *residual;
    struct reduce_four *out;
    int32_t residual_stride, out_stride; /* of rows, in fours */
    int32_t activation;
    int32_t real; /* real channels from here on; the rest of the four are padding */
};

VX_DEVICE struct vx_floats4 reduce_bias(const float *bias, int32_t column)
{
    struct vx_floats4 none = {0.0f, 0.0f, 0.0f, 0.0f};
    return bias ? ((const struct vx_floats4 *)bias)[column] : none;
}

/* Where these channels of row 0 are; NULL stays NULL. */
VX_DEVICE struct reduce_four *reduce_at(const void *rows, int32_t column)
{
    return rows ? (struct reduce_four *)rows + column : 0;
}

VX_DEVICE void reduce_finish(const struct reduce_end *end, struct vx_floats4 sum,
                             int64_t row)
{
    struct vx_floats4 x = {sum.x + end->bias.x, sum.y + end->bias.y, sum.z + end->bias.z,
                           sum.w + end->bias.w};
    struct reduce_four out;
    if (end->residual) {
        struct reduce_four residual = end->residual[row * end->residual_stride];
        x.x += vx_float_of(residual.x);
        x.y += vx_float_of(residual.y);
        x.z += vx_float_of(residual.z);
        x.w += vx_float_of(residual.w);
    }
    out.x = vx_element_of(end->real > 0 ? vx_activate(end->activation, x.x) : 0.0f);
    out.y = vx_element_of(end->real > 1 ? vx_activate(end->activation, x.y) : 0.0f);
    out.z = vx_element_of(end->real > 2 ? vx_activate(end->activation, x.z) : 0.0f);
    out.w = vx_element_of(end->real > 3 ? vx_activate(end->activation, x.w) : 0.0f);
    end->out[row * end->out_stride] = out;
}

/* True when the row has an offset in [first, last).  A mask has one to eleven words. */
VX_DEVICE int32_t reduce_there(const uint32_t *mask, int32_t first, int32_t last)
{
    uint32_t found = 0;
    for (int32_t word = first / 32; word * 32 < last; word++) {
        uint32_t bits = mask[word];
        if (first > word * 32) bits &= 0xffffffffu << (first - word * 32);
        if (last < word * 32 + 32) bits &= 0xffffffffu >> (word * 32 + 32 - last);
        found |= bits;
    }
    return found != 0;
}

VX_DEVICE void conv_reduce_rows(const struct vx_conv_device_args *args, int64_t row,
                                const struct vx_walk *walk, struct reduce_sum *sums)
{
    int32_t columns = args->co / 4;
    int32_t span = args->v / args->groups;
    for (int32_t g = 0; g < args->groups; g += PARTS) {
        struct vx_floats4 parts[ROUNDS][PARTS];
        int32_t there[ROUNDS][PARTS];
        VX_UNROLL
        for (int32_t k = 0; k < ROUNDS * PARTS; k++) {
            int64_t at = row + k / PARTS * walk->step;
            int32_t group = g + k % PARTS;
            there[k / PARTS][k % PARTS] =
                at < walk->last && group < args->groups &&
                (!args->masks || reduce_there(args->masks + at * args->words,
                                              group * span, group * span + span));
        }
        VX_UNROLL
        for (int32_t k = 0; k < ROUNDS * PARTS; k++) {
            int64_t at = row + k / PARTS * walk->step;
            int64_t four = ((g + k % PARTS) * args->n + at) * columns + walk->column;
            parts[k / PARTS][k % PARTS] = reduce_begin().value;
            if (there[k / PARTS][k % PARTS])
                parts[k / PARTS][k % PARTS] =
                    ((const struct vx_floats4 *)args->partial)[four];
        }
        VX_UNROLL
        for (int32_t k = 0; k < ROUNDS * PARTS; k++)
            reduce_add(&sums[k / PARTS], parts[k / PARTS][k % PARTS],
                       there[k / PARTS][k % PARTS]);
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 3) conv_reduce(struct vx_conv_device_args args)
{
    vx_turn();
    int32_t columns = args.co / 4;
    struct vx_walk walk = vx_walk_begin(args.n, args.co, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        struct reduce_end end = {reduce_bias(args.bias, walk.column),
                                 reduce_at(args.residual, walk.column),
                                 reduce_at(args.out, walk.column),
                                 args.residual_stride / 4,
                                 args.out_stride / 4,
                                 args.activation,
                                 (args.used ? args.used : args.co) - walk.column * 4};
        for (int64_t row = walk.row; row < walk.last; row += ROUNDS * walk.step) {
            struct reduce_sum sums[ROUNDS];
            VX_UNROLL
            for (int32_t k = 0; k < ROUNDS; k++) sums[k] = reduce_begin();
            conv_reduce_rows(&args, row, &walk, sums);
            VX_UNROLL
            for (int32_t k = 0; k < ROUNDS; k++) {
                int64_t at = row + k * walk.step;
                if (at < walk.last) reduce_finish(&end, sums[k].value, at);
            }
        }
    }
}

struct __attribute__((aligned(16))) places4 {
    int32_t at[PARTS];
};

VX_DEVICE void pair_reduce_rows(const struct vx_pair_reduce_args *args, int64_t row,
                                const struct vx_walk *walk, struct reduce_sum *sums)
{
    int32_t columns = args->co / 4;
    for (int32_t v = 0; v < args->v; v += PARTS) {
        struct vx_floats4 parts[ROUNDS][PARTS];
        struct places4 places[ROUNDS];
        VX_UNROLL
        for (int32_t k = 0; k < ROUNDS; k++) {
            int64_t at = row + k * walk->step;
            struct places4 none = {{-1, -1, -1, -1}};
            places[k] = none;
            if (at < walk->last)
                places[k] =
                    *(const struct places4 *)(args->places + at * args->nbr_stride + v);
        }
        VX_UNROLL
        for (int32_t k = 0; k < ROUNDS * PARTS; k++) {
            int32_t *place = &places[k / PARTS].at[k % PARTS];
            if (v + k % PARTS >= args->v) *place = -1; /* between V and the stride */
            parts[k / PARTS][k % PARTS] = reduce_begin().value;
            if (*place >= 0)
                parts[k / PARTS][k % PARTS] =
                    ((const struct vx_floats4 *)
                         args->partial)[(int64_t)*place * columns + walk->column];
        }
        VX_UNROLL
        for (int32_t k = 0; k < ROUNDS * PARTS; k++)
            reduce_add(&sums[k / PARTS], parts[k / PARTS][k % PARTS],
                       places[k / PARTS].at[k % PARTS] >= 0);
    }
}

VX_KERNEL(VX_POINTWISE_THREADS, 3) pair_reduce(struct vx_pair_reduce_args args)
{
    vx_turn();
    int32_t columns = args.co / 4;
    struct vx_walk walk = vx_walk_begin(args.n, args.co, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        struct reduce_end end = {reduce_bias(args.bias, walk.column),
                                 reduce_at(args.residual, walk.column),
                                 reduce_at(args.out, walk.column),
                                 args.residual_stride / 4,
                                 args.out_stride / 4,
                                 args.activation,
                                 (args.used ? args.used : args.co) - walk.column * 4};
        for (int64_t row = walk.row; row < walk.last; row += ROUNDS * walk.step) {
            struct reduce_sum sums[ROUNDS];
            VX_UNROLL
            for (int32_t k = 0; k < ROUNDS; k++) sums[k] = reduce_begin();
            pair_reduce_rows(&args, row, &walk, sums);
            VX_UNROLL
            for (int32_t k = 0; k < ROUNDS; k++) {
                int64_t at = row + k * walk.step;
                if (at < walk.last) reduce_finish(&end, sums[k].value, at);
            }
        }
    }
}
