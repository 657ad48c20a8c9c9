/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/31_voxelize.h"
#include "kernels/pointwise_spec.h"

void vx_voxel_words_ref(const void *pointer, enum vx_number type)
{
    const struct vx_voxel_words_args *args = pointer;
    (void)type;
    for (int64_t r = 0; r < args->n; r++) {
        int32_t voxel = args->nbr[r * args->nbr_stride];
        args->words[r] = voxel < 0 ? (uint64_t)args->m : (uint64_t)voxel;
    }
}

/* One channel of the points at places begin to end - 1. */
static double mean_of(const struct vx_voxelize_device_args *args, enum vx_number type,
                      const int64_t places[2], int64_t c)
{
    double sum = 0.0;
    for (int64_t p = places[0]; p < places[1]; p++)
        sum += vx_number_ref_read(args->in, type, (int64_t)args->order[p] * args->cp + c);
    return places[1] > places[0] ? sum / (double)(places[1] - places[0]) : 0.0;
}

void vx_voxel_mean_ref(const void *pointer, enum vx_number type)
{
    const struct vx_voxelize_device_args *args = pointer;
    int64_t places[2] = {0, 0};
    for (int64_t voxel = 0; voxel < args->m; voxel++, places[0] = places[1]) {
        while (places[1] < args->n &&
               args->words[args->order[places[1]]] == (uint64_t)voxel)
            places[1]++;
        for (int64_t c = 0; c < args->cp; c++) {
            double y = 0.0;
            if (c < args->c)
                y = vx_activation_ref_one((enum vx_activation)args->activation,
                                          mean_of(args, type, places, c));
            vx_number_ref_write(args->out, type, voxel * args->cp + c, y);
        }
    }
}
