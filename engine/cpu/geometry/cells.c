/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/map.h"
#include "kernels/01_coord_hash.h"

#include <stdatomic.h>

/* Rows of one chunk: see map.c. */
#define PIECE_ROWS 4096

/* Keys that are compared one by one before the rest is bisected: the next points of a line
 * along z lie in the same cell or in the next one. */
#define NEAR_KEYS 4

/* Cells of any width: what a point reads is looked up, because the points that have equal
 * places in their cells, which between.c walks together, may be one each. */
struct cells_job {
    struct vx_map_between *map;
    atomic_int_fast64_t found;
};

/* The key of the voxel at a corner of the cell in which `point` lies; false: none. */
static bool corner_key(const struct vx_map_key *map, u64 point, const i32 corner[3],
                       u64 *key)
{
    i32 at[3];
    for (int axis = 0; axis < 3; axis++) {
        i32 p = vx_key_axis(point, axis), stride = map->stride[axis];
        at[axis] = p >= 0 ? p / stride : -((stride - 1 - p) / stride);
        at[axis] += corner[axis];
        if (at[axis] > VX_AXIS_MAX) return false;
    }
    *key = vx_key_pack(vx_key_sample(point), at[0], at[1], at[2]);
    return true;
}

/* The first place whose key is not below `key`; `near`: that of the key before. */
static i64 place_near(const struct vx_keys *set, i64 near, u64 key)
{
    if (near && set->keys[near - 1] >= key) return vx_keys_place(set, 0, key);
    for (int i = 0; i < NEAR_KEYS; i++, near++)
        if (set->keys[near] >= key) return near; /* keys[n] is above every key */
    return vx_keys_place(set, near, key);
}

static i64 walk_corner(const struct vx_map_between *map, i32 v, i64 begin, i64 end)
{
    const i32 *kernel = map->key.kernel;
    const i32 corner[3] = {v / kernel[2] / kernel[1], v / kernel[2] % kernel[1],
                           v % kernel[2]};
    const struct vx_keys *from = &map->from;
    i32 *nbr = map->nbr + v * map->to.n;
    i64 place = 0, found = 0;
    for (i64 i = begin; i < end; i++) {
        u64 key;
        i32 *row = &nbr[map->to.rows[i]];
        *row = -1;
        if (!corner_key(&map->key, map->to.keys[i], corner, &key)) continue;
        place = place_near(from, place, key);
        if (from->keys[place] != key) continue;
        *row = from->rows[place];
        found++;
    }
    return found;
}

static void walk_task(void *context, i64 begin, i64 end)
{
    struct cells_job *job = context;
    i64 found = 0;
    for (i32 v = 0; v < vx_map_offsets(&job->map->key); v++)
        found += walk_corner(job->map, v, begin, end);
    atomic_fetch_add_explicit(&job->found, found, memory_order_relaxed);
}

void vx_map_build_cells(struct vx_cpu *cpu, struct vx_map_between *between)
{
    struct cells_job job = {.map = between};
    VX_ASSERT(between->key.kind == VX_MAP_CORNER || between->key.kind == VX_MAP_PARENT);
    vx_cpu_spread(cpu, between->to.n, PIECE_ROWS, walk_task, &job);
    between->pairs = job.found;
}
