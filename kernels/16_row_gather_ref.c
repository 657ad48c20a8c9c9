/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/16_row_gather.h"

static void row_gather_block(const struct vx_row_gather_args *args, int32_t x, int32_t y,
                             int32_t z)
{
    const int32_t *kernel = args->kernel;
    int64_t v = ((int64_t)x * kernel[1] + y) * kernel[2] + z;
    int64_t w = x + kernel[0] * (y + (int64_t)kernel[1] * z);
    const int64_t in_stride = args->in_stride ? args->in_stride : args->c;
    const int64_t out_stride =
        args->out_stride ? args->out_stride : (int64_t)args->v * args->c;
    for (int64_t i = 0; i < args->n; i++) {
        int64_t j = args->nbr[v * args->n + i];
        for (int64_t c = 0; c < args->c; c++) {
            double value = j < 0 ? 0.0 : (double)args->in[j * in_stride + c];
            args->out[i * out_stride + w * args->c + c] =
                (float)vx_activation_ref_one(args->activation, value);
        }
    }
}

void vx_row_gather_ref(const struct vx_row_gather_args *args)
{
    for (int32_t x = 0; x < args->kernel[0]; x++)
        for (int32_t y = 0; y < args->kernel[1]; y++)
            for (int32_t z = 0; z < args->kernel[2]; z++) row_gather_block(args, x, y, z);
}
