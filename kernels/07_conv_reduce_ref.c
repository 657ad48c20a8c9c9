/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/07_conv_reduce.h"
#include "kernels/pointwise_spec.h"

static bool reduce_mask_has(const struct vx_conv_device_args *args, int64_t i, int32_t g)
{
    const uint32_t *mask = args->masks + i * args->words;
    int32_t span = args->v / args->groups;
    for (int32_t v = g * span; v < (g + 1) * span; v++)
        if (mask[v / 32] >> (v % 32) & 1u) return true;
    return false;
}

void vx_conv_reduce_ref(const void *pointer, enum vx_number type)
{
    const struct vx_conv_device_args *args = pointer;
    for (int64_t i = 0; i < args->n; i++) {
        for (int64_t c = 0; c < args->co; c++) {
            double sum = 0.0;
            for (int32_t g = 0; g < args->groups; g++)
                if (!args->masks || reduce_mask_has(args, i, g))
                    sum += (double)args->partial[(g * args->n + i) * args->co + c];
            if (args->bias) sum += (double)args->bias[c];
            if (args->residual)
                sum += vx_number_ref_read(args->residual, type,
                                          i * args->residual_stride + c);
            sum = vx_activation_ref_one((enum vx_activation)args->activation, sum);
            if (args->used && c >= args->used) sum = 0.0;
            vx_number_ref_write(args->out, type, i * args->out_stride + c, sum);
        }
    }
}

void vx_pair_reduce_ref(const void *pointer, enum vx_number type)
{
    const struct vx_pair_reduce_args *args = pointer;
    for (int64_t i = 0; i < args->n; i++) {
        for (int64_t c = 0; c < args->co; c++) {
            double sum = 0.0;
            for (int32_t v = 0; v < args->v; v++) {
                int64_t place = args->places[i * args->nbr_stride + v];
                if (place >= 0) sum += (double)args->partial[place * args->co + c];
            }
            if (args->bias) sum += (double)args->bias[c];
            if (args->residual)
                sum += vx_number_ref_read(args->residual, type,
                                          i * args->residual_stride + c);
            sum = vx_activation_ref_one((enum vx_activation)args->activation, sum);
            if (args->used && c >= args->used) sum = 0.0;
            vx_number_ref_write(args->out, type, i * args->out_stride + c, sum);
        }
    }
}
