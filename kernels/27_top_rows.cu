/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"
#include "kernels/turn.cuh"

#include "kernels/27_top_rows.h"

VX_KERNEL(VX_TOP_THREADS, 4) top_keys(const struct vx_top_args args)
{
    vx_turn();
    int64_t row = (int64_t)vx_block_x() * VX_TOP_THREADS + vx_thread();
    if (row >= args.n) return;
    float logit = vx_float_of(((const vx_element *)args.logits)[row * args.cp]);
    args.words[row] = (uint64_t)(uint32_t)vx_key_sample(args.keys[row]) << 32 |
                      vx_top_falling(vx_bits_of_float(logit));
}

VX_KERNEL(VX_TOP_THREADS, 4) top_mark(const struct vx_top_args args)
{
    vx_turn();
    int64_t place = (int64_t)vx_block_x() * VX_TOP_THREADS + vx_thread();
    if (place >= args.n) return;
    int32_t low = 0, high = *args.count - 1;
    while (low < high) { /* the last start that is not above */
        int32_t middle = high - (high - low) / 2;
        if (args.starts[middle] <= place)
            low = middle;
        else
            high = middle - 1;
    }
    args.kept[args.rows[place]] = place - args.starts[low] < args.top;
}
