/* room - how much of a geometry cache a geometry takes; pure.
 *
 * A cache hands out pieces, powers of two (engine/base/buddy.h): a geometry that needs 27
 * bytes may take 32, and in a cache of 100 there is no second place for it.
 *
 *   if (vx_geometry_room(plan->maps_by_size, plan->maps_count, n) <= cache_bytes) ...fits...
 *
 * Thread   any.
 * Limits   none: the numbers of VX_VOXELS_MAX rows and VX_LAYERS_MAX maps do not overflow.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_ROOM_H
#define VX_ENGINE_GEOMETRY_ROOM_H

#include "engine/geometry/geometry.h"

/* A page: what the kernel hands out, so that a small geometry touches no more than it needs. */
#define VX_GEOMETRY_UNIT_BYTES 4096

/* Of keys and rows, and of one map. */
size_t vx_geometry_set_bytes(i64 n);
size_t vx_geometry_map_bytes(const struct vx_map_key *key, i64 n);

/* Bytes of cache in which any geometry of n voxels is built, whatever lay there before, when
 * nobody else holds anything and the maps are asked for in this order: the largest first. */
size_t vx_geometry_room(const struct vx_map_key *const *maps, i32 maps_count, i64 n);

#endif
