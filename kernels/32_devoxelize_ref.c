/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/32_devoxelize.h"

#include "kernels/01_coord_hash.h"

/* How much of a point's distance to corner `far` of its cell is left, along an axis. */
static double share(int32_t p, int32_t stride, int far)
{
    int32_t in_cell = p % stride;
    if (in_cell < 0) in_cell += stride;
    double q = (double)in_cell / (double)stride;
    return far ? q : 1.0 - q;
}

/* The weights of the corners of the i-th key, before they are divided; returns their sum. */
static double weights_of(const struct vx_devoxelize_args *args, int64_t i,
                         double weights[VX_CORNERS])
{
    double sum = 0.0;
    for (int k = 0; k < VX_CORNERS; k++) {
        weights[k] = 1.0;
        for (int axis = 0; axis < 3; axis++)
            weights[k] *= share(vx_key_axis(args->keys[i], axis), args->stride[axis],
                                k >> (2 - axis) & 1);
        if (args->voxels[k * args->n + args->rows[i]] < 0) weights[k] = 0.0;
        sum += weights[k];
    }
    return sum;
}

void vx_devoxelize_ref(const struct vx_devoxelize_args *args)
{
    for (int64_t i = 0; i < args->n; i++) {
        double weights[VX_CORNERS];
        double sum = weights_of(args, i, weights) + VX_CORNERS_EPS;
        for (int64_t c = 0; c < args->c; c++) {
            double y = 0.0;
            for (int k = 0; k < VX_CORNERS; k++) {
                int64_t row = args->voxels[k * args->n + args->rows[i]];
                if (row < 0 || weights[k] == 0.0) continue;
                y += weights[k] / sum * (double)args->in[row * args->c + c];
            }
            args->out[(int64_t)args->rows[i] * args->c + c] =
                (float)vx_activation_ref_one(args->activation, y);
        }
    }
}
