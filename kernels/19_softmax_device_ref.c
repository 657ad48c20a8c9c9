/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/19_softmax.h"
#include "kernels/pointwise_spec.h"

#include <math.h>

/* NaN is above every number. */
static int32_t argmax_at(const struct vx_softmax_device_args *args, enum vx_number type,
                         int64_t first)
{
    int32_t best = 0;
    double most = vx_number_ref_read(args->in, type, first);
    for (int32_t c = 1; c < args->c && !isnan(most); c++) {
        double x = vx_number_ref_read(args->in, type, first + c);
        if (!(x > most || isnan(x))) continue;
        best = c;
        most = x;
    }
    return best;
}

void vx_softmax_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_softmax_device_args *args = pointer;
    for (int64_t first = 0; first < args->n * args->cp; first += args->cp) {
        double most =
            vx_number_ref_read(args->in, type, first + argmax_at(args, type, first));
        double sum = 0.0;
        for (int32_t c = 0; c < args->c; c++)
            sum += exp(vx_number_ref_read(args->in, type, first + c) - most);
        for (int32_t c = 0; c < args->cp; c++) {
            double y = 0.0;
            if (c < args->c)
                y = exp(vx_number_ref_read(args->in, type, first + c) - most) / sum;
            vx_number_ref_write(args->out, type, first + c, y);
        }
    }
}

void vx_argmax_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_softmax_device_args *args = pointer;
    int32_t *out = args->out;
    for (int64_t i = 0; i < args->n; i++)
        out[args->rows ? args->rows[i] : i] = argmax_at(args, type, i * args->cp);
}
