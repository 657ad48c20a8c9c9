/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/geometry_rig.h"

#include "engine/base/process/alloc.h"
#include "kernels/01_coord_hash.h"
#include "kernels/02_neighbor_map.h"

#include <check.h>
#include <string.h>

struct rig rig;

const struct vx_map_key rig_kernels[RIG_KERNELS] = {
    {.kernel = {1, 1, 1}, .dilation = {1, 1, 1}},
    {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}},
    {.kernel = {3, 1, 1}, .dilation = {1, 1, 1}},
    {.kernel = {1, 1, 3}, .dilation = {1, 1, 1}},
    {.kernel = {1, 1, 3}, .dilation = {1, 1, 2}},
    {.kernel = {3, 3, 3}, .dilation = {2, 2, 2}},
    {.kernel = {5, 5, 5}, .dilation = {1, 1, 1}},
    {.kernel = {7, 7, 7}, .dilation = {1, 1, 1}},
    {.kernel = {3, 5, 1}, .dilation = {3, 1, 1}},
    {.kernel = {5, 1, 5}, .dilation = {1, 1, 3}},
    {.kernel = {343, 1, 1}, .dilation = {1, 1, 1}},
    {.kernel = {1, 1, 343}, .dilation = {1, 1, 1}},
    {.kernel = {3, 3, 3}, .dilation = {1024, 1024, 1024}},
};

void rig_open(i32 threads, size_t cache_bytes)
{
    ck_assert_ptr_null(vx_cpu_open(threads, &rig.why, &rig.cpu).fault);
    ck_assert_ptr_null(vx_geometry_open(cache_bytes, &rig.why, &rig.cache).fault);
}

void rig_close(void)
{
    vx_geometry_close(&rig.cache);
    vx_cpu_close(&rig.cpu);
}

struct vx_coords_view rig_view(const i32 *coords, i64 n, i32 columns)
{
    static const struct vx_coords_ref_key key = {{1, 22, 333, 4444}};
    return (struct vx_coords_view){coords, n, columns,
                                   vx_coords_ref_of(&key, coords, columns, n), 0};
}

struct vx_geometry *rig_hold(const i32 *coords, i64 n)
{
    struct vx_geometry *geometry;
    const struct vx_coords_view view = rig_view(coords, n, 4);
    vx_status status = vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &rig.why));
    return geometry;
}

const struct vx_map *rig_map(struct vx_geometry *geometry, struct vx_map_key key)
{
    const struct vx_map *map;
    vx_status status = vx_geometry_map(geometry, rig.cpu, &key, &rig.why, &map);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &rig.why));
    return map;
}

void rig_check_map(const i32 *coords, i64 n, const struct vx_map *map)
{
    size_t slots = (size_t)2 << vx_bit_length((u64)n);
    size_t entries = (size_t)(map->v * n);
    struct vx_coord_hash_args hash = {
        .n = n,
        .columns = 4,
        .coords = coords,
        .slots_count = slots,
        .keys = vx_alloc((size_t)n * sizeof(u64)),
        .slots_key = vx_alloc(slots * sizeof(u64)),
        .slots_row = vx_alloc(slots * sizeof(i32)),
    };
    i32 *nbr = vx_alloc(entries * sizeof *nbr);
    vx_coord_hash_ref(&hash);
    ck_assert_int_eq(hash.bad_row, -1);
    ck_assert_int_eq(hash.second, -1);
    struct vx_neighbor_map_args args = {.keys = hash.keys,
                                        .slots_key = hash.slots_key,
                                        .slots_row = hash.slots_row,
                                        .slots_count = slots,
                                        .n = n,
                                        .nbr = nbr};
    memcpy(args.kernel, map->key.kernel, sizeof args.kernel);
    memcpy(args.dilation, map->key.dilation, sizeof args.dilation);
    vx_neighbor_map_ref(&args);
    i64 pairs = 0;
    for (size_t e = 0; e < entries; e++) pairs += nbr[e] >= 0;
    ck_assert_int_eq(map->pairs, pairs);
    ck_assert_int_eq(map->n, n);
    ck_assert_mem_eq(map->nbr, nbr, entries * sizeof *nbr);
    vx_free(hash.keys);
    vx_free(hash.slots_key);
    vx_free(hash.slots_row);
    vx_free(nbr);
}
