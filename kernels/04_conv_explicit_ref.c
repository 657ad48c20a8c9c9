/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/04_conv_explicit.h"

static int64_t stride_or(int32_t stride, int32_t channels)
{
    return stride ? stride : channels;
}

static double conv_one(const struct vx_conv_args *args, int64_t i, int32_t co)
{
    int32_t groups = args->groups ? args->groups : 1;
    int64_t depth = args->ci / groups;
    int64_t first = co / (args->co / groups) * depth; /* channel of the group */
    double sum = args->bias ? (double)args->bias[co] : 0.0;
    for (int64_t v = 0; v < args->v; v++) {
        int64_t j = args->nbr[v * args->n + i];
        if (j < 0) continue;
        for (int64_t k = 0; k < depth; k++)
            sum +=
                (double)args->in[j * stride_or(args->in_stride, args->ci) + first + k] *
                (double)args->weight[(v * depth + k) * args->co + co];
    }
    return vx_activation_ref_one(args->activation, sum);
}

void vx_conv_explicit_ref(const struct vx_conv_args *args)
{
    for (int64_t i = 0; i < args->n; i++)
        for (int32_t co = 0; co < args->co; co++)
            args->out[i * stride_or(args->out_stride, args->co) + co] =
                (float)conv_one(args, i, co);
}
