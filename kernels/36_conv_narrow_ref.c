/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/36_conv_narrow.h"
#include "kernels/pointwise_spec.h"

static double sum_at(const struct vx_conv_narrow_args *args, enum vx_number type,
                     int64_t i, int64_t channel)
{
    double sum = 0.0;
    for (int64_t v = 0; v < args->v; v++) {
        const int64_t j = args->nbr[i * args->nbr_stride + v];
        if (j < 0) continue;
        for (int64_t k = 0; k < args->ci; k++)
            sum += vx_number_ref_read(args->in, type, j * args->in_stride + k) *
                   vx_number_ref_read(args->weight, type,
                                      (v * args->weight_rows + k) * args->cp + channel);
    }
    return sum;
}

void vx_conv_narrow_ref(const void *pointer, enum vx_number type);

void vx_conv_narrow_ref(const void *pointer, enum vx_number type)
{
    const struct vx_conv_narrow_args *args = pointer;
    for (int64_t i = 0; i < args->n; i++)
        for (int64_t c = 0; c < args->cp; c++) {
            double y = 0.0;
            if (c < args->co) {
                y = sum_at(args, type, i, c);
                if (args->bias) y += (double)args->bias[c];
                if (args->residual)
                    y += vx_number_ref_read(args->residual, type,
                                            i * args->residual_stride + c);
                y = vx_activation_ref_one((enum vx_activation)args->activation, y);
            }
            vx_number_ref_write(args->out, type, i * args->out_stride + c, y);
        }
}
