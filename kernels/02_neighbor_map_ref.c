/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/02_neighbor_map.h"

#include "kernels/01_coord_hash.h"

/* The key at `offset` from `key`, VX_KEY_EMPTY beyond the coordinate range. */
static uint64_t key_at(uint64_t key, const int32_t offset[3])
{
    int32_t at[3];
    for (int axis = 0; axis < 3; axis++) {
        at[axis] = vx_key_axis(key, axis) + offset[axis];
        if (at[axis] < -VX_KEY_AXIS_BIAS || at[axis] >= VX_KEY_AXIS_BIAS)
            return VX_KEY_EMPTY;
    }
    return vx_key_pack(vx_key_sample(key), at[0], at[1], at[2]);
}

static void offset_of(const struct vx_neighbor_map_args *args, int32_t v,
                      int32_t offset[3])
{
    for (int axis = 2; axis >= 0; axis--) {
        offset[axis] =
            (v % args->kernel[axis] - args->kernel[axis] / 2) * args->dilation[axis];
        v /= args->kernel[axis];
    }
}

void vx_neighbor_map_ref(const struct vx_neighbor_map_args *args)
{
    int32_t count = args->kernel[0] * args->kernel[1] * args->kernel[2];
    for (int64_t e = 0; e < args->n * count; e++) args->nbr[e] = -1;
    for (int64_t i = 0; i < args->n; i++) args->nbr[count / 2 * args->n + i] = (int32_t)i;
    for (int32_t v = 0; v < count / 2; v++) {
        int32_t offset[3];
        offset_of(args, v, offset);
        for (int64_t i = 0; i < args->n; i++) {
            uint64_t key = key_at(args->keys[i], offset);
            if (key == VX_KEY_EMPTY) continue;
            int32_t j = vx_coord_hash_find(args->slots_key, args->slots_row,
                                           args->slots_count, key);
            if (j < 0) continue;
            args->nbr[v * args->n + i] = j;
            args->nbr[(count - 1 - v) * args->n + j] = (int32_t)i;
        }
    }
}
