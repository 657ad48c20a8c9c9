/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/01_coord_hash.h"
#include "kernels/32_devoxelize.h"
#include "kernels/pointwise_spec.h"

#include <math.h>

/* The weight of corner k of a point, before it is divided. */
static double weight_of(const struct vx_devoxelize_device_args *args, uint64_t key, int k)
{
    double weight = 1.0;
    for (int axis = 0; axis < 3; axis++) {
        double q = (double)vx_key_axis(key, axis) / (double)args->stride[axis];
        weight *= 1.0 - fabs(q - (floor(q) + (k >> (2 - axis) & 1)));
    }
    return weight;
}

static double blend(const struct vx_devoxelize_device_args *args, enum vx_number type,
                    int64_t i, int64_t c)
{
    const int32_t *corners = args->nbr + (int64_t)args->rows[i] * args->nbr_stride;
    double sum = VX_CORNERS_EPS, y = 0.0;
    for (int k = 0; k < VX_CORNERS; k++)
        if (corners[k] >= 0) sum += weight_of(args, args->keys[i], k);
    for (int k = 0; k < VX_CORNERS; k++) {
        double weight = weight_of(args, args->keys[i], k);
        if (corners[k] < 0 || weight <= 0.0) continue;
        y += weight / sum *
             vx_number_ref_read(args->in, type, (int64_t)corners[k] * args->cp + c);
    }
    return y;
}

void vx_devoxelize_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_devoxelize_device_args *args = pointer;
    for (int64_t i = 0; i < args->n; i++)
        for (int64_t c = 0; c < args->cp; c++) {
            double y = 0.0;
            if (c < args->c)
                y = vx_activation_ref_one((enum vx_activation)args->activation,
                                          blend(args, type, i, c));
            vx_number_ref_write(args->out, type, (int64_t)args->rows[i] * args->cp + c,
                                y);
        }
}
