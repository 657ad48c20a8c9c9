/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/pick.h"

#include "engine/base/process/check.h"
#include "engine/gpu/run/round_stages.h"

/* Reports that a request does not fit.  Overwrites the model's `places`. */
static vx_status too_large(const struct vx_gpu_room *room, const struct vx_model *model,
                           i64 n, struct vx_why *why)
{
    struct vx_gpu_places *places = &model->gpu->places;
    i64 fits = model->signature.voxels_max;
    VX_ENSURE_WHY(n <= model->gpu->choices->voxels_max, why, RESOURCE_EXHAUSTED,
                  "too many voxels for this model",
                  "expected at most %lld voxels, got %lld", (long long)fits,
                  (long long)n);
    i64 rows[VX_SETS_MAX];
    vx_sets_rows_max(model->plan->sets, model->plan->sets_count, n, rows);
    vx_gpu_places_make(model->gpu->choices, &(struct vx_gpu_sizes){rows, 1, true, NULL},
                       places);
    VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "the request does not fit in the device memory",
                "%lld voxels need %zu bytes of device memory (activations, neighbour "
                "maps, workspaces), %zu are available: at most %lld voxels fit",
                (long long)n, places->bytes, room->usual, (long long)fits);
}

/* What can be known before the item's voxels are: its number of them, and that its spatial
 * shape holds what reads it. */
static vx_status item_check(const struct vx_gpu_room *room, const struct vx_model *model,
                            struct vx_item *item)
{
    i32 shapes[VX_SETS_MAX][3];
    if (item->voxels > model->signature.voxels_max)
        return too_large(room, model, item->voxels, &item->why);
    VX_TRY(vx_plan_shapes(model->plan, item->shape, &item->why, shapes));
    return item->warms ? VX_OK
                       : vx_plan_check_shape(model->plan, item->shape, &item->why);
}

/* With stages, also the descriptions of the sets by logits of any stage must fit. */
static i64 members_of_stage(const struct vx_plan *plan)
{
    i64 sets = 0;
    for (i32 i = 1; i < plan->sets_count; i++)
        sets += vx_set_is_predicted(&plan->sets[i].key);
    if (!sets) return VX_BATCH_ITEMS_MAX;
    return VX_GPU_STAGE_UPLOAD / (sets * VX_GPU_STAGE_UPLOAD_EACH) - 1;
}

static i32 members_max(const struct vx_plan *plan)
{
    i64 keys = plan->maps_count + 3 * (i64)plan->ordered_count;
    for (i32 o = 0; o < plan->ordered_count; o++) keys += plan->ordered[o].dense;
    if (!keys) keys = 1;
    i64 most = (VX_GPU_JOIN_UPLOAD / keys - 576) / 64;
    if (most > members_of_stage(plan)) most = members_of_stage(plan);
    if (most > VX_BATCH_ITEMS_MAX) return VX_BATCH_ITEMS_MAX;
    return most < 1 ? 1 : (i32)most;
}

/* Picks waiting items in their order, up to the model's voxels_max.  An item that exceeds
 * it alone is answered with an error. */
static i32 pick_members(const struct vx_gpu_room *room, struct vx_gpu_slot *slot)
{
    struct vx_gpu_round *round = &slot->round;
    i64 n = 0, most = slot->model->signature.voxels_max;
    i32 count = 0, count_max = members_max(slot->model->plan);
    for (i32 i = 0; i < slot->batch->items_count && count < count_max; i++) {
        struct vx_item *item = &slot->batch->items[i];
        if (slot->states[i] == VX_GPU_ITEM_DONE) continue;
        item->status = item_check(room, slot->model, item);
        if (item->status.fault) {
            slot->states[i] = VX_GPU_ITEM_DONE;
            continue;
        }
        if (n + item->voxels > most) break;
        n += item->voxels;
        round->members[count++] = (struct vx_gpu_member){
            .item = item, .apart = slot->states[i] == VX_GPU_ITEM_WAITS_APART};
    }
    return count;
}

/* Groups the members by the type of their features, because one launch converts adjacent
 * features of one type.  True if a member has moved. */
static bool members_group(struct vx_gpu_round *round)
{
    static const enum vx_dtype dtypes[] = {VX_DTYPE_F32, VX_DTYPE_F16, VX_DTYPE_BF16};
    struct vx_gpu_member members[VX_BATCH_ITEMS_MAX];
    i32 count = 0;
    bool moved = false;
    for (size_t d = 0; d < VX_COUNT(dtypes); d++)
        for (i32 i = 0; i < round->members_count; i++) {
            if (round->members[i].item->feats_dtype != dtypes[d]) continue;
            moved |= i != count;
            members[count++] = round->members[i];
        }
    if (!moved) return false;
    VX_ASSERT(count == round->members_count);
    for (i32 i = 0; i < count; i++) round->members[i] = members[i];
    return true;
}

static void places_make(struct vx_gpu_slot *slot, bool bounds)
{
    struct vx_gpu_model *gpu = slot->model->gpu;
    const struct vx_gpu_sizes sizes = {slot->round.rows, slot->round.members_count,
                                       bounds, bounds ? NULL : &slot->round.densities};
    vx_gpu_places_make(gpu->choices, &sizes, &gpu->places);
}

void vx_gpu_pick_places(struct vx_gpu_slot *slot)
{
    places_make(slot, false);
}

/* Lays the round out as if each set of each member were as large as it can be. */
static void places_bound(struct vx_gpu_slot *slot)
{
    const struct vx_plan *plan = slot->model->plan;
    struct vx_gpu_round *round = &slot->round;
    for (i32 i = 0; i < round->members_count; i++)
        vx_sets_rows_max(plan->sets, plan->sets_count, round->members[i].item->voxels,
                         round->rows + (i64)i * plan->sets_count);
    places_make(slot, true);
}

/* The most that a round of the batch may take. */
static size_t room_for(const struct vx_gpu_room *room, const struct vx_gpu_slot *slot)
{
    return slot->batch->brief ? room->bytes : room->usual;
}

bool vx_gpu_pick(const struct vx_gpu_room *room, struct vx_gpu_slot *slot)
{
    struct vx_gpu_places *places = &slot->model->gpu->places;
    struct vx_gpu_round *round = &slot->round;
    while ((round->members_count = pick_members(room, slot)) > 0) {
        for (; round->members_count > 0; round->members_count--) {
            places_bound(slot);
            if (places->bytes <= room_for(room, slot)) break;
        }
        round->bytes = places->bytes;
        if (round->members_count > 1 && members_group(round)) places_bound(slot);
        if (round->members_count) return true;
        struct vx_item *first = round->members[0].item;
        first->status = too_large(room, slot->model, first->voxels, &first->why);
        slot->states[vx_gpu_slot_index(slot, first)] = VX_GPU_ITEM_DONE;
    }
    return false;
}
