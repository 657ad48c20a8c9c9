/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/geometry/room.h"

#include "engine/base/memory/buddy.h"
#include "engine/cpu/geometry/keys.h"
#include "engine/cpu/geometry/map.h"

size_t vx_geometry_set_bytes(i64 n)
{
    static const struct vx_keys *set;
    return ((size_t)n + 1) * (sizeof *set->keys + sizeof *set->rows);
}

size_t vx_geometry_map_bytes(const struct vx_map_key *key, i64 n)
{
    return (size_t)vx_map_offsets(key) * (size_t)n * sizeof(i32);
}

/* To place a block, count the aligned places of its size.  A smaller block in use makes
 * one of them unusable, wherever it lies; a larger one makes unusable as many as it
 * contains.  While a map is built, only the set and the larger maps are held, and
 * everything else can be evicted; while the set is sorted, a second set is held, too. */
size_t vx_geometry_room(const struct vx_map_key *const *maps, i32 maps_count, i64 n)
{
    if (!n) return 0;
    size_t set = vx_buddy_piece(VX_GEOMETRY_UNIT_BYTES, vx_geometry_set_bytes(n));
    size_t need = 2 * set, larger = 0;
    for (i32 i = 0; i < maps_count; i++) {
        size_t piece =
            vx_buddy_piece(VX_GEOMETRY_UNIT_BYTES, vx_geometry_map_bytes(maps[i], n));
        size_t with = larger + piece + (set > piece ? set : piece);
        if (with > need) need = with;
        larger += piece;
    }
    return need;
}
