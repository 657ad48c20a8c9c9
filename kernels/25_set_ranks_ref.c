/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/25_set_ranks.h"

static void rank_row(const struct vx_set_ranks_args *args,
                     const struct vx_set_ranks_member *member, int64_t place)
{
    const int32_t row = args->rows[member->first + place];
    const uint64_t key = args->keys[row];
    member->rank[row - member->first] = (int32_t)place;
    member->coords[place * 4] = vx_key_sample(key);
    for (int axis = 0; axis < 3; axis++)
        member->coords[place * 4 + 1 + axis] = vx_key_axis(key, axis);
}

void vx_set_ranks_ref(const struct vx_set_ranks_args *args)
{
    for (int64_t m = 0; m < args->count; m++)
        for (int64_t place = 0; place < args->members[m].n; place++)
            rank_row(args, &args->members[m], place);
}
