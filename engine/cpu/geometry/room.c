/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/geometry/room.h"

#include "engine/cpu/geometry/keys.h"

size_t vx_geometry_set_bytes(i64 n)
{
    static const struct vx_keys *set;
    return ((size_t)n + 1) * (sizeof *set->keys + sizeof *set->rows);
}

size_t vx_geometry_map_bytes(const struct vx_map_key *key, i64 n)
{
    return (size_t)vx_map_offsets(key) * (size_t)n * sizeof(i32);
}

/* What the blocks of a build have at one moment, each in whole pages, and had at most. */
struct room {
    size_t held, most;
};

static void room_take(struct room *room, size_t bytes)
{
    room->held += vx_round_up(bytes, VX_GEOMETRY_UNIT_BYTES);
    if (room->held > room->most) room->most = room->held;
}

static void room_give(struct room *room, size_t bytes)
{
    room->held -= vx_round_up(bytes, VX_GEOMETRY_UNIT_BYTES);
}

/* Two blocks of n keys, for a sort, are taken; then one of them or both are given back. */
static void room_take_sort(struct room *room, i64 n)
{
    room_take(room, vx_geometry_set_bytes(n));
    room_take(room, vx_geometry_set_bytes(n));
}

/* A set other than 0: two blocks of candidates, for their sort, then the set alone. */
static void room_set(struct room *room, const struct vx_geometry_need *need, i32 set)
{
    const size_t candidates = vx_geometry_set_bytes(need->candidates[set]);
    room_take_sort(room, need->candidates[set]);
    room_give(room, candidates);
    room_take(room, vx_geometry_set_bytes(need->rows[set]));
    room_give(room, candidates);
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
    room_take_sort(room, rows);
    room_give(room, vx_geometry_set_bytes(rows));
    room_give(room, vx_geometry_set_bytes(rows));
}

size_t vx_geometry_room(const struct vx_geometry_need *need)
{
    struct room room = {0};
    i32 last = 0;
    if (!need->rows[0]) return 0;
    room_take_sort(&room, need->rows[0]);
    room_give(&room, vx_geometry_set_bytes(need->rows[0]));
    for (i32 i = 1; i < need->sets_count; i++)
        if (last < set_stage(need, i)) last = set_stage(need, i);
    for (i32 stage = 0; stage <= last; stage++) {
        for (i32 i = 1; i < need->sets_count; i++)
            if (set_stage(need, i) == stage) room_set(&room, need, i);
        for (i32 i = 0; i < need->maps_count; i++)
            if (map_stage(need, need->maps[i]) == stage) room_map(&room, need, i);
    }
    return room.most;
}
