/* map - the neighbour map of sorted keys for one kernel and dilation.
 *
 * Half of the offsets are looked up, both entries of a pair are written.  Looking up is walking:
 * the keys that stand at one offset from rising keys rise too, so two fingers move along the same
 * array, and the offsets of one column (equal x and y) share a finger.
 *
 *   vx_map_build(cpu, &build);
 *
 * Owner    the caller: keys are read, nbr is written.
 * Thread   one at a time; work is spread over the CPU device's threads.
 * Limits   as 02_neighbor_map.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_MAP_H
#define VX_ENGINE_GEOMETRY_MAP_H

#include "engine/geometry/geometry.h"
#include "engine/geometry/keys.h"

struct vx_map_build {
    struct vx_keys set; /* sorted, none twice */
    i32 least[3];       /* of x y z over all rows */
    i32 most[3];
    struct vx_map_key key;
    i32 *nbr;  /* (V, N) out */
    i64 pairs; /* out */
};
i32 vx_map_offsets(const struct vx_map_key *key);
void vx_map_build(struct vx_cpu *cpu, struct vx_map_build *build);

#endif
