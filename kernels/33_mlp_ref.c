/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/33_mlp.h"
#include "kernels/pointwise_spec.h"

void vx_mlp_ref(const void *args, enum vx_number type);
void vx_conv_masked_ref(const void *args, enum vx_number type);

/* The most channels of a row in between: as many as a network may have. */
#define CHANNELS_MAX 16384

/* One row at a time, by the references of the three launches: what lies in between is
 * rounded to the type, as on the device. */
static void row_run(const struct vx_mlp_args *args, enum vx_number type, int64_t row)
{
    static _Thread_local uint16_t normed[CHANNELS_MAX], hidden[CHANNELS_MAX];
    const int64_t bytes = vx_number_bytes(type);
    struct vx_layer_norm_device_args norm = args->norm;
    struct vx_conv_device_args up = args->up, down = args->down;
    norm.n = up.n = down.n = 1;
    up.in = (const char *)up.in + row * up.in_stride * bytes;
    if (norm.c) {
        norm.in = (const char *)norm.in +
                  row * (norm.in_stride ? norm.in_stride : norm.cp) * bytes;
        norm.out = normed;
        norm.out_stride = 0;
        vx_layer_norm_device_ref(&norm, type);
        up.in = normed;
    }
    up.out = hidden;
    vx_conv_masked_ref(&up, type);
    down.in = hidden;
    down.out = (char *)down.out + row * down.out_stride * bytes;
    if (down.residual)
        down.residual = (const char *)down.residual + row * down.residual_stride * bytes;
    vx_conv_masked_ref(&down, type);
}

void vx_mlp_ref(const void *args_given, enum vx_number type)
{
    const struct vx_mlp_args *args = args_given;
    for (int64_t row = 0; row < args->norm.n; row++) row_run(args, type, row);
}
