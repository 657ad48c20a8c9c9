/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/02_neighbor_map_device.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_hash_map_spec;

static const char *const macros[] = {"VX_KEY_BITS"};
static const struct vx_tile tiles[] = {{{64}}, {{32}}};

static int32_t map_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_HASH_MAP_THREADS;
}

static struct vx_grid map_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_hash_map_args *it = args;
    return (struct vx_grid){it->n ? it->blocks : 0, 1, 1};
}

static void map_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_hash_map_ref(args);
}

const struct vx_kernel_spec vx_hash_map_spec = {
    .name = "hash_map",
    .source = "02_neighbor_map.cu",
    .macros = macros,
    .macros_count = 1,
    .tiles = tiles,
    .tiles_count = sizeof tiles / sizeof tiles[0],
    .args_bytes = sizeof(struct vx_hash_map_args),
    .threads = map_threads,
    .grid = map_grid,
    .ref = map_ref,
};
