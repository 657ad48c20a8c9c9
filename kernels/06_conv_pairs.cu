/* SPDX-License-Identifier: Apache-2.0 */
#define VX_PAIRS 1
#include "kernels/06_conv_masked.h"
#include "kernels/conv_body.cuh"

VX_KERNEL(THREADS, VX_BLOCKS) conv_pairs(struct vx_conv_device_args args)
{
    extern VX_SHARED __attribute__((aligned(1024))) char stages[];
    VX_SHARED struct tile_memory memory;
    tile_run(&args, stages, &memory);
}
