/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/04_conv_explicit.h"

static double conv_one(const struct vx_conv_args *args, int64_t i, int32_t co)
{
    double sum = args->bias ? (double)args->bias[co] : 0.0;
    for (int64_t v = 0; v < args->v; v++) {
        int64_t j = args->nbr[v * args->n + i];
        if (j < 0) continue;
        for (int64_t ci = 0; ci < args->ci; ci++)
            sum += (double)args->in[j * args->ci + ci] *
                   (double)args->weight[(v * args->ci + ci) * args->co + co];
    }
    return vx_activation_ref_one(args->activation, sum);
}

void vx_conv_explicit_ref(const struct vx_conv_args *args)
{
    for (int64_t i = 0; i < args->n; i++)
        for (int32_t co = 0; co < args->co; co++)
            args->out[i * args->co + co] = (float)conv_one(args, i, co);
}
