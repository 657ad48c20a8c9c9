/* 02_neighbor_map - for every voxel and every kernel offset, the row of the voxel found
 * there.
 *
 * Math     nbr[v,i] = row of key(i) + offset(v), -1 if there is none.  For v = (kx*Ky +
 *          ky)*Kz + kz offset(v) = ((kx - Kx/2)*dx, (ky - Ky/2)*dy, (kz - Kz/2)*dz), in
 *          the same sample.
 * Shapes   keys (N)  slots_key, slots_row (S), 01_coord_hash.h  nbr (V,N)
 * Types    u64 keys, i32 rows.
 * Idea     The set is its own neighbourhood: if j stands at offset v from i, then i
 *          stands at the opposite offset V-1-v from j.  So half of the offsets are looked
 *          up and both entries are written; the middle offset is the voxel itself.
 * Steps    1 all entries -1   2 middle: nbr[V/2,i] = i   3 for v < V/2: look up, write
 *          both.
 * Tiles    rows; entries of one row are written by the owners of other rows, so step 1
 *          ends before step 3 begins.  No two of them write the same entry.
 * Cost     (V-1)/2 look-ups per voxel; bytes 4*V*N written twice (step 1 and the hits).
 * Limits   kernel odd, V <= 343, dilation >= 1.  A neighbour beyond the coordinate range
 *          does not exist: an addition may not carry from one field of the key into the
 *          next.
 * Order    exact.
 * Oracle   02_neighbor_map_ref.c, tests/unit/test_kernels.c (against all pairs).
 * Source   Graham et al., CVPR 2018; mirror symmetry: SECOND (Yan et al., Sensors 2018).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_NEIGHBOR_MAP_H
#define VX_KERNELS_NEIGHBOR_MAP_H

#include <stdint.h>

struct vx_neighbor_map_args {
    const uint64_t *keys; /* (N) packed coordinates, 01_coord_hash.h */
    const uint64_t *slots_key;
    const int32_t *slots_row;
    uint64_t slots_count; /* power of two */
    int64_t n;
    int32_t kernel[3];   /* odd, along x y z */
    int32_t dilation[3]; /* >= 1 */
    int32_t *nbr; /* (V, N) out: row of the neighbour, -1 empty; v = (kx*Ky+ky)*Kz+kz */
};

void vx_neighbor_map_ref(const struct vx_neighbor_map_args *args);

#endif
