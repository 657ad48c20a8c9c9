/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/06_conv_masked.h"
#include "kernels/13_elementwise.h"

void vx_conv_masked_ref(const void *args, enum vx_number type);

/* One row of `in` by one column of one offset's weights. */
static double product(const struct vx_conv_device_args *a, enum vx_number type, int32_t v,
                      int64_t from, int32_t column)
{
    double sum = 0;
    for (int32_t ci = 0; ci < a->ci; ci++)
        sum += vx_number_ref_read(a->in, type, from * a->ci + ci) *
               vx_number_ref_read(a->weight, type,
                                  ((int64_t)v * a->ci + ci) * a->co + column);
    return sum;
}

/* The sum over the offsets of a group, bit masks and tiles aside. */
static double group_sum(const struct vx_conv_device_args *a, enum vx_number type,
                        int64_t row, int32_t group, int32_t column)
{
    int32_t per_group = a->v / a->groups;
    double sum = 0;
    for (int32_t v = group * per_group; v < (group + 1) * per_group; v++) {
        int64_t from = a->nbr ? a->nbr[row * a->nbr_stride + v] : row;
        if (from >= 0) sum += product(a, type, v, from, column);
    }
    return sum;
}

static void row_finish(const struct vx_conv_device_args *a, enum vx_number type,
                       int64_t row, int32_t column)
{
    int64_t at = row * a->co + column;
    double sum = group_sum(a, type, row, 0, column);
    if (a->bias) sum += a->bias[column];
    if (a->residual) sum += vx_number_ref_read(a->residual, type, at);
    sum = vx_activation_ref_one((enum vx_activation)a->activation, sum);
    if (a->used && column >= a->used) sum = 0;
    vx_number_ref_write(a->out, type, at, sum);
}

static void pairs_sum(const struct vx_conv_device_args *a, enum vx_number type)
{
    for (int32_t v = 0; v < a->v; v++)
        for (int64_t p = a->starts[v]; p < a->starts[v + 1]; p++)
            for (int32_t column = 0; column < a->co; column++)
                a->partial[p * a->co + column] =
                    (float)product(a, type, v, a->in_rows[p], column);
}

void vx_conv_masked_ref(const void *args, enum vx_number type)
{
    const struct vx_conv_device_args *a = args;
    if (a->starts) {
        pairs_sum(a, type);
        return;
    }
    for (int32_t group = 0; group < a->groups; group++)
        for (int64_t at = 0; at < a->n; at++) {
            int64_t row = a->order ? a->order[group * a->n + at] : at;
            for (int32_t column = 0; column < a->co; column++)
                if (a->partial)
                    a->partial[((int64_t)group * a->n + row) * a->co + column] =
                        (float)group_sum(a, type, row, group, column);
                else
                    row_finish(a, type, row, column);
        }
}
