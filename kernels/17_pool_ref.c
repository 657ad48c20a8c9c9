/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/17_pool.h"

#include <math.h>

/* What has been seen of some numbers. */
struct pooled {
    int64_t count;
    double sum, most;
};

static void pooled_add(struct pooled *pooled, double x)
{
    if (!pooled->count || x > pooled->most || isnan(x)) pooled->most = x;
    pooled->sum += x;
    pooled->count++;
}

static double pooled_value(const struct pooled *pooled, enum vx_pool_mode mode)
{
    if (!pooled->count) return 0.0;
    if (mode == VX_POOL_MAX) return pooled->most;
    if (mode == VX_POOL_AVG) return pooled->sum / (double)pooled->count;
    return pooled->sum;
}

void vx_pool_ref(const struct vx_pool_args *args)
{
    const int64_t in_stride = args->in_stride ? args->in_stride : args->c;
    const int64_t out_stride = args->out_stride ? args->out_stride : args->c;
    for (int64_t i = 0; i < args->n; i++) {
        for (int64_t c = 0; c < args->c; c++) {
            struct pooled pooled = {0, 0.0, 0.0};
            for (int64_t v = 0; v < args->v; v++) {
                int64_t j = args->nbr[v * args->n + i];
                if (j >= 0) pooled_add(&pooled, (double)args->in[j * in_stride + c]);
            }
            args->out[i * out_stride + c] = (float)vx_activation_ref_one(
                args->activation, pooled_value(&pooled, args->mode));
        }
    }
}

void vx_global_pool_ref(const struct vx_global_pool_args *args)
{
    for (int64_t s = 0; s < args->samples; s++) {
        for (int64_t c = 0; c < args->c; c++) {
            struct pooled pooled = {0, 0.0, 0.0};
            for (int64_t r = args->starts[s]; r < args->starts[s + 1]; r++)
                pooled_add(&pooled,
                           (double)args->in[(int64_t)args->rows[r] * args->c + c]);
            args->out[s * args->c + c] = (float)pooled_value(&pooled, args->mode);
        }
    }
}
