/* derive - makes the voxels of a set from those of another one (engine/set_key.h).
 *
 * Every voxel of the source names the voxels that follow from it, its candidates; sorted,
 * and each kept once, they are the new set.  A first pass counts them, so that the caller
 * can give the room, or refuse a set that will be too large.
 *
 *   i64 count = vx_derive_count(cpu, &from, &key);
 *   i64 least = vx_derive_rows_least(&key, count, &exact);
 *   vx_derive_fill(cpu, &from, &key, &candidates, &scan);
 *   vx_keys_sort(cpu, &scan, &sort);
 *   i64 rows = vx_derive_unique_count(cpu, &candidates);
 *   vx_derive_unique(cpu, &candidates, &set);
 *
 * Owner    the caller owns all memory.
 * Thread   one at a time; work is spread over the CPU device's threads.
 * Limits   at most VX_VOXELS_MAX candidates, which the caller checks.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_DERIVE_H
#define VX_ENGINE_GEOMETRY_DERIVE_H

#include "engine/cpu/geometry/keys.h"
#include "engine/set_key.h"

/* The candidates of all voxels of `from`, equal ones counted each time. */
i64 vx_derive_count(struct vx_cpu *cpu, const struct vx_keys *from,
                    const struct vx_set_key *key);
/* The fewest voxels that so many candidates can be; *exact: each is one of its own. */
i64 vx_derive_rows_least(const struct vx_set_key *key, i64 candidates, bool *exact);
/* Writes them to `candidates`, whose n is their count, those of each voxel behind those of
 * the voxel before it; rows are not set.  *scan gets their bounds. */
void vx_derive_fill(struct vx_cpu *cpu, const struct vx_keys *from,
                    const struct vx_set_key *key, const struct vx_keys *candidates,
                    struct vx_keys_scan *scan);
/* The different keys of a sorted list. */
i64 vx_derive_unique_count(struct vx_cpu *cpu, const struct vx_keys *sorted);
/* Copies each of them once to `set`, whose n is their count; row i is the i-th key. */
void vx_derive_unique(struct vx_cpu *cpu, const struct vx_keys *sorted,
                      const struct vx_keys *set);

#endif
