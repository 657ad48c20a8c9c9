/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/gpu/run/round_geometry.h"
#include "engine/gpu/run/round_stages.h"

#include <string.h>

static struct vx_gpu_store_name member_name(const struct vx_gpu_round *round,
                                            const struct vx_item *item)
{
    struct vx_gpu_store_name name = {item->coords_ref, round->model->gpu->maps_name, {0}};
    memcpy(name.shape, item->shape, sizeof name.shape);
    return name;
}

static void member_make(struct vx_gpu_round *round, struct vx_gpu_member *member)
{
    const struct vx_item *item = member->item;
    size_t coords = vx_gpu_kept_coords_bytes(item->voxels, item->coords_columns);
    const struct vx_gpu_store_want want = {
        .name = member_name(round, item),
        .origin = item->origin,
        .n = item->voxels,
        .columns = item->coords_columns,
        .bytes = VX_GPU_LINE_BYTES + coords +
                 vx_gpu_piece_bytes(round->model->plan, item->voxels),
    };
    member->kept = vx_gpu_store_make(round->room->store, &want);
    if (!member->kept) return;
    member->kept->writers = round->lane->bit;
    member->kept->sized = !round->model->plan->levels;
}

static vx_status other_size(const struct vx_gpu_geometry *found, struct vx_item *item)
{
    VX_FAIL_WHY(&item->why, INVALID_ARGUMENT,
                "the geometry of the coords_ref has another number of voxels",
                "coords_ref names a geometry of %lld voxels, the request has %lld",
                (long long)found->n, (long long)item->voxels);
}

/* False if the store has no geometry of the member's name that the round can use, and
 * should make one. */
static bool member_find(struct vx_gpu_round *round, struct vx_gpu_member *member)
{
    struct vx_item *item = member->item;
    const struct vx_gpu_store_name name = member_name(round, item);
    struct vx_gpu_geometry *found =
        vx_gpu_store_hold(round->room->store, &name, item->origin);
    if (!found) return false;
    bool same = found->n == item->voxels;
    if (!found->sized && !(found->writers & round->lane->bit)) {
        /* The other lane makes it; its sizes are not known yet. */
        vx_gpu_store_drop(round->room->store, &found);
        return item->coords != NULL;
    }
    if (item->coords && !(same && found->columns == item->coords_columns)) {
        /* Another geometry of the same name: it stays; this one is built in the block. */
        vx_gpu_store_drop(round->room->store, &found);
        return true;
    }
    /* With stages the coordinates alone are kept. */
    member->kept = found;
    member->known = member->built = vx_gpu_round_staged(round);
    member->compared = item->coords != NULL;
    if (!same) item->status = other_size(found, item);
    return true;
}

void vx_gpu_round_let_go(struct vx_gpu_round *round)
{
    for (i32 i = 0; i < round->members_count; i++) {
        struct vx_gpu_member *member = &round->members[i];
        if (member->kept && member->built && !member->known) {
            vx_gpu_store_forget(round->room->store, member->kept);
            member->kept->writers &= ~round->lane->bit;
        }
        vx_gpu_store_drop(round->room->store, &member->kept);
    }
}

vx_status vx_gpu_not_there(struct vx_item *item)
{
    VX_FAIL_WHY(&item->why, FAILED_PRECONDITION,
                "the geometry is not in the device's cache",
                "coords_ref: the geometry is not in the device's cache; send coords");
}

/* Holds all geometries that the store has before it makes new ones, since a new one may
 * evict others.  Last, finds the members that sent only a coords_ref, because it may name
 * coordinates that another member has sent. */
void vx_gpu_round_hold(struct vx_gpu_round *round, bool *refused)
{
    struct vx_gpu_store *store = round->room->store;
    bool found[VX_BATCH_ITEMS_MAX];
    *refused = false;
    for (i32 i = 0; i < round->members_count; i++) {
        struct vx_gpu_member *member = &round->members[i];
        bool asks = !member->apart && vx_coords_ref_there(member->item->coords_ref);
        /* Coordinates that another process may change are copied once, not compared. */
        VX_ASSERT(!member->item->coords_change || (!asks && !member->apart));
        member->item->status = VX_OK;
        member->kept = NULL;
        member->compared = member->known = false;
        member->built = true;
        found[i] = !asks || member_find(round, member);
    }
    for (i32 i = 0; i < round->members_count; i++) {
        struct vx_gpu_member *member = &round->members[i];
        if (found[i] || !member->item->coords) continue;
        if (!member_find(round, member)) member_make(round, member);
    }
    for (i32 i = 0; i < round->members_count; i++) {
        struct vx_gpu_member *member = &round->members[i];
        if (!found[i] && !member->item->coords && !member_find(round, member))
            member->item->status = vx_gpu_not_there(member->item);
        if (!member->item->status.fault) continue;
        vx_gpu_store_count(store, false);
        *refused = true;
    }
    if (*refused) vx_gpu_round_let_go(round);
}
