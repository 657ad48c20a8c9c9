/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/12_norm.h"

#include <math.h>

static int64_t stride_or(int32_t stride, int32_t channels)
{
    return stride ? stride : channels;
}

void vx_batch_norm_ref(const struct vx_batch_norm_args *args)
{
    for (int64_t i = 0; i < args->n; i++) {
        const float *in = args->in + i * stride_or(args->in_stride, args->c);
        float *out = args->out + i * stride_or(args->out_stride, args->c);
        for (int64_t c = 0; c < args->c; c++) {
            double x = (double)in[c];
            double y = x * (double)args->scale[c] + (double)args->shift[c];
            out[c] = (float)vx_activation_ref_one(args->activation, y);
        }
    }
}

static void layer_norm_row(const struct vx_layer_norm_args *args, const float *in,
                           float *out)
{
    double mean = 0.0;
    double variance = 0.0;
    for (int32_t c = 0; c < args->c; c++) mean += (double)in[c];
    mean /= args->c;
    for (int32_t c = 0; c < args->c; c++)
        variance += ((double)in[c] - mean) * ((double)in[c] - mean);
    variance /= args->c;
    for (int32_t c = 0; c < args->c; c++) {
        double y = ((double)in[c] - mean) / sqrt(variance + (double)args->eps);
        if (args->weight) y *= (double)args->weight[c];
        if (args->bias) y += (double)args->bias[c];
        out[c] = (float)vx_activation_ref_one(args->activation, y);
    }
}

void vx_layer_norm_ref(const struct vx_layer_norm_args *args)
{
    for (int64_t i = 0; i < args->n; i++)
        layer_norm_row(args, args->in + i * stride_or(args->in_stride, args->c),
                       args->out + i * stride_or(args->out_stride, args->c));
}
