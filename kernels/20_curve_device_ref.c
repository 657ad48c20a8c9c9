/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/20_curve.h"
#include "kernels/pointwise_spec.h"

void vx_curve_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_curve_device_args *args = pointer;
    const int64_t in_stride = args->in_stride ? args->in_stride : args->cp;
    const int64_t out_stride = args->out_stride ? args->out_stride : args->cp;
    for (int64_t i = 0; i < args->n; i++)
        for (int64_t c = 0; c < args->cp; c++) {
            double x = vx_number_ref_read(args->in, type, i * in_stride + c);
            vx_number_ref_write(
                args->out, type, i * out_stride + c,
                vx_curve_ref_one((enum vx_curve)args->curve, (double)args->slope, x));
        }
}
