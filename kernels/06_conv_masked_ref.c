/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/06_conv_masked.h"
#include "kernels/13_elementwise.h"

#include <string.h>

void vx_conv_masked_ref(const void *args, enum vx_number type);

/* So many columns at a time, so that a row of `in` is read once for all of them. */
#define COLUMNS 16

static int32_t columns_from(const struct vx_conv_device_args *a, int32_t column)
{
    return a->co - column < COLUMNS ? a->co - column : COLUMNS;
}

/* One row of `in` by the columns from `column` on of one offset's weights. */
static void product(const struct vx_conv_device_args *a, enum vx_number type, int32_t v,
                    int64_t from, int32_t column, double sum[COLUMNS])
{
    int32_t count = columns_from(a, column);
    double weight[COLUMNS];
    memset(sum, 0, sizeof(double[COLUMNS]));
    for (int32_t ci = 0; ci < a->ci; ci++) {
        double in = vx_number_ref_read(a->in, type, from * a->ci + ci);
        vx_number_ref_read_row(a->weight, type,
                               ((int64_t)v * a->ci + ci) * a->co + column, count, weight);
        for (int32_t k = 0; k < count; k++) sum[k] += in * weight[k];
    }
}

/* The sum over the offsets of a group, bit masks and tiles aside. */
static void group_sum(const struct vx_conv_device_args *a, enum vx_number type,
                      int64_t row, int32_t group, int32_t column, double sum[COLUMNS])
{
    int32_t per_group = a->v / a->groups;
    double part[COLUMNS];
    memset(sum, 0, sizeof(double[COLUMNS]));
    for (int32_t v = group * per_group; v < (group + 1) * per_group; v++) {
        int64_t from = a->nbr ? a->nbr[row * a->nbr_stride + v] : row;
        if (from < 0) continue;
        product(a, type, v, from, column, part);
        for (int32_t k = 0; k < COLUMNS; k++) sum[k] += part[k];
    }
}

static void column_finish(const struct vx_conv_device_args *a, enum vx_number type,
                          int64_t row, int32_t column, double sum)
{
    int64_t at = row * a->co + column;
    if (a->bias) sum += a->bias[column];
    if (a->residual) sum += vx_number_ref_read(a->residual, type, at);
    sum = vx_activation_ref_one((enum vx_activation)a->activation, sum);
    if (a->used && column >= a->used) sum = 0;
    vx_number_ref_write(a->out, type, at, sum);
}

/* One group of one row: into `partial` where there is one, else the answer. */
static void row_sum(const struct vx_conv_device_args *a, enum vx_number type, int64_t row,
                    int32_t group)
{
    double sum[COLUMNS];
    for (int32_t column = 0; column < a->co; column += COLUMNS) {
        group_sum(a, type, row, group, column, sum);
        for (int32_t k = 0; k < columns_from(a, column); k++)
            if (a->partial)
                a->partial[((int64_t)group * a->n + row) * a->co + column + k] =
                    (float)sum[k];
            else
                column_finish(a, type, row, column + k, sum[k]);
    }
}

static void pairs_sum(const struct vx_conv_device_args *a, enum vx_number type)
{
    double sum[COLUMNS];
    for (int32_t v = 0; v < a->v; v++)
        for (int64_t p = a->starts[v]; p < a->starts[v + 1]; p++)
            for (int32_t column = 0; column < a->co; column += COLUMNS) {
                product(a, type, v, a->in_rows[p], column, sum);
                for (int32_t k = 0; k < columns_from(a, column); k++)
                    a->partial[p * a->co + column + k] = (float)sum[k];
            }
}

void vx_conv_masked_ref(const void *args, enum vx_number type)
{
    const struct vx_conv_device_args *a = args;
    if (a->starts) {
        pairs_sum(a, type);
        return;
    }
    for (int32_t group = 0; group < a->groups; group++)
        for (int64_t at = 0; at < a->n; at++)
            row_sum(a, type, a->order ? a->order[group * a->n + at] : at, group);
}
