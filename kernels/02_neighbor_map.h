/* 02_neighbor_map - for every voxel and every kernel offset, the row of the voxel there.
 *
 * Math     nbr[v,i]  = row of the voxel at coordinates(i) + offset(v) in the same sample,
 *                      -1 if there is none
 *          offset(v) = ((kx - Kx/2)*dx, (ky - Ky/2)*dy, (kz - Kz/2)*dz)
 *          v         = (kx*Ky + ky)*Kz + kz
 * Shapes   keys (N)  slots_key, slots_row (S), 01_coord_hash.h  nbr (V,N)
 * Types    u64 keys, i32 rows.
 * Idea     Neighbours are mutual: if j is at offset v from i, then i is at the opposite
 *          offset V-1-v from j.  So only half of the offsets are looked up, and each hit
 *          writes both entries.  The middle offset is the voxel itself.
 * Steps    1 set all entries to -1
 *          2 middle: nbr[V/2,i] = i
 *          3 for v < V/2: look up, write both entries
 * Tiles    rows.  An entry of a row may be written by the owner of another row, so step 1
 *          ends before step 3 begins.  No entry is written by two of them.
 * Cost     (V-1)/2 look-ups per voxel; bytes 4*V*N written twice (step 1 and the hits).
 * Limits   kernel odd, V <= 343, dilation >= 1.  A neighbour beyond the coordinate range
 *          does not exist: the addition must not carry from one field of the key into the
 *          next.
 * Order    exact.
 * Oracle   02_neighbor_map_ref.c, tests/unit/kernels/test_kernels.c (against all pairs).
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
    int32_t *nbr;        /* (V, N) out: row of the neighbour, -1 empty */
};

void vx_neighbor_map_ref(const struct vx_neighbor_map_args *args);

#endif
