/* brick_map - what 03_brick_map and 22_level_map do around their look-ups: rows that no
 * brick has, and the sum of the pairs.
 *
 *   struct vx_map_out out = {args->n, ...};
 *   vx_map_nothing(&out, counts);     counts: of the set whose rows are written
 *   vx_tally(&out, counts, pairs, &shared);
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
#include "kernels/waves.cuh"

/* What a map is written to, as in the kernels' arguments. */
struct vx_map_out {
    int64_t n;
    uint32_t blocks; /* of the launch */
    int32_t nbr_stride, words;
    int32_t *nbr;    /* (N, nbr_stride) */
    uint32_t *masks; /* (N, words) or NULL */
    uint64_t *pairs; /* (1) or NULL */
};

/* After a fault some rows have no brick: they get no neighbours. */
VX_DEVICE void vx_map_nothing(const struct vx_map_out *out,
                              const struct vx_brick_counts *counts)
{
    int64_t step = (int64_t)out->blocks * VX_BRICK_MAP_THREADS;
    int64_t row = counts->rows + (int64_t)vx_block_x() * VX_BRICK_MAP_THREADS;
    for (row += vx_thread(); row < out->n; row += step) {
        for (int32_t v = 0; v < out->nbr_stride; v++)
            out->nbr[row * out->nbr_stride + v] = -1;
        for (int32_t word = 0; out->masks && word < out->words; word++)
            out->masks[row * out->words + word] = 0;
    }
}

/* Adds up the pairs of the block in `shared` and those of the launch in the tally.  The
 * last block writes the sum, unless pairs is NULL, and sets the tally back to zero. */
VX_DEVICE void vx_tally(const struct vx_map_out *out, struct vx_brick_counts *counts,
                        uint64_t pairs, uint64_t *shared)
{
    if (!out->pairs) return;
    vx_barrier();
    if (vx_thread() == 0) *shared = 0;
    vx_barrier();
    /* By waves first: 256 threads at one word of shared memory wait for each other. */
    pairs = vx_wave_sum64(pairs);
    if (vx_lane() == 0 && pairs) (void)vx_atomic_add64(shared, pairs);
    vx_barrier();
    if (vx_thread() != 0) return;
    uint64_t one = (uint64_t)1 << VX_BRICK_TALLY_BITS;
    uint64_t before = vx_atomic_add64(&counts->tally, one + *shared);
    if (before >> VX_BRICK_TALLY_BITS != out->blocks - 1) return;
    *out->pairs = (before + *shared) & (one - 1);
    counts->tally = 0;
}

#endif
