/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/16_row_gather.h"
#include "kernels/pointwise_spec.h"

/* Block w of a row of out. */
static void gather_block(const struct vx_row_gather_device_args *args,
                         enum vx_number type, int64_t i, int32_t w)
{
    const int32_t *kernel = args->kernel;
    int32_t x = w % kernel[0], y = w / kernel[0] % kernel[1];
    int32_t z = w / kernel[0] / kernel[1];
    int32_t v = (x * kernel[1] + y) * kernel[2] + z;
    int64_t entry = args->nbr[i * args->nbr_stride + v];
    int32_t stride = args->out_stride ? args->out_stride : args->cp;
    for (int32_t c = 0; c < args->c; c++) {
        int64_t channel = entry % args->blocks * args->c + c;
        double value = 0.0;
        if (entry >= 0)
            value = vx_number_ref_read(args->in, type,
                                       entry / args->blocks * args->in_cp + channel);
        value = vx_activation_ref_one((enum vx_activation)args->activation, value);
        vx_number_ref_write(args->out, type, i * stride + (int64_t)w * args->c + c,
                            value);
    }
}

void vx_row_gather_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_row_gather_device_args *args = pointer;
    int32_t stride = args->out_stride ? args->out_stride : args->cp;
    for (int64_t i = 0; i < args->n; i++) {
        for (int32_t w = 0; w < args->v; w++) gather_block(args, type, i, w);
        for (int32_t c = args->v * args->c; c < args->cp; c++)
            vx_number_ref_write(args->out, type, i * stride + c, 0.0);
    }
}
