/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/geometry/room.h"

#include "engine/base/limits.h"
#include "engine/base/memory/buddy.h"
#include "engine/base/process/check.h"
#include "engine/cpu/geometry/keys.h"

/* Sets, maps, and the two blocks in which a set is sorted. */
#define BLOCKS_MAX (VX_SETS_MAX + VX_LAYERS_MAX + 2)

size_t vx_geometry_set_bytes(i64 n)
{
    static const struct vx_keys *set;
    return ((size_t)n + 1) * (sizeof *set->keys + sizeof *set->rows);
}

size_t vx_geometry_map_bytes(const struct vx_map_key *key, i64 n)
{
    return (size_t)vx_map_offsets(key) * (size_t)n * sizeof(i32);
}

/* The blocks that are held at one moment of a build, and the most room needed so far. */
struct room {
    size_t blocks[BLOCKS_MAX];
    i32 count;
    size_t need;
};

/* To place a block, count the aligned places of its size.  A smaller block in use makes
 * one of them unusable, wherever it lies; a larger one makes unusable as many as it
 * contains.  Everything that is not held can be evicted. */
static void room_take(struct room *room, size_t bytes)
{
    size_t block = vx_buddy_piece(VX_GEOMETRY_UNIT_BYTES, bytes), need = block;
    VX_ASSERT(room->count < BLOCKS_MAX);
    for (i32 i = 0; i < room->count; i++)
        need += room->blocks[i] > block ? room->blocks[i] : block;
    if (need > room->need) room->need = need;
    room->blocks[room->count++] = block;
}

/* A set other than 0: two blocks of candidates, for their sort, then the set alone. */
static void room_set(struct room *room, const struct vx_geometry_need *need, i32 set)
{
    room_take(room, vx_geometry_set_bytes(need->candidates[set]));
    room_take(room, vx_geometry_set_bytes(need->candidates[set]));
    room->count--;
    room_take(room, vx_geometry_set_bytes(need->rows[set]));
    /* The candidates are given back, the set stays. */
    room->blocks[room->count - 2] = room->blocks[room->count - 1];
    room->count--;
}

static i32 set_stage(const struct vx_geometry_need *need, i32 set)
{
    return need->stages ? need->stages[set] : 0;
}

static i32 map_stage(const struct vx_geometry_need *need, const struct vx_map_key *map)
{
    i32 from = set_stage(need, map->from), to = set_stage(need, map->to);
    return from > to ? from : to;
}

/* A map; what ORDER sorts is given back. */
static void room_map(struct room *room, const struct vx_geometry_need *need, i32 index)
{
    const struct vx_map_key *map = need->maps[index];
    const i64 rows = need->rows[map->to];
    room_take(room, vx_geometry_map_bytes(map, rows));
    if (map->kind != VX_MAP_ORDER) return;
    room_take(room, vx_geometry_set_bytes(rows));
    room_take(room, vx_geometry_set_bytes(rows));
    room->count -= 2;
}

size_t vx_geometry_room(const struct vx_geometry_need *need)
{
    struct room room = {.count = 0};
    i32 last = 0;
    if (!need->rows[0]) return 0;
    room_take(&room, vx_geometry_set_bytes(need->rows[0]));
    room_take(&room, vx_geometry_set_bytes(need->rows[0])); /* the scratch of its sort */
    room.count--;
    for (i32 i = 1; i < need->sets_count; i++)
        if (last < set_stage(need, i)) last = set_stage(need, i);
    for (i32 stage = 0; stage <= last; stage++) {
        for (i32 i = 1; i < need->sets_count; i++)
            if (set_stage(need, i) == stage) room_set(&room, need, i);
        for (i32 i = 0; i < need->maps_count; i++)
            if (map_stage(need, need->maps[i]) == stage) room_map(&room, need, i);
    }
    return room.need;
}
