/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/19_softmax.h"

#include <math.h>

/* NaN is above every number. */
static int32_t argmax_row(const float *in, int32_t c)
{
    int32_t best = 0;
    for (int32_t e = 1; e < c; e++) {
        if (isnan(in[best])) break;
        if (in[e] > in[best] || isnan(in[e])) best = e;
    }
    return best;
}

static void softmax_row(const float *in, float *out, int32_t c)
{
    double most = (double)in[argmax_row(in, c)];
    double sum = 0.0;
    for (int32_t e = 0; e < c; e++) sum += exp((double)in[e] - most);
    for (int32_t e = 0; e < c; e++) out[e] = (float)(exp((double)in[e] - most) / sum);
}

void vx_softmax_ref(const struct vx_softmax_args *args)
{
    for (int64_t i = 0; i < args->n; i++)
        softmax_row(args->in + i * args->c, args->out + i * args->c, args->c);
}

void vx_argmax_ref(const struct vx_argmax_args *args)
{
    for (int64_t i = 0; i < args->n; i++)
        args->out[i] = argmax_row(args->in + i * args->c, args->c);
}
