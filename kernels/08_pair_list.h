/* 08_pair_list - the pairs (row, neighbour) of each offset, one list after the other.
 *
 * Math     pair(i,v)          = starts[v] + number of rows before i that have offset v
 *          in_rows[pair(i,v)] = nbr[i,v]
 *          places[i,v]        = pair(i,v), -1 where nbr[i,v] is -1
 *          starts[v]          = number of pairs of the offsets before v; starts[V] = all
 * Shapes   nbr, places (N,S), S = V rounded up to 4  starts (V+1)  in_rows (pairs)
 *          counts (V, tiles)  totals (V)
 * Types    i32; counts u32.
 * Idea     The pairs of an offset are compacted without atomics: a pair's place follows
 *          from the counts of the tiles before, of the waves before, and of the lanes
 *          below.
 * Steps    1 pairs_count: hits of each offset in each tile
 *          2 count_scan (05_mask_order)
 *          3 pairs_write
 * Tiles    VX_PAIRS_TILE rows, a row for each thread.
 * Cost     bytes 2*4*S*N read (pairs_write reads its tile a second time, from cache),
 *          4*S*N + 4*pairs written.
 * Limits   V <= 343; pairs < 2^31; N <= 2^30.
 * Order    exact: rows rise inside an offset.
 * Oracle   08_pair_list_ref.c.
 * Source   -
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_PAIR_LIST_H
#define VX_KERNELS_PAIR_LIST_H

#include <stdint.h>

/* Rows of one block, and its threads.  The tile's part of nbr, 28 KB for 27 offsets,
 * stays in the first-level cache from one offset to the next. */
#define VX_PAIRS_TILE 256
/* Offsets that shared memory has counters for: 343 rounded up to 4. */
#define VX_PAIRS_OFFSETS 344

/* The arguments of pairs_count and pairs_write. */
struct vx_pair_list_args {
    int64_t n;
    int64_t tiles; /* N / VX_PAIRS_TILE rounded up */
    int32_t v;
    int32_t nbr_stride;
    const int32_t *nbr;     /* (N, nbr_stride) */
    uint32_t *counts;       /* (V, tiles) out of count; in of write, after count_scan */
    const uint32_t *totals; /* (V) in of write */
    int32_t *starts;        /* (V+1) out of write */
    int32_t *in_rows;       /* (pairs) out of write */
    int32_t *places;        /* (N, nbr_stride) out of write */
};

#endif
