/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/06_conv_masked.h"
#include "kernels/13_elementwise.h"
#include "kernels/e4m3.h"

#include <stdbool.h>
#include <string.h>

void vx_conv_masked_ref(const void *args, enum vx_number type);

/* Rows and columns that are summed together: a row of `in` is read once for all of these columns,
 * a weight once for all of these rows. */
#define COLUMNS 16
#define ROWS    16

struct block {
    enum vx_number type;
    int32_t rows_count;
    int64_t row[ROWS];
    int32_t first, count; /* columns */
    double sum[ROWS][COLUMNS];
};

static void columns_set(const struct vx_conv_device_args *a, int32_t first,
                        struct block *block)
{
    int32_t left = a->co - first;
    block->first = first;
    block->count = left < COLUMNS ? left : COLUMNS;
    memset(block->sum, 0, sizeof block->sum);
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

/* Adds to each row of the block the product of row from[r] of `in`, unless that is -1, and these
 * columns of the weights of offset v.  Columns beyond the last one are computed and not used. */
static void product_add(const struct vx_conv_device_args *a, int32_t v,
                        const int64_t from[ROWS], struct block *block)
{
    double sum[ROWS][COLUMNS] = {{0}}, weight[COLUMNS] = {0}, in;
    for (int32_t ci = 0; ci < a->ci; ci++) {
        int64_t at = ((int64_t)v * a->ci + ci) * a->co + block->first;
        factors_read(a->weight, block->type, at, block->count, weight);
        for (int32_t r = 0; r < block->rows_count; r++) {
            if (from[r] < 0) continue;
            factors_read(a->in, block->type, from[r] * a->in_stride + ci, 1, &in);
            for (int32_t k = 0; k < COLUMNS; k++) sum[r][k] += in * weight[k];
        }
    }
    for (int32_t r = 0; r < block->rows_count; r++)
        for (int32_t k = 0; k < COLUMNS && from[r] >= 0; k++)
            block->sum[r][k] += sum[r][k];
}

/* Adds the offsets of one group.  Masks and tiles make no difference here. */
static void group_add(const struct vx_conv_device_args *a, int32_t group,
                      struct block *block)
{
    int32_t per_group = a->v / a->groups;
    for (int32_t v = group * per_group; v < (group + 1) * per_group; v++) {
        int64_t from[ROWS];
        bool any = false;
        for (int32_t r = 0; r < block->rows_count; r++) {
            from[r] = a->nbr ? a->nbr[block->row[r] * a->nbr_stride + v] : block->row[r];
            any |= from[r] >= 0;
        }
        if (any) product_add(a, v, from, block);
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
                          const struct block *block, int32_t r)
{
    float *to = &a->partial[row * a->co + block->first];
    for (int32_t k = 0; k < block->count; k++) to[k] = (float)block->sum[r][k];
}

/* Writes `partial` if there is one, else `out`. */
static void row_write(const struct vx_conv_device_args *a, int32_t group, int32_t r,
                      struct block *block)
{
    const int64_t row = block->row[r];
    for (int32_t k = 0; a->scale && k < block->count; k++)
        block->sum[r][k] *= (double)a->scale[block->first + k];
    if (a->partial)
        partial_write(a, (int64_t)group * a->n + row, block, r);
    else
        for (int32_t k = 0; k < block->count; k++)
            column_finish(a, block->type, row, block->first + k, block->sum[r][k]);
}

/* One group of the rows of a block. */
static void rows_sum(const struct vx_conv_device_args *a, int32_t group,
                     struct block *block)
{
    for (int32_t first = 0; first < a->co; first += COLUMNS) {
        columns_set(a, first, block);
        group_add(a, group, block);
        for (int32_t r = 0; r < block->rows_count; r++) row_write(a, group, r, block);
    }
    block->rows_count = 0;
}

/* The pairs of one offset from `begin` to before `end`, at most ROWS. */
static void pairs_sum(const struct vx_conv_device_args *a, int32_t v, int64_t begin,
                      int64_t end, struct block *block)
{
    int64_t from[ROWS];
    block->rows_count = (int32_t)(end - begin);
    for (int32_t r = 0; r < block->rows_count; r++) from[r] = a->in_rows[begin + r];
    for (int32_t first = 0; first < a->co; first += COLUMNS) {
        columns_set(a, first, block);
        product_add(a, v, from, block);
        for (int32_t r = 0; r < block->rows_count; r++)
            partial_write(a, begin + r, block, r);
    }
}

static void offset_pairs_sum(const struct vx_conv_device_args *a, int32_t v,
                             struct block *block)
{
    const int64_t end = a->starts[v + 1];
    for (int64_t p = a->starts[v]; p < end; p += ROWS)
        pairs_sum(a, v, p, end - p < ROWS ? end : p + ROWS, block);
}

void vx_conv_masked_ref(const void *args, enum vx_number type)
{
    const struct vx_conv_device_args *a = args;
    struct block block = {.type = type};
    for (int32_t v = 0; a->starts && v < a->v; v++) offset_pairs_sum(a, v, &block);
    for (int32_t group = 0; !a->starts && group < a->groups; group++) {
        for (int64_t at = 0; at < a->n; at++) {
            const int64_t row = a->order ? a->order[group * a->n + at] : at;
            if (row >= 0) block.row[block.rows_count++] = row;
            if (block.rows_count == ROWS) rows_sum(a, group, &block);
        }
        rows_sum(a, group, &block);
    }
}
