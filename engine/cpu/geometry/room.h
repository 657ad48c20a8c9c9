/* room - computes the bytes of the geometry cache that a geometry needs; pure.
 *
 * The most that its blocks have at one moment of the build, each in whole pages.  That this
 * is enough: a block that finds no aligned place of a power of two (buddy.h) has everything
 * evicted that is not in use, and then all blocks are moved together (pack.c).  So it is
 * refused only when the pages of what is in use and its own are more than the cache has.
 *
 *   size_t bytes = vx_geometry_room(&need);
 *   if (bytes <= cache_bytes) ...fits...
 *
 * Thread   any.
 * Limits   VX_VOXELS_MAX rows, VX_SETS_MAX sets and VX_LAYERS_MAX maps do not overflow.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_ROOM_H
#define VX_ENGINE_GEOMETRY_ROOM_H

#include "engine/cpu/geometry/geometry.h"

/* The smallest block is a page: a small geometry touches no more than it needs. */
#define VX_GEOMETRY_UNIT_BYTES 4096

/* Bytes of keys and rows, and of one map of n rows. */
size_t vx_geometry_set_bytes(i64 n);
size_t vx_geometry_map_bytes(const struct vx_map_key *key, i64 n);

/* What a request asks for, in this order: the sets, then the maps; of stage 0, then of stage
 * 1, and so on.  The order of sets among themselves, or of maps, matters only for scratch. */
struct vx_geometry_need {
    i32 sets_count;
    const i64 *rows;       /* the most rows of each set */
    const i64 *candidates; /* the most voxels that each set but 0 is made from */
    const i32 *stages;     /* of each set; NULL: all are of stage 0 */
    const struct vx_map_key *const *maps;
    i32 maps_count;
};
/* The cache size in which such a geometry can be built, whatever the cache held before.  What
 * else is in use meanwhile adds its own pages. */
size_t vx_geometry_room(const struct vx_geometry_need *need);

#endif
