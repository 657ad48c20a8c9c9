/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/12_norm.h"
#include "kernels/pointwise_spec.h"

#include <math.h>

void vx_batch_norm_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_batch_norm_device_args *args = pointer;
    int32_t in_stride = args->in_stride ? args->in_stride : args->cp;
    int32_t out_stride = args->out_stride ? args->out_stride : args->cp;
    for (int64_t i = 0; i < args->n; i++) {
        for (int64_t c = 0; c < args->cp; c++) {
            double x = vx_number_ref_read(args->in, type, i * in_stride + c);
            double y = x * (double)args->scale[c] + (double)args->shift[c];
            vx_number_ref_write(
                args->out, type, i * out_stride + c,
                vx_activation_ref_one((enum vx_activation)args->activation, y));
        }
    }
}

static void layer_norm_device_row(const struct vx_layer_norm_device_args *args,
                                  enum vx_number type, int64_t row)
{
    const int64_t first = row * (args->in_stride ? args->in_stride : args->cp);
    const int64_t to = row * (args->out_stride ? args->out_stride : args->cp);
    double mean = 0.0;
    double variance = 0.0;
    for (int32_t c = 0; c < args->c; c++)
        mean += vx_number_ref_read(args->in, type, first + c);
    mean /= args->c;
    for (int32_t c = 0; c < args->c; c++) {
        double away = vx_number_ref_read(args->in, type, first + c) - mean;
        variance += away * away;
    }
    variance /= args->c;
    for (int32_t c = 0; c < args->cp; c++) {
        double y = vx_number_ref_read(args->in, type, first + c) - mean;
        y /= sqrt(variance + (double)args->eps);
        if (args->weight && c < args->c) y *= (double)args->weight[c];
        if (args->bias && c < args->c) y += (double)args->bias[c];
        y = vx_activation_ref_one((enum vx_activation)args->activation, y);
        vx_number_ref_write(args->out, type, to + c, c < args->c ? y : 0.0);
    }
}

void vx_layer_norm_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_layer_norm_device_args *args = pointer;
    for (int64_t i = 0; i < args->n; i++) layer_norm_device_row(args, type, i);
}
