/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/28_to_dense.h"

#include "kernels/01_coord_hash.h"

/* The place of channel 0 of a voxel. */
static int64_t place_of(const struct vx_to_dense_args *args, uint64_t key)
{
    int64_t place = (int64_t)vx_key_sample(key) * args->c;
    for (int axis = 0; axis < 3; axis++)
        place = place * args->shape[axis] + vx_key_axis(key, axis);
    return place;
}

void vx_to_dense_ref(const struct vx_to_dense_args *args)
{
    const int64_t plane = (int64_t)args->shape[0] * args->shape[1] * args->shape[2];
    for (int64_t e = 0; e < args->samples * args->c * plane; e++)
        vx_number_ref_write(args->out, args->type, e, 0.0);
    for (int64_t i = 0; i < args->n; i++)
        for (int64_t c = 0; c < args->c; c++)
            vx_number_ref_write(args->out, args->type,
                                place_of(args, args->keys[i]) + c * plane,
                                (double)args->in[args->rows[i] * (int64_t)args->c + c]);
}
