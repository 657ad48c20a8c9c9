/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/04_conv_gather.h"
#include "kernels/device.h"
#include "kernels/turn.cuh"

#define CHUNK (16 / (int)sizeof(vx_element))

VX_KERNEL(VX_GATHER_THREADS, 1) conv_gather(struct vx_conv_gather_args args)
{
    vx_turn();
    int64_t at = (int64_t)vx_block_x() * VX_GATHER_THREADS + vx_thread();
    int32_t chunks = args.ci / CHUNK;
    int64_t pair = at / chunks;
    int32_t chunk = (int32_t)(at % chunks);
    int64_t row = pair / args.v;
    int32_t v = (int32_t)(pair % args.v);
    if (row >= args.rows) return;
    int32_t from = args.nbr[(args.first + row) * args.nbr_stride + v];
    struct vx_words4 words = {0, 0, 0, 0};
    if (from >= 0)
        words =
            *(const struct vx_words4 *)((const vx_element *)args.in +
                                        (int64_t)from * args.in_stride + chunk * CHUNK);
    ((struct vx_words4 *)args.panel)[at] = words;
}
