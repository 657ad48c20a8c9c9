/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/25_set_ranks.h"

static void rank_row(const struct vx_set_ranks_args *args,
                     const struct vx_set_ranks_member *member, int64_t place)
{
    const int32_t row = args->rows[member->first + place];
    const uint64_t key = args->keys[row];
    if (member->rank) member->rank[row - member->first] = (int32_t)place;
    if (member->order) member->order[place] = (int32_t)(row - member->first);
    if (member->sorted) member->sorted[place] = key;
    for (int c = 0; member->coords && c < 4; c++)
        member->coords[place * 4 + c] = c ? vx_key_axis(key, c - 1) : vx_key_sample(key);
}

void vx_set_ranks_ref(const struct vx_set_ranks_args *args)
{
    for (int64_t m = 0; m < args->count; m++)
        for (int64_t place = 0; place < args->members[m].n; place++)
            rank_row(args, &args->members[m], place);
}
