/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/35_conv_norm.h"
#include "kernels/pointwise_spec.h"

void vx_conv_norm_ref(const void *args, enum vx_number type);
void vx_conv_masked_ref(const void *args, enum vx_number type);

/* A convolution's output overlaps none of its other inputs, so its rows may be normed behind
 * each other; they are there rounded, as on the device. */
static void row_norm(const struct vx_conv_norm_args *args, enum vx_number type,
                     int64_t row)
{
    struct vx_layer_norm_device_args norm = args->norm;
    norm.n = 1;
    norm.cp = args->conv.co;
    norm.in_stride = norm.out_stride = args->conv.out_stride;
    norm.out =
        (char *)args->conv.out + row * args->conv.out_stride * vx_number_bytes(type);
    norm.in = norm.out;
    /* TF32 concerns only matrix products. */
    vx_layer_norm_device_ref(&norm, type == VX_NUMBER_TF32 ? VX_NUMBER_F32 : type);
}

void vx_conv_norm_ref(const void *args_given, enum vx_number type)
{
    const struct vx_conv_norm_args *args = args_given;
    const struct vx_conv_device_args *conv = &args->conv;
    vx_conv_masked_ref(conv, type);
    for (int64_t at = 0; at < conv->n; at++) {
        const int64_t row = conv->order ? conv->order[at] : at;
        if (row >= 0) row_norm(args, type, row);
    }
}
