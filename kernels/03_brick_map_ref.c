/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/03_brick_map.h"

/* The row of the voxel at `at`, -1 none. */
static int32_t row_at(const struct vx_brick_map_args *args, int32_t sample,
                      const int32_t at[3])
{
    uint64_t key = vx_brick_key(sample, at[0], at[1], at[2]), mask;
    uint32_t slot = vx_brick_find(args->slots, args->slots_count, args->seed, key, &mask);
    uint32_t bit = vx_brick_bit(at[0], at[1], at[2]);
    if (!(mask >> bit & 1u)) return -1;
    int32_t row = args->base[slot];
    for (uint32_t below = 0; below < bit; below++) row += (int32_t)(mask >> below & 1u);
    return row;
}

/* Writes one row of nbr and of masks.  voxel: sample, x, y, z; NULL = it has none. */
static void map_row(const struct vx_brick_map_args *args, int64_t row,
                    const int32_t voxel[4])
{
    int32_t *nbr = args->nbr + row * args->nbr_stride;
    uint32_t *mask = args->masks + row * args->words;
    for (int32_t v = 0; v < args->nbr_stride; v++) nbr[v] = -1;
    for (int32_t word = 0; word < args->words; word++) mask[word] = 0;
    for (int32_t v = 0; voxel && v < args->v; v++) {
        int32_t at[3];
        for (int32_t axis = 0; axis < 3; axis++)
            at[axis] = voxel[axis + 1] + vx_brick_offset(args, v, axis);
        nbr[v] = row_at(args, voxel[0], at);
        if (nbr[v] < 0) continue;
        mask[v / 32] |= 1u << v % 32;
        ++*args->pairs;
    }
}

void vx_brick_map_ref(const struct vx_brick_map_args *args)
{
    *args->pairs = 0;
    for (uint32_t b = 0; b < args->counts->bricks; b++) {
        uint64_t key = args->slots[args->list[b]].key;
        uint64_t mask = args->slots[args->list[b]].mask;
        int64_t row = args->base[args->list[b]];
        for (int32_t bit = 0; bit < 64; bit++) {
            if (!(mask >> bit & 1u)) continue;
            int32_t voxel[4] = {
                (int32_t)(key >> 48 & 511u),
                (int32_t)(key >> 32 & 0xffffu) * 4 - (1 << 17) + bit / 16,
                (int32_t)(key >> 16 & 0xffffu) * 4 - (1 << 17) + bit / 4 % 4,
                (int32_t)(key & 0xffffu) * 4 - (1 << 17) + bit % 4,
            };
            map_row(args, row++, voxel);
        }
    }
    for (int64_t row = args->counts->rows; row < args->n; row++) map_row(args, row, 0);
}

void vx_brick_map_many_ref(const struct vx_brick_map_many_args *args)
{
    for (int64_t set = 0; set < args->count; set++) vx_brick_map_ref(&args->sets[set]);
}
