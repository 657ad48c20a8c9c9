/* brick_insert - adds voxels to a set whose bricks are being made by many waves at once.
 *
 *   vx_brick_insert(&to, seed, mask ? key : 0, mask);     a brick for each lane
 *
 * Owner    -
 * Thread   device code; every lane of a wave calls it.
 * Limits   as 21_set_derive: slots and counts began as zeros.
 * Fails    fault[0] of the counts: a brick found no room in the list.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_BRICK_INSERT_CUH
#define VX_KERNELS_BRICK_INSERT_CUH

#include "kernels/21_set_derive.h"
#include "kernels/waves.cuh"

/* Takes `count` numbers of a counter for this lane; one atomic serves the wave, and every
 * lane must call it.  Returns the first of this lane's numbers. */
VX_DEVICE uint32_t vx_wave_take(uint32_t *counter, uint32_t count)
{
    uint32_t through = vx_wave_sum_through(count), first = 0;
    if (vx_lane() == VX_WAVE - 1 && through) first = vx_atomic_add(counter, through);
    return vx_shuffle(first, VX_WAVE - 1) + through - count;
}

/* Lists the slots that the lanes of a wave have made.  Beyond the room of the list a slot
 * is not listed, and its number is given back: the counter ends at rows_max at most.
 * Returns whether this lane's slot is listed. */
VX_DEVICE int vx_brick_list(const struct vx_brick_set *to, uint32_t slot, int made)
{
    uint32_t number = vx_wave_take(&to->counts->bricks, made ? 1 : 0);
    int beyond = made && number >= to->rows_max;
    vx_lanes back = vx_lanes_said(beyond);
    if (back && vx_lane() == 0)
        (void)vx_atomic_add(&to->counts->bricks, 0u - vx_lanes_count(back));
    if (beyond) to->counts->fault[0] = 1;
    if (made && !beyond) to->list[number] = slot;
    return made && !beyond;
}

/* Adds a mask to each lane's brick, which it finds or creates; key 0: the lane has none.
 * Every lane of the wave must call it.
 *
 * A table has twice as many slots as its list has room, so that it is full only when a
 * slot was made that could not be listed: a lane that has seen two slots looks
 * whether that has happened, and never searches a full table for ever. */
VX_DEVICE void vx_brick_insert(const struct vx_brick_set *to, uint64_t seed, uint64_t key,
                               uint64_t mask)
{
    const struct vx_brick_way way = vx_brick_way(key, to->slots_count, seed);
    uint32_t slot = way.start;
    while (vx_ballot(key != 0)) {
        int made = 0, there = 0;
        if (key) {
            uint64_t found = to->slots[slot].key;
            if (!found) {
                found = vx_atomic_swap_if64(&to->slots[slot].key, 0, key);
                made = !found;
            }
            there = found == key;
        }
        if (vx_ballot(made)) there |= vx_brick_list(to, slot, made);
        if (there) (void)vx_atomic_or64(&to->slots[slot].mask, mask);
        if (there || made) key = 0;
        if (!key) continue;
        slot = vx_brick_next(slot, way, to->slots_count);
        const int others = !((slot ^ way.start) & 1u);
        if (others && *(volatile uint32_t *)&to->counts->fault[0]) key = 0;
    }
}

/* The key of a brick at any place of the same sample, 0 beyond the coordinate range. */
VX_DEVICE uint64_t vx_brick_at(uint64_t key, const int32_t at[3])
{
    uint32_t x = (uint32_t)at[0] + (1u << 15), y = (uint32_t)at[1] + (1u << 15);
    uint32_t z = (uint32_t)at[2] + (1u << 15);
    if ((x | y | z) >> 16) return 0;
    return (key >> 48 << 48) | (uint64_t)x << 32 | (uint64_t)(y << 16 | z);
}

#endif
