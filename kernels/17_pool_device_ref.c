/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/17_pool.h"
#include "kernels/pointwise_spec.h"

#include <math.h>

static double pool_at(const struct vx_pool_device_args *args, enum vx_number type,
                      int64_t i, int64_t c)
{
    const int32_t stride = args->in_stride ? args->in_stride : args->cp;
    double most = 0.0, sum = 0.0;
    int64_t count = 0;
    for (int64_t v = 0; v < args->v; v++) {
        int64_t j = args->nbr[i * args->nbr_stride + v];
        if (j < 0) continue;
        double x = vx_number_ref_read(args->in, type, j * stride + c);
        if (count == 0 || x > most || isnan(x)) most = x;
        sum += x;
        count++;
    }
    if (args->mode == VX_POOL_MAX) return most;
    return args->mode == VX_POOL_AVG && count > 0 ? sum / (double)count : sum;
}

void vx_pool_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_pool_device_args *args = pointer;
    const int32_t stride = args->out_stride ? args->out_stride : args->cp;
    for (int64_t i = 0; i < args->n; i++)
        for (int64_t c = 0; c < args->cp; c++) {
            double y = 0.0;
            if (c < args->c)
                y = vx_activation_ref_one((enum vx_activation)args->activation,
                                          pool_at(args, type, i, c));
            vx_number_ref_write(args->out, type, i * stride + c, y);
        }
}
