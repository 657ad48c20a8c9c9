/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/33_mlp.h"
#include "kernels/mlp_sm90.cuh"

VX_KERNEL(THREADS, 1) mlp(const struct vx_mlp_args args)
{
    extern VX_SHARED __attribute__((aligned(1024))) char shared[];
    mlp_run(&args, shared);
}
