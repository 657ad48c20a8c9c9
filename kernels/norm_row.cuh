/* norm_row - what the kernels that have layer norm do with a vector of a row.
 *
 * A row belongs to a group of VX_LAYER_NORM_LANES(cp) lanes; lane l has the vectors
 * l, l + lanes, ...  The lanes' sums are added in a tree, neighbours first: who divides a row
 * and adds so gives it the same bits.
 *
 * Owner    -
 * Thread   device code, every lane of the wave.
 * Limits   as layer norm's, 12_norm.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_NORM_ROW_CUH
#define VX_KERNELS_NORM_ROW_CUH

#include "kernels/12_norm.h"
#include "kernels/activation.cuh"
#include "kernels/vector.cuh"

/* The sum of a vector whose first channel is `first`.  Channels from C on count as 0, so
 * that only real ones are in the sum. */
VX_DEVICE float norm_sum(struct vx_words4 words, int32_t first, int32_t c)
{
    float x[VX_LANES], sum = 0.0f;
    vx_vector_unpack(words, x);
    if (first + VX_LANES > c) {
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) x[e] = first + e < c ? x[e] : 0.0f;
    }
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) sum += x[e];
    return sum;
}

VX_DEVICE float norm_squares(struct vx_words4 words, int32_t first, int32_t c, float mean)
{
    float x[VX_LANES], sum = 0.0f;
    vx_vector_unpack(words, x);
    if (first + VX_LANES > c) { /* their difference is 0 */
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) x[e] = first + e < c ? x[e] : mean;
    }
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) sum += (x[e] - mean) * (x[e] - mean);
    return sum;
}

/* Loads a vector of weight or bias.  They have C numbers, not Cp: a vector that reaches
 * over the end is read one by one. */
VX_DEVICE void norm_load(const float *base, int32_t first, int32_t c, float none,
                         float *to)
{
    if (base && first + VX_LANES <= c) {
        vx_floats_load(base, first, to);
        return;
    }
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++)
        to[e] = base && first + e < c ? base[first + e] : none;
}

struct norm_affine {
    float weight[VX_LANES], bias[VX_LANES];
    int32_t activation; /* best a constant */
};

VX_DEVICE struct norm_affine
norm_affine_load(const struct vx_layer_norm_device_args *args, int32_t first)
{
    struct norm_affine affine;
    affine.activation = args->activation;
    norm_load(args->weight, first, args->c, 1.0f, affine.weight);
    norm_load(args->bias, first, args->c, 0.0f, affine.bias);
    return affine;
}

struct norm_row {
    float mean, scale;
};

VX_DEVICE struct vx_words4 norm_apply(const struct vx_layer_norm_device_args *args,
                                      struct vx_words4 words, int32_t first,
                                      struct norm_row row,
                                      const struct norm_affine *affine)
{
    float x[VX_LANES];
    vx_vector_unpack(words, x);
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) {
        x[e] = (x[e] - row.mean) * row.scale * affine->weight[e] + affine->bias[e];
        x[e] = vx_activate(affine->activation, x[e]);
    }
    if (first + VX_LANES > args->c) {
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++)
            if (first + e >= args->c) x[e] = 0.0f;
    }
    return vx_vector_pack(x);
}

/* The sum over an aligned group of `lanes`: a tree, and every lane gets the same bits. */
VX_DEVICE float norm_group_sum(float value, uint32_t lanes)
{
    for (uint32_t mask = 1; mask < lanes; mask *= 2)
        value += vx_shuffle_xor_float(value, mask);
    return value;
}

#endif
