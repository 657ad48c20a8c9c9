/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/01_coord_hash_device.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_hash_insert_spec;

static const char *const macros[] = {"VX_KEY_BITS"};
static const struct vx_tile tiles[] = {{{64}}, {{32}}};

static int32_t insert_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_HASH_THREADS;
}

static struct vx_grid insert_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_hash_insert_args *it = args;
    return (struct vx_grid){(uint32_t)((it->n + VX_HASH_THREADS - 1) / VX_HASH_THREADS),
                            1, 1};
}

static void insert_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_hash_insert_ref(args);
}

const struct vx_kernel_spec vx_hash_insert_spec = {
    .name = "hash_insert",
    .source = "01_coord_hash.cu",
    .macros = macros,
    .macros_count = 1,
    .tiles = tiles,
    .tiles_count = sizeof tiles / sizeof tiles[0],
    .args_bytes = sizeof(struct vx_hash_insert_args),
    .threads = insert_threads,
    .grid = insert_grid,
    .ref = insert_ref,
};
