/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/08_pair_list.h"
#include "kernels/turn.cuh"
#include "kernels/waves.cuh"

#define WAVES (VX_PAIRS_TILE / VX_WAVE)

#if 2 * VX_PAIRS_TILE < VX_PAIRS_OFFSETS
#error "VX_PAIRS_TILE must be >= VX_PAIRS_OFFSETS / 2: a thread for every two offsets"
#endif

/* Four neighbours of a row from offset v, -1 where there is none. */
VX_DEVICE void neighbours(const struct vx_pair_list_args *args, int64_t row, int32_t v,
                          int32_t *found)
{
    struct vx_words4 words = {~0u, ~0u, ~0u, ~0u};
    if (row < args->n)
        words = *(const struct vx_words4 *)(args->nbr + row * args->nbr_stride + v);
    found[0] = (int32_t)words.x;
    found[1] = v + 1 < args->v ? (int32_t)words.y : -1;
    found[2] = v + 2 < args->v ? (int32_t)words.z : -1;
    found[3] = v + 3 < args->v ? (int32_t)words.w : -1;
}

VX_KERNEL(VX_PAIRS_TILE, 4) pairs_count(struct vx_pair_list_args args)
{
    vx_turn();
    VX_SHARED uint32_t counts[VX_PAIRS_OFFSETS];
    int64_t row = (int64_t)vx_block_x() * VX_PAIRS_TILE + vx_thread();
    for (uint32_t v = vx_thread(); v < VX_PAIRS_OFFSETS; v += VX_PAIRS_TILE)
        counts[v] = 0;
    vx_barrier();
    for (int32_t v = 0; v < args.v; v += 4) {
        int32_t found[4];
        neighbours(&args, row, v, found);
        VX_UNROLL
        for (int32_t k = 0; k < 4; k++) {
            vx_lanes said = vx_lanes_said(found[k] >= 0);
            if (vx_lane() == 0 && said)
                vx_atomic_add(&counts[v + k], vx_lanes_count(said));
        }
    }
    vx_barrier();
    for (uint32_t v = vx_thread(); v < (uint32_t)args.v; v += VX_PAIRS_TILE)
        args.counts[v * args.tiles + vx_block_x()] = counts[v];
}

/* Turns each wave's counters into the places of its first pairs.  Thread t has the
 * offsets 2t and 2t + 1. */
VX_DEVICE void pairs_place(const struct vx_pair_list_args *args, uint32_t *counts,
                           uint32_t *sums)
{
    uint32_t totals[2], all;
    uint32_t first = 2 * vx_thread();
    for (uint32_t k = 0; k < 2; k++)
        totals[k] = first + k < (uint32_t)args->v ? args->totals[first + k] : 0;
    uint32_t start = vx_block_sum_before(totals[0] + totals[1], sums, WAVES, &all);
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t v = first + k;
        if (v < (uint32_t)args->v) {
            uint32_t at = start + args->counts[v * args->tiles + vx_block_x()];
            for (uint32_t wave = 0; wave < WAVES; wave++) {
                uint32_t count = counts[wave * VX_PAIRS_OFFSETS + v];
                counts[wave * VX_PAIRS_OFFSETS + v] = at;
                at += count;
            }
            if (vx_block_x() == 0) args->starts[v] = (int32_t)start;
        }
        start += totals[k];
    }
    if (vx_block_x() == 0 && vx_thread() == 0) args->starts[args->v] = (int32_t)all;
}

VX_KERNEL(VX_PAIRS_TILE, 4) pairs_write(struct vx_pair_list_args args)
{
    vx_turn();
    VX_SHARED uint32_t counts[WAVES * VX_PAIRS_OFFSETS];
    VX_SHARED uint32_t sums[WAVES];
    int64_t row = (int64_t)vx_block_x() * VX_PAIRS_TILE + vx_thread();
    uint32_t *own = counts + vx_wave() * VX_PAIRS_OFFSETS;
    int32_t found[4];
    for (int32_t v = 0; v < args.v; v += 4) {
        neighbours(&args, row, v, found);
        VX_UNROLL
        for (int32_t k = 0; k < 4; k++) {
            uint32_t count = vx_lanes_count(vx_lanes_said(found[k] >= 0));
            if (vx_lane() == 0) own[v + k] = count;
        }
    }
    vx_barrier();
    pairs_place(&args, counts, sums);
    vx_barrier();
    for (int32_t v = 0; v < args.v; v += 4) {
        neighbours(&args, row, v, found);
        VX_UNROLL
        for (int32_t k = 0; k < 4; k++) {
            vx_lanes said = vx_lanes_said(found[k] >= 0);
            uint32_t place = own[v + k] + vx_lanes_count(said & vx_lanes_below());
            if (found[k] >= 0) args.in_rows[place] = found[k];
            found[k] = found[k] >= 0 ? (int32_t)place : -1;
        }
        struct vx_words4 words = {(uint32_t)found[0], (uint32_t)found[1],
                                  (uint32_t)found[2], (uint32_t)found[3]};
        if (row < args.n)
            *(struct vx_words4 *)(args.places + row * args.nbr_stride + v) = words;
    }
}
