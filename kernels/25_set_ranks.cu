/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"
#include "kernels/turn.cuh"

#include "kernels/25_set_ranks.h"

VX_KERNEL(VX_RANK_THREADS, 4) set_ranks(const struct vx_set_ranks_args args)
{
    vx_turn();
    struct vx_set_ranks_member member = args.members[vx_block_y()];
    int64_t step = (int64_t)args.blocks * VX_RANK_THREADS;
    int64_t place = (int64_t)vx_block_x() * VX_RANK_THREADS + vx_thread();
    for (; place < member.n; place += step) {
        int32_t row = args.rows[member.first + place];
        uint64_t key = args.keys[row];
        if (member.rank) member.rank[row - member.first] = (int32_t)place;
        if (member.order) member.order[place] = row - (int32_t)member.first;
        if (member.sorted) member.sorted[place] = key;
        if (!member.coords) continue;
        member.coords[place * 4] = vx_key_sample(key);
        for (int axis = 0; axis < 3; axis++)
            member.coords[place * 4 + 1 + axis] = vx_key_axis(key, axis);
    }
}
