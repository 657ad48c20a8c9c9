/* 01_coord_hash_device - 01_coord_hash on a device: every voxel inserts itself.
 *
 * Math     slot(key) = mix(key) mod S, then the next free slot
 *          64 bits:  key as in 01_coord_hash
 *          32 bits:  key = ((sample*X + x)*Y + y)*Z + z, counted from `least`, in a box
 *                    of `size` that has fewer than 2^32 - 1 places
 * Shapes   coords (N,4) sample x y z, or (N,3) x y z of sample 0
 *          slots_key, slots_row (S)
 * Types    i32 coords, u64 or u32 keys, i32 rows.
 * Idea     The plain design against which bricks (03_brick_index) are measured.  Keys of
 *          32 bits halve the table.
 * Steps    1 slots_key is all ones before the launch
 *          2 pack
 *          3 swap the key into the first free slot and write the row beside it
 * Tiles    VX_KEY_BITS 64 or 32; key_bits of the table has the same value.
 * Cost     bytes 16*N + key bytes*S; 1.5 random accesses to keys and one to rows per row.
 * Limits   64 bits: those of 01_coord_hash; 32 bits: the box.  A voxel out of range sets
 *          fault[0], a duplicate sets fault[1].  S a power of two >= 2*N.
 * Order    which slot a key gets depends on the run; what is found does not.
 * Oracle   01_coord_hash_device_ref.c, tests/oracle.
 * Source   as 01_coord_hash.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_COORD_HASH_DEVICE_H
#define VX_KERNELS_COORD_HASH_DEVICE_H

#include "kernels/01_coord_hash.h"

/* Threads of a block.  They share nothing, so any size works. */
#define VX_HASH_THREADS 256

struct vx_hash_table {
    int32_t key_bits;          /* 64 or 32 */
    int32_t least[4], size[4]; /* sample x y z: the box of 32-bit keys */
    uint64_t slots_count;      /* power of two, >= 2 N */
    void *slots_key;           /* (slots_count) all ones = free */
    int32_t *slots_row;        /* (slots_count) */
};
struct vx_hash_insert_args {
    int64_t n;
    int32_t columns;       /* 3 or 4 */
    const int32_t *coords; /* (N, columns) */
    struct vx_hash_table table;
    uint32_t *fault; /* (2) zeros before the launch */
};

void vx_hash_insert_ref(const struct vx_hash_insert_args *args);

/* The key of a voxel; VX_KEY_EMPTY when it is out of range. */
VX_BOTH uint64_t vx_hash_key(const struct vx_hash_table *table, const int32_t at[4])
{
    uint64_t key = 0;
    if (table->key_bits == 64) {
        int32_t range = 1 << VX_KEY_AXIS_BITS;
        uint32_t out = (uint32_t)at[0] >> VX_KEY_SAMPLE_BITS;
        for (int axis = 1; axis < 4; axis++)
            out |= (uint32_t)at[axis] + (uint32_t)range / 2 >= (uint32_t)range;
        return out ? VX_KEY_EMPTY : vx_key_pack(at[0], at[1], at[2], at[3]);
    }
    for (int axis = 0; axis < 4; axis++) {
        uint32_t inside = (uint32_t)at[axis] - (uint32_t)table->least[axis];
        if (inside >= (uint32_t)table->size[axis]) return VX_KEY_EMPTY;
        key = key * (uint32_t)table->size[axis] + inside;
    }
    return key;
}

/* The key in a slot, VX_KEY_EMPTY when it is free. */
VX_BOTH uint64_t vx_hash_slot(const struct vx_hash_table *table, uint64_t slot)
{
    if (table->key_bits == 64) return ((const uint64_t *)table->slots_key)[slot];
    uint32_t key = ((const uint32_t *)table->slots_key)[slot];
    return key == ~0u ? VX_KEY_EMPTY : key;
}

/* The row of a voxel, -1 none. */
VX_BOTH int32_t vx_hash_find(const struct vx_hash_table *table, const int32_t at[4])
{
    uint64_t key = vx_hash_key(table, at), last = table->slots_count - 1;
    if (key == VX_KEY_EMPTY) return -1;
    for (uint64_t slot = vx_key_mix(key) & last;; slot = (slot + 1) & last) {
        uint64_t found = vx_hash_slot(table, slot);
        if (found == key) return table->slots_row[slot];
        if (found == VX_KEY_EMPTY) return -1;
    }
}

/* Row i of the coordinates as sample x y z. */
VX_BOTH void vx_hash_voxel(const int32_t *coords, int32_t columns, int64_t i,
                           int32_t at[4])
{
    const int32_t *row = coords + i * columns + columns - 3;
    at[0] = columns == 4 ? row[-1] : 0;
    for (int axis = 0; axis < 3; axis++) at[axis + 1] = row[axis];
}

#endif
