/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/oracle/brick_sets.h"

struct vx_brick_set vx_oracle_set_make(struct vx_rig *rig, i64 rows_max)
{
    u64 slots = VX_BRICK_GROUP;
    while (slots < 2 * (u64)rows_max) slots *= 2;
    return (struct vx_brick_set){
        .rows_max = rows_max,
        .slots_count = slots,
        .slots = vx_rig_take(rig, slots * sizeof(struct vx_brick_slot)),
        .counts = vx_rig_take(rig, sizeof(struct vx_brick_counts)),
        .base = vx_rig_take(rig, slots * sizeof(i32)),
        .list = vx_rig_take(rig, (size_t)rows_max * sizeof(u32))};
}

/* The set of a cloud, as the references of 03_brick_index build it. */
struct vx_brick_set vx_oracle_set_source(struct vx_rig *rig, const struct vx_cloud *cloud,
                                         u64 seed)
{
    const size_t n = (size_t)cloud->n;
    struct vx_brick_set set = vx_oracle_set_make(rig, cloud->n);
    const struct vx_brick_index_args args = {.n = cloud->n,
                                             .columns = cloud->columns,
                                             .blocks = 1,
                                             .slots_count = set.slots_count,
                                             .seed = seed,
                                             .coords = cloud->coords,
                                             .slots = set.slots,
                                             .counts = set.counts,
                                             .base = set.base,
                                             .list = set.list,
                                             .places = vx_rig_take(rig, n * sizeof(u64)),
                                             .rows = vx_rig_take(rig, n * sizeof(i32))};
    vx_brick_small_ref(&args);
    return set;
}

/* The parts of a set in the arguments, which hold it: read only, or not.  Returns the
 * first field of four. */
i32 vx_oracle_set_fields(struct vx_trial *trial, struct vx_brick_set *set, bool out)
{
    const struct vx_brick_set it = *set;
    const i32 first = trial->count;
    const size_t slots = it.slots_count, rows = (size_t)it.rows_max;
    if (out) {
        vx_trial_both(trial, &set->slots, it.slots, slots * sizeof *it.slots);
        vx_trial_both(trial, &set->counts, it.counts, sizeof *it.counts);
        vx_trial_both(trial, &set->base, it.base, slots * sizeof *it.base);
        vx_trial_both(trial, &set->list, it.list, rows * sizeof *it.list);
    } else {
        vx_trial_in(trial, &set->slots, it.slots, slots * sizeof *it.slots);
        vx_trial_in(trial, &set->counts, it.counts, sizeof *it.counts);
        vx_trial_in(trial, &set->base, it.base, slots * sizeof *it.base);
        vx_trial_in(trial, &set->list, it.list, rows * sizeof *it.list);
    }
    for (i32 i = first; i < trial->count; i++) trial->fields[i].kind = VX_FIELD_MINE;
    return first;
}

/* The set as the device left it. */
struct vx_brick_set vx_oracle_set_back(const struct vx_trial *trial, i32 first,
                                       const struct vx_brick_set *set)
{
    struct vx_brick_set back = *set;
    back.slots = trial->fields[first].back;
    back.counts = trial->fields[first + 1].back;
    back.base = trial->fields[first + 2].back;
    back.list = trial->fields[first + 3].back;
    return back;
}

bool vx_oracle_wrong(struct vx_rig *rig, const struct vx_trial *trial, const char *what,
                     i64 at)
{
    vx_rig_fail(rig, "%s, %s: %s at %lld", trial->kernel.spec->name, trial->label, what,
                (long long)at);
    return false;
}

/* The bricks of `full`, each listed once; as many as there is room for if it is not enough
 * for all, and then with some of their voxels. */
bool vx_oracle_set_check(struct vx_rig *rig, const struct vx_trial *trial,
                         const struct vx_brick_set *back,
                         const struct vx_oracle_expected *expected)
{
    u8 *seen = vx_rig_take(rig, back->slots_count);
    const struct vx_brick_set *full = expected->full;
    const bool all = full->counts->bricks <= (u64)back->rows_max;
    if (back->counts->fault[0] != expected->ref->counts->fault[0])
        return vx_oracle_wrong(rig, trial, "another fault", back->counts->fault[0]);
    if (back->counts->bricks != expected->ref->counts->bricks)
        return vx_oracle_wrong(rig, trial, "another number of bricks",
                               back->counts->bricks);
    for (u32 b = 0; b < back->counts->bricks; b++) {
        u32 slot = back->list[b];
        u64 mask;
        if (slot >= back->slots_count || seen[slot]++)
            return vx_oracle_wrong(rig, trial, "a listed slot that is none, or twice", b);
        vx_brick_find(full->slots, full->slots_count, expected->seed,
                      back->slots[slot].key, &mask);
        if (!mask || (all && mask != back->slots[slot].mask) ||
            (back->slots[slot].mask & ~mask))
            return vx_oracle_wrong(rig, trial, "a brick of other voxels", b);
    }
    for (u64 slot = 0; all && slot < back->slots_count; slot++)
        if (!seen[slot] && (back->slots[slot].key || back->slots[slot].mask))
            return vx_oracle_wrong(rig, trial, "a brick that is not listed", (i64)slot);
    return true;
}
