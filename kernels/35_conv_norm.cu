/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/35_conv_norm.h"

#if VX_MULTIPLY == VX_MULTIPLY_STREAM
#include "kernels/norm_stream_sm90.cuh"
#else
#include "kernels/norm_tile.cuh"
#endif

VX_KERNEL(THREADS, VX_BLOCKS) conv_norm(struct vx_conv_norm_args args)
{
    extern VX_SHARED __attribute__((aligned(1024))) char stages[];
#if VX_MULTIPLY == VX_MULTIPLY_STREAM
    stream_run(&args.conv, stages);
#else
    VX_SHARED struct tile_memory memory;
    tile_run(&args.conv, stages, &memory);
#endif
}
