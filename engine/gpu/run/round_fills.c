/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/round_fills.h"

#include "engine/base/process/check.h"
#include "engine/gpu/run/round_stages.h"

/* The (row, offset) places of a followed map of a member. */
static f64 places_of(const struct vx_gpu_round *round, i32 member, i32 followed)
{
    const struct vx_plan *plan = round->model->plan;
    const struct vx_map_key *key =
        &plan->maps[round->model->gpu->choices->followed[followed]];
    const i64 rows = round->rows[(i64)member * plan->sets_count + key->to];
    return (f64)rows * vx_map_offsets(key);
}

/* With stages the store has coordinates alone, and features decide about the sets. */
static struct vx_gpu_geometry *kept_of(const struct vx_gpu_round *round, i32 member)
{
    return vx_gpu_round_staged(round) ? NULL : round->members[member].kept;
}

void vx_gpu_round_densities(struct vx_gpu_round *round)
{
    const struct vx_gpu_model *gpu = round->model->gpu;
    round->densities = (struct vx_gpu_densities){{0}};
    if (!gpu->choices->by_density) return;
    for (i32 f = 0; f < gpu->choices->followed_count; f++) {
        const f64 last =
            gpu->fills[f] > 0 ? (f64)gpu->fills[f] : vx_density_fill(VX_DENSITY_SURFACE);
        f64 pairs = 0, places = 0;
        for (i32 i = 0; i < round->members_count; i++) {
            const struct vx_gpu_geometry *kept = kept_of(round, i);
            const f64 mine = places_of(round, i, f);
            pairs += mine * (kept && kept->fills[f] > 0 ? (f64)kept->fills[f] : last);
            places += mine;
        }
        round->densities.of[f] = (u8)vx_density_of(places > 0 ? pairs / places : 0);
    }
}

u64 *vx_gpu_round_pairs(const struct vx_gpu_round *round,
                        struct vx_gpu_piece_result *results)
{
    const i64 count = (i64)round->members_count * round->model->plan->maps_count;
    if (!round->model->gpu->choices->by_density) return NULL;
    VX_ASSERT(count <= VX_GPU_PAIRS_MAX);
    return (u64 *)(void *)(results + round->members_count);
}

/* Counts a followed map, or takes what is known of it; 0: nothing is. */
static f64 pairs_of(const struct vx_gpu_round *round, i32 member, i32 followed,
                    const u64 *counted)
{
    const struct vx_gpu_choices *choices = round->model->gpu->choices;
    const struct vx_gpu_geometry *kept = kept_of(round, member);
    if (counted)
        return (f64)counted[(i64)member * round->model->plan->maps_count +
                            choices->followed[followed]];
    return kept ? (f64)kept->fills[followed] * places_of(round, member, followed) : 0;
}

void vx_gpu_round_fills(struct vx_gpu_round *round, bool counted)
{
    struct vx_gpu_model *gpu = round->model->gpu;
    const u64 *pairs_there =
        counted ? vx_gpu_round_pairs(round, round->lane->answers) : NULL;
    if (!gpu->choices->by_density) return;
    for (i32 f = 0; f < gpu->choices->followed_count; f++) {
        f64 pairs = 0, places = 0;
        for (i32 i = 0; i < round->members_count; i++) {
            const struct vx_gpu_member *member = &round->members[i];
            struct vx_gpu_geometry *kept = kept_of(round, i);
            if (member->again || member->item->status.fault) continue;
            const f64 mine = pairs_of(round, i, f, pairs_there);
            const f64 most = places_of(round, i, f);
            if (!(mine > 0)) continue;
            if (kept) kept->fills[f] = (f32)(mine / most);
            pairs += mine;
            places += most;
        }
        if (places > 0) gpu->fills[f] = (f32)(pairs / places);
    }
}
