/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/06_conv_masked.h"

#if VX_MULTIPLY == VX_MULTIPLY_STREAM
#include "kernels/tile_stream_sm90.cuh"
#else
#include "kernels/conv_body.cuh"
#endif

VX_KERNEL(THREADS, VX_BLOCKS) conv_masked(struct vx_conv_device_args args)
{
    extern VX_SHARED __attribute__((aligned(1024))) char stages[];
#if VX_MULTIPLY == VX_MULTIPLY_STREAM
    stream_run(&args, stages);
#else
    VX_SHARED struct tile_memory memory;
    tile_run(&args, stages, &memory);
#endif
}
