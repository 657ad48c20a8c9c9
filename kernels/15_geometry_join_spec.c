/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/15_geometry_join.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_join_rows_spec;
extern const struct vx_kernel_spec vx_join_map_spec;
extern const struct vx_kernel_spec vx_words_differ_spec;
extern const struct vx_kernel_spec vx_piece_results_spec;

static int32_t join_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_JOIN_THREADS;
}

static struct vx_grid join_rows_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_join_rows_args *it = args;
    return (struct vx_grid){it->count ? it->blocks : 0, 1, 1};
}

static struct vx_grid join_map_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_join_map_args *it = args;
    return (struct vx_grid){it->count ? it->blocks : 0, 1, 1};
}

static struct vx_grid words_differ_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_words_differ_args *it = args;
    return (struct vx_grid){it->count ? it->blocks : 0, 1, 1};
}

static struct vx_grid piece_results_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_piece_results_args *it = args;
    const int64_t threads = it->count * VX_RESULT_LANES;
    return (struct vx_grid){(uint32_t)((threads + VX_JOIN_THREADS - 1) / VX_JOIN_THREADS),
                            1, 1};
}

static void join_rows_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_join_rows_ref(args);
}

static void join_map_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_join_map_ref(args);
}

static void words_differ_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_words_differ_ref(args);
}

static void piece_results_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_piece_results_ref(args);
}

const struct vx_kernel_spec vx_join_rows_spec = {
    .name = "join_rows",
    .source = "15_geometry_join.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_join_rows_args),
    .threads = join_threads,
    .grid = join_rows_grid,
    .ref = join_rows_ref,
};

const struct vx_kernel_spec vx_join_map_spec = {
    .name = "join_map",
    .source = "15_geometry_join.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_join_map_args),
    .threads = join_threads,
    .grid = join_map_grid,
    .ref = join_map_ref,
};

const struct vx_kernel_spec vx_words_differ_spec = {
    .name = "words_differ",
    .source = "15_geometry_join.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_words_differ_args),
    .threads = join_threads,
    .grid = words_differ_grid,
    .ref = words_differ_ref,
};

const struct vx_kernel_spec vx_piece_results_spec = {
    .name = "piece_results",
    .source = "15_geometry_join.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_piece_results_args),
    .threads = join_threads,
    .grid = piece_results_grid,
    .ref = piece_results_ref,
};
