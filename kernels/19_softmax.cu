/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/19_softmax.h"
#include "kernels/activation.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

/* A row, and this lane's part of it: vectors lane, lane + lanes, ... up to `columns`. */
struct softmax_row {
    int64_t base; /* its first vector */
    uint32_t lanes, lane;
    int32_t columns; /* vectors with real channels; 0: there is no such row */
    int32_t c;
};

/* Lanes without a row go along, because shuffles need all lanes of a wave. */
VX_DEVICE struct softmax_row softmax_begin(const struct vx_softmax_device_args *args,
                                           int64_t *index)
{
    struct softmax_row row;
    row.lanes = VX_LAYER_NORM_LANES(args->cp);
    row.lane = vx_thread() % row.lanes;
    row.c = args->c;
    *index = (int64_t)vx_block_x() * (VX_POINTWISE_THREADS / row.lanes) +
             vx_thread() / row.lanes;
    row.base = *index * (args->cp / VX_LANES);
    row.columns = *index < args->n ? (args->c + VX_LANES - 1) / VX_LANES : 0;
    return row;
}

/* Minus infinity: below every number, and equal to itself. */
VX_DEVICE float softmax_least(void)
{
    return vx_float_of_bits(0xff800000u);
}

/* The largest number of the row; a NaN is passed over and shows itself in the sum. */
VX_DEVICE float softmax_most(const struct softmax_row *row, const void *in)
{
    float most = softmax_least();
    for (int32_t column = (int32_t)row->lane; column < row->columns;
         column += (int32_t)row->lanes) {
        float x[VX_LANES];
        vx_vector_unpack(vx_vector_load(in, row->base + column), x);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++)
            most = column * VX_LANES + e < row->c && x[e] > most ? x[e] : most;
    }
    for (uint32_t mask = 1; mask < row->lanes; mask *= 2) {
        float other = vx_shuffle_xor_float(most, mask);
        most = other > most ? other : most;
    }
    return most;
}

/* A tree: every lane gets the same bits. */
VX_DEVICE float softmax_sum(const struct softmax_row *row, const void *in, float most)
{
    float sum = 0.0f;
    for (int32_t column = (int32_t)row->lane; column < row->columns;
         column += (int32_t)row->lanes) {
        float x[VX_LANES];
        vx_vector_unpack(vx_vector_load(in, row->base + column), x);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++)
            sum += column * VX_LANES + e < row->c ? vx_exp(x[e] - most) : 0.0f;
    }
    for (uint32_t mask = 1; mask < row->lanes; mask *= 2)
        sum += vx_shuffle_xor_float(sum, mask);
    return sum;
}

VX_KERNEL(VX_POINTWISE_THREADS, 4) softmax(struct vx_softmax_device_args args)
{
    vx_turn();
    int64_t index;
    struct softmax_row row = softmax_begin(&args, &index);
    float most = softmax_most(&row, args.in);
    float sum = softmax_sum(&row, args.in, most);
    int32_t columns = index < args.n ? args.cp / VX_LANES : 0;
    for (int32_t column = (int32_t)row.lane; column < columns;
         column += (int32_t)row.lanes) {
        float x[VX_LANES];
        vx_vector_unpack(vx_vector_load(args.in, row.base + column), x);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) {
            float y = vx_exp(x[e] - most) / sum;
            x[e] = column * VX_LANES + e < args.c ? y : 0.0f;
        }
        vx_vector_store(args.out, row.base + column, vx_vector_pack(x));
    }
}

/* A channel and its number. */
struct argmax_best {
    float most;
    int32_t channel;
};

/* NaN is above every number; of equals the lower channel wins. */
VX_DEVICE struct argmax_best argmax_join(struct argmax_best a, struct argmax_best b)
{
    int32_t a_nan = a.most != a.most, b_nan = b.most != b.most;
    int32_t above = b_nan ? !a_nan : !a_nan && b.most > a.most;
    int32_t equal = b_nan ? a_nan : !a_nan && b.most == a.most;
    return above || (equal && b.channel < a.channel) ? b : a;
}

VX_KERNEL(VX_POINTWISE_THREADS, 4) argmax(struct vx_softmax_device_args args)
{
    vx_turn();
    int64_t index;
    struct softmax_row row = softmax_begin(&args, &index);
    struct argmax_best best = {softmax_least(), 0x7fffffff};
    for (int32_t column = (int32_t)row.lane; column < row.columns;
         column += (int32_t)row.lanes) {
        float x[VX_LANES];
        vx_vector_unpack(vx_vector_load(args.in, row.base + column), x);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) {
            struct argmax_best one = {x[e], column * VX_LANES + e};
            if (one.channel < args.c) best = argmax_join(best, one);
        }
    }
    for (uint32_t mask = 1; mask < row.lanes; mask *= 2) {
        struct argmax_best other = {
            vx_shuffle_xor_float(best.most, mask),
            (int32_t)vx_shuffle_xor((uint32_t)best.channel, mask)};
        best = argmax_join(best, other);
    }
    if (row.lane == 0 && index < args.n) {
        int64_t to = args.rows ? args.rows[index] : index;
        ((int32_t *)args.out)[to] = best.channel;
    }
}
