/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/01_coord_hash_device.h"

static void insert(const struct vx_hash_insert_args *args, int64_t i)
{
    int32_t at[4];
    vx_hash_voxel(args->coords, args->columns, i, at);
    uint64_t key = vx_hash_key(&args->table, at), last = args->table.slots_count - 1;
    uint64_t slot = vx_key_mix(key) & last;
    if (key == VX_KEY_EMPTY) {
        args->fault[0] = 1;
        return;
    }
    while (vx_hash_slot(&args->table, slot) != VX_KEY_EMPTY) {
        if (vx_hash_slot(&args->table, slot) == key) {
            args->fault[1] = 1;
            return;
        }
        slot = (slot + 1) & last;
    }
    if (args->table.key_bits == 64)
        ((uint64_t *)args->table.slots_key)[slot] = key;
    else
        ((uint32_t *)args->table.slots_key)[slot] = (uint32_t)key;
    args->table.slots_row[slot] = (int32_t)i;
}

void vx_hash_insert_ref(const struct vx_hash_insert_args *args)
{
    for (int64_t i = 0; i < args->n; i++) insert(args, i);
}
