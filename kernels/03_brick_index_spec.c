/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/03_brick_index.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_brick_insert_spec;
extern const struct vx_kernel_spec vx_brick_number_spec;
extern const struct vx_kernel_spec vx_brick_rank_spec;
extern const struct vx_kernel_spec vx_brick_small_spec;
extern const struct vx_kernel_spec vx_brick_small_many_spec;

static int32_t threads_of(const struct vx_tile *tile)
{
    (void)tile;
    return VX_BRICK_INDEX_THREADS;
}

static struct vx_grid grid_voxels(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_brick_index_args *it = args;
    return (struct vx_grid){
        (uint32_t)((it->n + VX_BRICK_INDEX_THREADS - 1) / VX_BRICK_INDEX_THREADS), 1, 1};
}

static struct vx_grid grid_bricks(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_brick_index_args *it = args;
    return (struct vx_grid){it->n ? it->blocks : 0, 1, 1};
}

static struct vx_grid grid_small(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_brick_index_args *it = args;
    return (struct vx_grid){it->n ? 1 : 0, 1, 1};
}

static struct vx_grid grid_small_many(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_brick_small_many_args *it = args;
    return (struct vx_grid){(uint32_t)it->count, 1, 1};
}

static void insert_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_brick_insert_ref(args);
}

static void number_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_brick_number_ref(args);
}

static void rank_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_brick_rank_ref(args);
}

static void small_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_brick_small_ref(args);
}

static void small_many_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_brick_small_many_ref(args);
}

const struct vx_kernel_spec vx_brick_insert_spec = {
    .name = "brick_insert",
    .source = "03_brick_index.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_brick_index_args),
    .threads = threads_of,
    .grid = grid_voxels,
    .ref = insert_ref,
};

const struct vx_kernel_spec vx_brick_number_spec = {
    .name = "brick_number",
    .source = "03_brick_index.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_brick_index_args),
    .threads = threads_of,
    .grid = grid_bricks,
    .ref = number_ref,
};

const struct vx_kernel_spec vx_brick_rank_spec = {
    .name = "brick_rank",
    .source = "03_brick_index.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_brick_index_args),
    .threads = threads_of,
    .grid = grid_voxels,
    .ref = rank_ref,
};

const struct vx_kernel_spec vx_brick_small_spec = {
    .name = "brick_small",
    .source = "03_brick_index.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_brick_index_args),
    .threads = threads_of,
    .grid = grid_small,
    .ref = small_ref,
};

const struct vx_kernel_spec vx_brick_small_many_spec = {
    .name = "brick_small_many",
    .source = "03_brick_index.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_brick_small_many_args),
    .threads = threads_of,
    .grid = grid_small_many,
    .ref = small_many_ref,
};
