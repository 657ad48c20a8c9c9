/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/13_elementwise.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid add_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_add_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n * args->cp, VX_POINTWISE_CHANNELS);
}

const struct vx_kernel_spec vx_add_spec = {
    .name = "add",
    .source = "13_elementwise.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_add_device_args),
    .threads = vx_pointwise_threads,
    .grid = add_grid,
    .ref = vx_add_device_ref,
};

const struct vx_kernel_spec vx_mul_spec = {
    .name = "mul",
    .source = "13_elementwise.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_add_device_args),
    .threads = vx_pointwise_threads,
    .grid = add_grid,
    .ref = vx_mul_device_ref,
};

static struct vx_grid affine_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_affine_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_affine_spec = {
    .name = "affine",
    .source = "13_elementwise.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_affine_device_args),
    .threads = vx_pointwise_threads,
    .grid = affine_grid,
    .ref = vx_affine_device_ref,
};

static struct vx_grid concat_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_concat_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_concat_spec = {
    .name = "concat",
    .source = "13_elementwise.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_concat_device_args),
    .threads = vx_pointwise_threads,
    .grid = concat_grid,
    .ref = vx_concat_device_ref,
};
