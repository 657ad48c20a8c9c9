/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"
#include "kernels/turn.cuh"

#include "kernels/01_coord_hash_device.h"

#ifndef VX_KEY_BITS
#define VX_KEY_BITS 64
#endif

/* Stores the key if the slot is free; returns what the slot held. */
VX_DEVICE uint64_t swap_in(const struct vx_hash_table *table, uint64_t slot, uint64_t key)
{
#if VX_KEY_BITS == 64
    return vx_atomic_swap_if64((uint64_t *)table->slots_key + slot, VX_KEY_EMPTY, key);
#else
    uint32_t *at = (uint32_t *)table->slots_key + slot;
    uint32_t found = vx_atomic_swap_if(at, ~0u, (uint32_t)key);
    return found == ~0u ? VX_KEY_EMPTY : found;
#endif
}

VX_KERNEL(VX_HASH_THREADS, 4) hash_insert(const struct vx_hash_insert_args args)
{
    vx_turn();
    struct vx_hash_table table = args.table;
    table.key_bits = VX_KEY_BITS; /* a constant: the compiler drops the other case */
    int64_t i = (int64_t)vx_block_x() * VX_HASH_THREADS + vx_thread();
    if (i >= args.n) return;
    int32_t at[4];
    vx_hash_voxel(args.coords, args.columns, i, at);
    uint64_t key = vx_hash_key(&table, at), last = table.slots_count - 1;
    if (key == VX_KEY_EMPTY) {
        args.fault[0] = 1;
        return;
    }
    for (uint64_t slot = vx_key_mix(key) & last;; slot = (slot + 1) & last) {
        uint64_t found = vx_hash_slot(&table, slot);
        if (found == VX_KEY_EMPTY) found = swap_in(&table, slot, key);
        if (found == key) args.fault[1] = 1;
        if (found == key) return;
        if (found != VX_KEY_EMPTY) continue;
        table.slots_row[slot] = (int32_t)i;
        return;
    }
}
