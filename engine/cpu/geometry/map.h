/* map - builds neighbour maps of sorted keys: of one set, and between two sets.
 *
 * When keys rise, the keys at one offset from them rise, too.  So a look-up moves a cursor
 * along the sorted array and needs no search.  In one set only half of the offsets are
 * looked up, because each pair found gives two entries, and the offsets of one column
 * (equal x and y) share a cursor.
 *
 *   vx_map_build(cpu, &build);                (kind SUBM)
 *   vx_map_build_between(cpu, &between);      (every other kind but ORDER)
 *
 * Owner    the caller owns keys, which are read, and nbr, which is written.
 * Thread   one at a time; work is spread over the CPU device's threads.
 * Limits   as 02_neighbor_map.h; map_key.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_MAP_H
#define VX_ENGINE_GEOMETRY_MAP_H

#include "engine/cpu/geometry/geometry.h"
#include "engine/cpu/geometry/keys.h"

struct vx_map_build {
    struct vx_keys set; /* sorted, without duplicates */
    i32 least[3];       /* bounds of x y z over all rows */
    i32 most[3];
    struct vx_map_key key;
    i32 *nbr;  /* (V, N) out */
    i64 pairs; /* out */
};
void vx_map_build(struct vx_cpu *cpu, struct vx_map_build *build);

struct vx_map_between {
    struct vx_keys from, to; /* sorted, without duplicates */
    struct vx_map_key key;
    i32 *nbr;  /* (V, N of `to`) out */
    i64 pairs; /* out */
};
void vx_map_build_between(struct vx_cpu *cpu, struct vx_map_between *between);
/* CORNER, and PARENT whatever the stride is (cells.c); vx_map_build_between calls it. */
void vx_map_build_cells(struct vx_cpu *cpu, struct vx_map_between *between);

#endif
