/* brick_map - what 03_brick_map and 22_level_map do around their look-ups: rows that no
 * brick has, and the sum of the pairs.
 *
 * Both take their kernel's arguments, which have n, blocks, nbr, nbr_stride, masks, words
 * and pairs; `counts` are those of the set whose rows are written.
 *
 * Owner    -
 * Thread   device code; every thread of a block calls it.
 * Limits   at most VX_BRICK_MAP_THREADS threads; blocks < 2^16.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_BRICK_MAP_CUH
#define VX_KERNELS_BRICK_MAP_CUH

#include "kernels/03_brick_map.h"
#include "kernels/device.h"

/* After a fault some rows have no brick: they get no neighbours.  masks may be NULL. */
template <typename Args>
VX_DEVICE void vx_map_nothing(const Args *args, const struct vx_brick_counts *counts)
{
    int64_t step = (int64_t)args->blocks * VX_BRICK_MAP_THREADS;
    int64_t row = counts->rows + (int64_t)vx_block_x() * VX_BRICK_MAP_THREADS;
    for (row += vx_thread(); row < args->n; row += step) {
        for (int32_t v = 0; v < args->nbr_stride; v++)
            args->nbr[row * args->nbr_stride + v] = -1;
        for (int32_t word = 0; args->masks && word < args->words; word++)
            args->masks[row * args->words + word] = 0;
    }
}

/* Adds up the pairs of the block in `shared` and those of the launch in the tally.  The
 * last block writes the sum, unless pairs is NULL, and sets the tally back to zero. */
template <typename Args>
VX_DEVICE void vx_tally(const Args *args, struct vx_brick_counts *counts, uint64_t pairs,
                        uint64_t *shared)
{
    if (!args->pairs) return;
    vx_barrier();
    if (vx_thread() == 0) *shared = 0;
    vx_barrier();
    if (pairs) (void)vx_atomic_add64(shared, pairs);
    vx_barrier();
    if (vx_thread() != 0) return;
    uint64_t one = (uint64_t)1 << VX_BRICK_TALLY_BITS;
    uint64_t before = vx_atomic_add64(&counts->tally, one + *shared);
    if (before >> VX_BRICK_TALLY_BITS != args->blocks - 1) return;
    *args->pairs = (before + *shared) & (one - 1);
    counts->tally = 0;
}

#endif
