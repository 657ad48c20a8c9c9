/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/limits.h"
#include "kernels/25_set_ranks.h"
#include "tests/oracle/cases.h"

#define MEMBERS_MAX 9

/* The rows first .. first + n - 1 in a random order. */
static void rows_mix(struct vx_rig *rig, i32 *rows, i64 first, i64 n)
{
    for (i64 i = 0; i < n; i++) {
        i64 with = vx_rig_below(rig, i + 1);
        rows[first + i] = rows[first + with];
        rows[first + with] = (i32)(first + i);
    }
}

static u64 some_key(struct vx_rig *rig)
{
    i32 at[3];
    for (int axis = 0; axis < 3; axis++)
        at[axis] = (i32)vx_rig_below(rig, VX_AXIS_MAX - VX_AXIS_MIN + 1) + VX_AXIS_MIN;
    return vx_key_pack((i32)vx_rig_below(rig, 512), at[0], at[1], at[2]);
}

static void ranks_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i32 count,
                       i32 turn)
{
    static const i64 sizes[] = {1000, 1, 0, 33, 256, 5000, 257};
    struct vx_set_ranks_member members[MEMBERS_MAX];
    struct vx_set_ranks_args args = {.count = count,
                                     .blocks = 1 + (u32)vx_rig_below(rig, 7)};
    struct vx_trial trial;
    i64 n = 0;
    for (i32 m = 0; m < count; m++) {
        members[m] = (struct vx_set_ranks_member){.n = sizes[(m + turn) % 7], .first = n};
        n += members[m].n;
    }
    u64 *keys = vx_rig_take(rig, (size_t)n * sizeof *keys + 8);
    i32 *rows = vx_rig_take(rig, (size_t)n * sizeof *rows + 8);
    for (i64 i = 0; i < n; i++) keys[i] = some_key(rig);
    for (i32 m = 0; m < count; m++) rows_mix(rig, rows, members[m].first, members[m].n);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d members, turn %d", count, turn);
    vx_trial_in(&trial, &args.keys, keys, (size_t)n * sizeof *keys);
    vx_trial_in(&trial, &args.rows, rows, (size_t)n * sizeof *rows);
    vx_trial_inside(&trial, vx_trial_in(&trial, &args.members, members,
                                        (size_t)count * sizeof *members));
    for (i32 m = 0; m < count; m++) {
        const size_t bytes = (size_t)members[m].n * sizeof(i32);
        if (turn % 3 != 1) {
            vx_trial_out(rig, &trial, &members[m].rank, bytes);
            vx_trial_out(rig, &trial, &members[m].coords, 4 * bytes);
        }
        if (turn % 3 == 0) continue;
        vx_trial_out(rig, &trial, &members[m].order, bytes);
        vx_trial_out(rig, &trial, &members[m].sorted, 2 * bytes);
    }
    vx_trial_run(rig, &trial);
}

void vx_cases_ranks(struct vx_rig *rig)
{
    const i32 turns = rig->size == VX_RIG_SMALL ? 4 : 21;
    const struct vx_jit_wanted *kernel = NULL;
    for (i32 turn = 0; turn < turns; turn++) {
        while ((kernel = vx_rig_next(rig, "set_ranks", kernel)))
            ranks_case(rig, kernel, 1 + turn * 5 % MEMBERS_MAX, turn);
        vx_rig_reset(rig);
    }
}
