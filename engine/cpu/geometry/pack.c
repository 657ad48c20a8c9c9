/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/geometry_parts.h"
#include "engine/cpu/geometry/room.h"

#include <string.h>

/* --- who points into blocks --- */

void *vx_geometry_at(const struct vx_geometry_cache *cache,
                     const struct vx_geometry_block *block)
{
    return cache->range + block->offset;
}

void vx_geometry_point_keys(const struct vx_geometry_cache *cache,
                            const struct vx_geometry_block *block, struct vx_keys *set)
{
    set->keys = vx_geometry_at(cache, block);
    set->rows = (i32 *)(void *)(set->keys + set->n + 1);
}

void vx_geometry_loosen(struct vx_geometry_cache *cache,
                        const struct vx_geometry_part *part)
{
    VX_ASSERT(cache->loose_count < VX_GEOMETRY_LOOSE_MAX);
    cache->loose[cache->loose_count++] = *part;
}

void vx_geometry_settle(struct vx_geometry_cache *cache)
{
    VX_ASSERT(cache->loose_count > 0);
    cache->loose_count--;
}

static i32 part_add(struct vx_geometry_cache *cache, i32 count,
                    struct vx_geometry_part part)
{
    if (!part.block->bytes) return count;
    cache->parts[count] = part;
    return count + 1;
}

/* Lists the parts of a geometry behind `count` others; returns how many there are then. */
static i32 geometry_parts(struct vx_geometry_cache *cache, struct vx_geometry *geometry,
                          i32 count)
{
    struct vx_active_set *active = &geometry->request;
    count = part_add(cache, count,
                     (struct vx_geometry_part){&active->block, &active->set, NULL});
    for (i32 i = geometry->sets; i != VX_GEOMETRY_NONE; i = cache->sets[i].next) {
        active = &cache->sets[i].active;
        count = part_add(cache, count,
                         (struct vx_geometry_part){&active->block, &active->set, NULL});
    }
    for (i32 i = geometry->maps; i != VX_GEOMETRY_NONE; i = cache->maps[i].next) {
        struct vx_map_entry *entry = &cache->maps[i];
        count = part_add(cache, count,
                         (struct vx_geometry_part){&entry->block, NULL, &entry->map});
    }
    return count;
}

/* --- moving --- */

/* Shell's sort: there may be 28,000 parts, and qsort may allocate. */
static void parts_sort(struct vx_geometry_part *parts, i32 count)
{
    for (i32 gap = count / 2; gap; gap /= 2)
        for (i32 i = gap; i < count; i++) {
            const struct vx_geometry_part part = parts[i];
            i32 at = i;
            for (; at >= gap && parts[at - gap].block->offset > part.block->offset;
                 at -= gap)
                parts[at] = parts[at - gap];
            parts[at] = part;
        }
}

/* Bytes that are moved at once; behind each the device's thread says that it goes on. */
#define MOVE_BYTES ((size_t)16 << 20)

/* Moves bytes to a place before their own. */
static void bytes_move(struct vx_geometry_cache *cache, u64 to, u64 from, size_t bytes)
{
    for (size_t at = 0, piece; at < bytes; at += piece) {
        piece = bytes - at < MOVE_BYTES ? bytes - at : MOVE_BYTES;
        memmove(cache->range + to + at, cache->range + from + at, piece);
        if (at + piece < bytes) vx_cpu_go_on(cache->cpu);
    }
}

/* The places from `offset` to the part's own end are its own or free. */
static void part_move(struct vx_geometry_cache *cache,
                      const struct vx_geometry_part *part, u64 offset)
{
    struct vx_geometry_block *block = part->block;
    const size_t pages = vx_round_up(block->bytes, VX_GEOMETRY_UNIT_BYTES);
    if (block->offset == offset && block->taken == pages) return;
    VX_ASSERT(offset <= block->offset);
    vx_buddy_give_at(cache->buddy, block->offset, block->taken);
    vx_buddy_take_at(cache->buddy, offset, pages);
    bytes_move(cache, offset, block->offset, block->bytes);
    block->offset = offset;
    block->taken = pages;
    if (part->keys)
        vx_geometry_point_keys(cache, block, part->keys);
    else
        part->map->nbr = vx_geometry_at(cache, block);
}

u64 vx_geometry_pack(struct vx_geometry_cache *cache)
{
    i32 count = 0;
    u64 end = 0;
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX; i++)
        if (cache->geometries[i].magic)
            count = geometry_parts(cache, &cache->geometries[i], count);
    for (i32 i = 0; i < cache->loose_count; i++)
        count = part_add(cache, count, cache->loose[i]);
    parts_sort(cache->parts, count);
    for (i32 i = 0; i < count; i++) {
        part_move(cache, &cache->parts[i], end);
        end += cache->parts[i].block->taken;
    }
    VX_ASSERT(end == cache->pages); /* every block is listed */
    return end;
}
