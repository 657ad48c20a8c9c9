/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/14_rows.h"
#include "kernels/pointwise_spec.h"

static int64_t rows_number(const struct vx_rows_args *args, int64_t r)
{
    return args->rows ? args->rows[r] : r;
}

void vx_rows_in_ref(const void *pointer, enum vx_number type)
{
    const struct vx_rows_args *args = pointer;
    enum vx_number from = (enum vx_number)args->number;
    for (int64_t r = 0; r < args->n; r++) {
        int64_t first = rows_number(args, r) * args->c;
        for (int32_t c = 0; c < args->cp; c++) {
            double value =
                c < args->c ? vx_number_ref_read(args->in, from, first + c) : 0.0;
            vx_number_ref_write(args->out, type, r * args->cp + c, value);
        }
    }
}

void vx_rows_out_ref(const void *pointer, enum vx_number type)
{
    const struct vx_rows_args *args = pointer;
    enum vx_number to = (enum vx_number)args->number;
    for (int64_t r = 0; r < args->n; r++)
        for (int32_t c = 0; c < args->c; c++)
            vx_number_ref_write(args->out, to, rows_number(args, r) * args->c + c,
                                vx_number_ref_read(args->in, type, r * args->cp + c));
}
