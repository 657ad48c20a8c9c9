/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/03_brick_map.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_brick_map_spec;
extern const struct vx_kernel_spec vx_brick_map_far_spec;
extern const struct vx_kernel_spec vx_brick_map_many_spec;
extern const struct vx_kernel_spec vx_brick_map_far_many_spec;

/* Words of mask that 3^3, 5^3 and 7^3 need.  The table has 4 KiB per word. */
static const char *const macros[] = {"VX_WORDS"};
static const struct vx_tile tiles[] = {{{1}}, {{4}}, {{11}}};

static int32_t map_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_BRICK_MAP_THREADS;
}

static struct vx_grid map_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_brick_map_args *it = args;
    return (struct vx_grid){it->n ? it->blocks : 0, 1, 1};
}

static struct vx_grid map_many_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_brick_map_many_args *it = args;
    return (struct vx_grid){it->blocks, (uint32_t)it->count, 1};
}

static void map_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_brick_map_ref(args);
}

static void map_many_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_brick_map_many_ref(args);
}

const struct vx_kernel_spec vx_brick_map_spec = {
    .name = "brick_map",
    .source = "03_brick_map.cu",
    .macros = macros,
    .macros_count = 1,
    .tiles = tiles,
    .tiles_count = sizeof tiles / sizeof tiles[0],
    .args_bytes = sizeof(struct vx_brick_map_args),
    .threads = map_threads,
    .grid = map_grid,
    .ref = map_ref,
};

/* The same text.  The first tile serves every V, since this kernel has no table. */
const struct vx_kernel_spec vx_brick_map_far_spec = {
    .name = "brick_map_far",
    .source = "03_brick_map.cu",
    .macros = macros,
    .macros_count = 1,
    .tiles = tiles,
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_brick_map_args),
    .threads = map_threads,
    .grid = map_grid,
    .ref = map_ref,
};

const struct vx_kernel_spec vx_brick_map_many_spec = {
    .name = "brick_map_many",
    .source = "03_brick_map.cu",
    .macros = macros,
    .macros_count = 1,
    .tiles = tiles,
    .tiles_count = sizeof tiles / sizeof tiles[0],
    .args_bytes = sizeof(struct vx_brick_map_many_args),
    .threads = map_threads,
    .grid = map_many_grid,
    .ref = map_many_ref,
};

const struct vx_kernel_spec vx_brick_map_far_many_spec = {
    .name = "brick_map_far_many",
    .source = "03_brick_map.cu",
    .macros = macros,
    .macros_count = 1,
    .tiles = tiles,
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_brick_map_many_args),
    .threads = map_threads,
    .grid = map_many_grid,
    .ref = map_many_ref,
};
