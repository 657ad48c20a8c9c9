/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/04_conv_gather.h"
#include "kernels/pointwise_spec.h"

void vx_conv_gather_ref(const void *args, enum vx_number type);

static int32_t threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_GATHER_THREADS;
}

/* Sized for 4-byte types.  2-byte types have half as many chunks, and the surplus blocks
 * end at once. */
static struct vx_grid grid(const struct vx_tile *tile, const void *args)
{
    const struct vx_conv_gather_args *a = args;
    int64_t chunks = a->rows * a->v * (a->ci / 4);
    (void)tile;
    return (struct vx_grid){
        (uint32_t)((chunks + VX_GATHER_THREADS - 1) / VX_GATHER_THREADS), 1, 1};
}

const struct vx_kernel_spec vx_conv_gather_spec = {
    .name = "conv_gather",
    .source = "04_conv_gather.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_conv_gather_args),
    .threads = threads,
    .grid = grid,
    .ref = vx_conv_gather_ref,
};
