/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/11_linear.h"

void vx_linear_ref(const struct vx_linear_args *args)
{
    const int64_t in_stride = args->in_stride ? args->in_stride : args->ci;
    const int64_t out_stride = args->out_stride ? args->out_stride : args->co;
    for (int64_t i = 0; i < args->n; i++) {
        for (int64_t co = 0; co < args->co; co++) {
            double sum = args->bias ? (double)args->bias[co] : 0.0;
            for (int64_t ci = 0; ci < args->ci; ci++)
                sum += (double)args->in[i * in_stride + ci] *
                       (double)args->weight[ci * args->co + co];
            args->out[i * out_stride + co] =
                (float)vx_activation_ref_one(args->activation, sum);
        }
    }
}
