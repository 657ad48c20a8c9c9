/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/02_neighbor_map_device.h"

void vx_hash_map_ref(const struct vx_hash_map_args *args)
{
    for (int64_t i = 0; i < args->n; i++) {
        for (int32_t v = 0; v < args->v; v++) {
            int32_t found = vx_hash_beside(args, &args->table, i, v);
            if (found < 0) continue;
            args->nbr[i * args->nbr_stride + v] = found;
            args->masks[i * args->words + v / 32] |= 1u << v % 32;
            ++*args->pairs;
        }
    }
}
