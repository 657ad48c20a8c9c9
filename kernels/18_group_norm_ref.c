/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/18_group_norm.h"

#include <math.h>
#include <stddef.h>

/* The mean over a sample's rows and `width` channels from `first` on: of the numbers, or
 * of the squares of their differences from `center`. */
static double group_mean(const struct vx_group_norm_args *args, int64_t s, int64_t first,
                         int64_t width, const double *center)
{
    double sum = 0.0;
    int64_t count = (args->starts[s + 1] - args->starts[s]) * width;
    for (int64_t r = args->starts[s]; r < args->starts[s + 1]; r++) {
        for (int64_t c = first; c < first + width; c++) {
            double x = (double)args->in[(int64_t)args->rows[r] * args->c + c];
            sum += center ? (x - *center) * (x - *center) : x;
        }
    }
    return sum / (double)count;
}

static void group_norm_group(const struct vx_group_norm_args *args, int64_t s,
                             int64_t first, int64_t width)
{
    double mean = group_mean(args, s, first, width, NULL);
    double variance = group_mean(args, s, first, width, &mean);
    for (int64_t r = args->starts[s]; r < args->starts[s + 1]; r++) {
        for (int64_t c = first; c < first + width; c++) {
            int64_t e = (int64_t)args->rows[r] * args->c + c;
            double y = ((double)args->in[e] - mean) / sqrt(variance + (double)args->eps);
            if (args->weight) y *= (double)args->weight[c];
            if (args->bias) y += (double)args->bias[c];
            args->out[e] = (float)vx_activation_ref_one(args->activation, y);
        }
    }
}

void vx_group_norm_ref(const struct vx_group_norm_args *args)
{
    int64_t width = args->c / args->groups;
    for (int64_t s = 0; s < args->samples; s++)
        for (int64_t group = 0; group < args->groups; group++)
            group_norm_group(args, s, group * width, width);
}
