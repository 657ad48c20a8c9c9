/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/activation.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

VX_KERNEL(VX_POINTWISE_THREADS, 4) activation(struct vx_activation_device_args args)
{
    vx_turn();
    struct vx_words4 words[VX_ROUNDS];
    int64_t count = args.n * (args.cp / VX_LANES);
    int64_t first =
        (int64_t)vx_block_x() * (VX_ROUNDS * VX_POINTWISE_THREADS) + vx_thread();
    VX_UNROLL
    for (int32_t k = 0; k < VX_ROUNDS; k++) {
        int64_t at = first + k * VX_POINTWISE_THREADS;
        words[k] = at < count ? vx_vector_load(args.in, at) : vx_vector_zero();
    }
    VX_UNROLL
    for (int32_t k = 0; k < VX_ROUNDS; k++) {
        int64_t at = first + k * VX_POINTWISE_THREADS;
        float x[VX_LANES];
        if (at >= count) break;
        vx_vector_unpack(words[k], x);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++) x[e] = vx_activate(args.activation, x[e]);
        vx_vector_store(args.out, at, vx_vector_pack(x));
    }
}
