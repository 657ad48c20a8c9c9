/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/06_conv_masked.h"
#include "kernels/13_elementwise.h"
#include "kernels/e4m3.h"

void vx_conv_masked_ref(const void *args, enum vx_number type);

/* Columns that are summed together: a row of `in` is read once for all of them. */
#define COLUMNS 16

struct columns {
    enum vx_number type;
    int32_t first, count;
    double sum[COLUMNS];
};

static struct columns columns_from(const struct vx_conv_device_args *a,
                                   enum vx_number type, int32_t first)
{
    int32_t left = a->co - first;
    return (struct columns){type, first, left < COLUMNS ? left : COLUMNS, {0}};
}

/* `count` numbers that are multiplied, from element `at` on. */
static void factors_read(const void *from, enum vx_number type, int64_t at, int32_t count,
                         double *factors)
{
    const uint8_t *bytes = from;
    if (type == VX_NUMBER_E4M3)
        for (int32_t k = 0; k < count; k++) factors[k] = vx_e4m3_value(bytes[at + k]);
    else
        vx_number_ref_read_row(from, type, at, count, factors);
}

/* Adds the product of one row of `in` and these columns of the weights of offset v. */
static void product_add(const struct vx_conv_device_args *a, int32_t v, int64_t from,
                        struct columns *columns)
{
    double sum[COLUMNS] = {0}, weight[COLUMNS];
    for (int32_t ci = 0; ci < a->ci; ci++) {
        double in;
        factors_read(a->in, columns->type, from * a->in_stride + ci, 1, &in);
        int64_t at = ((int64_t)v * a->ci + ci) * a->co + columns->first;
        factors_read(a->weight, columns->type, at, columns->count, weight);
        for (int32_t k = 0; k < columns->count; k++) sum[k] += in * weight[k];
    }
    for (int32_t k = 0; k < columns->count; k++) columns->sum[k] += sum[k];
}

/* Adds the offsets of one group.  Masks and tiles make no difference here. */
static void group_add(const struct vx_conv_device_args *a, int64_t row, int32_t group,
                      struct columns *columns)
{
    int32_t per_group = a->v / a->groups;
    for (int32_t v = group * per_group; v < (group + 1) * per_group; v++) {
        int64_t from = a->nbr ? a->nbr[row * a->nbr_stride + v] : row;
        if (from >= 0) product_add(a, v, from, columns);
    }
}

static void column_finish(const struct vx_conv_device_args *a, enum vx_number type,
                          int64_t row, int32_t column, double sum)
{
    if (a->bias) sum += a->bias[column];
    if (a->residual)
        sum += vx_number_ref_read(a->residual, type, row * a->residual_stride + column);
    sum = vx_activation_ref_one((enum vx_activation)a->activation, sum);
    if (a->used && column >= a->used) sum = 0;
    vx_number_ref_write(a->out, type, row * a->out_stride + column, sum);
}

static void partial_write(const struct vx_conv_device_args *a, int64_t row,
                          const struct columns *columns)
{
    float *to = &a->partial[row * a->co + columns->first];
    for (int32_t k = 0; k < columns->count; k++) to[k] = (float)columns->sum[k];
}

/* One group of one row: writes `partial` if there is one, else `out`. */
static void row_sum(const struct vx_conv_device_args *a, enum vx_number type, int64_t row,
                    int32_t group)
{
    for (int32_t first = 0; first < a->co; first += COLUMNS) {
        struct columns columns = columns_from(a, type, first);
        group_add(a, row, group, &columns);
        for (int32_t k = 0; a->scale && k < columns.count; k++)
            columns.sum[k] *= (double)a->scale[first + k];
        if (a->partial)
            partial_write(a, (int64_t)group * a->n + row, &columns);
        else
            for (int32_t k = 0; k < columns.count; k++)
                column_finish(a, type, row, first + k, columns.sum[k]);
    }
}

static void pairs_sum(const struct vx_conv_device_args *a, enum vx_number type)
{
    for (int32_t v = 0; v < a->v; v++)
        for (int64_t p = a->starts[v]; p < a->starts[v + 1]; p++)
            for (int32_t first = 0; first < a->co; first += COLUMNS) {
                struct columns columns = columns_from(a, type, first);
                product_add(a, v, a->in_rows[p], &columns);
                partial_write(a, p, &columns);
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
        for (int64_t at = 0; at < a->n; at++) {
            const int64_t row = a->order ? a->order[group * a->n + at] : at;
            if (row >= 0) row_sum(a, type, row, group);
        }
}
