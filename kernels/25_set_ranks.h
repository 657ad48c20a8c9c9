/* 25_set_ranks - what a request keeps of the canonical order of a set.
 *
 * Math     with r = rows[first + p] - first:
 *          rank[r]   = p
 *          coords[p] = sample, x, y, z of keys[first + r]
 *          order[p]  = r
 *          sorted[p] = keys[first + r]
 * Shapes   keys, rows (N): all members, one after the other; member m has n_m of them from
 *          first_m on; rank, order, sorted (n_m)  coords (n_m, 4)
 * Types    u64 keys as vx_key_pack makes them, i32 the rest.
 * Idea     23_key_order says which row comes where.  Rows that leave the device need the
 *          inverse (14_rows), and their coordinates; sums over samples need the order, and
 *          the keys to find where samples begin.  A kept geometry is not sorted again.
 * Steps    1 the row and its key   2 write
 * Tiles    a thread takes a row; a row of blocks (y) for each member.
 * Cost     bytes per row 12 read, 8 of them at random places, up to 32 written.
 * Limits   rows is a permutation of each member's rows; no member has key VX_KEY_EMPTY.
 *          count < 2^16; blocks * VX_RANK_THREADS may be less than the largest n_m.
 * Order    exact.
 * Oracle   25_set_ranks_ref.c, tests/oracle.
 * Source   -
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_SET_RANKS_H
#define VX_KERNELS_SET_RANKS_H

#include "kernels/01_coord_hash.h"

#include <stdint.h>

#define VX_RANK_THREADS 256

/* Each out: NULL is not written. */
struct vx_set_ranks_member {
    int64_t n, first;
    int32_t *rank;    /* (n) */
    int32_t *coords;  /* (n, 4) */
    int32_t *order;   /* (n) */
    uint64_t *sorted; /* (n) */
};
struct vx_set_ranks_args {
    int64_t count; /* members */
    uint32_t blocks;
    const struct vx_set_ranks_member *members; /* (count) in device memory */
    const uint64_t *keys;                      /* (N) */
    const int32_t *rows;                       /* (N) in canonical order */
};

void vx_set_ranks_ref(const struct vx_set_ranks_args *args);

#endif
