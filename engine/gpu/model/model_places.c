/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_choice.h"

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/ranks.h"
#include "engine/gpu/geometry/top.h"
#include "engine/gpu/model/model_dense.h"
#include "engine/gpu/model/model_live.h"
#include "engine/gpu/model/model_norm.h"
#include "engine/gpu/model/model_points.h"
#include "engine/gpu/model/sizes.h"
#include "kernels/23_key_order.h"

#include <string.h>

static bool is_staged(const struct vx_plan *plan)
{
    return plan->stages_count > 1;
}

/* The index of the sorted map that a choice reads; adds it if it is new. */
static i32 places_sorted(i32 map, i32 groups, struct vx_gpu_places *places)
{
    for (i32 i = 0; i < places->sorted_count; i++)
        if (places->sorted[i].map == map && places->sorted[i].groups == groups) return i;
    places->sorted[places->sorted_count] = (struct vx_gpu_sorted){map, groups, 0, 0};
    return places->sorted_count++;
}

/* Sets sorted_of for a launch; returns the bytes of its workspace. */
static size_t places_launch(const struct vx_gpu_choices *choices, i32 launch,
                            struct vx_gpu_places *places)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    struct vx_conv_problem problem;
    const i64 n = places->rows[at->set];
    places->sorted_of[launch] = -1;
    if (at->op == VX_OP_GROUP_NORM || at->op == VX_OP_INSTANCE_NORM)
        return vx_gpu_norm_bytes(choices, launch, places);
    if (at->op == VX_OP_GLOBAL_POOL)
        return vx_gpu_sample_pool_bytes(choices, launch, places);
    if (at->op == VX_OP_VOXELIZE) return vx_gpu_voxelize_bytes(choices, launch, places);
    if (!vx_gpu_is_conv(choices, launch) || !n) return 0;
    const struct vx_conv_choice *choice = vx_gpu_choice_of(choices, places, launch);
    vx_gpu_problem_of(choices, launch, places->rows, &problem);
    if (at->map >= 0 && vx_conv_sorted(choice->algorithm))
        places->sorted_of[launch] =
            places_sorted(at->map, vx_conv_groups(&problem, choice->algorithm), places);
    return vx_gpu_conv_bytes(choices, launch, &problem, choice);
}

/* The bytes of the workspace of a convolution with so many rows; adds its sorted map. */
static size_t places_conv(const struct vx_gpu_choices *choices, i32 launch,
                          enum vx_density density, i64 n, struct vx_gpu_places *places)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    const struct vx_conv_choice *choice = vx_gpu_choice_get(choices, launch, n, density);
    struct vx_conv_problem problem;
    /* Of the rows in as many as there are, though there may be fewer with fewer rows. */
    vx_gpu_problem_of(choices, launch, places->rows, &problem);
    problem.n = n;
    if (at->map >= 0 && vx_conv_sorted(choice->algorithm))
        (void)places_sorted(at->map, vx_conv_groups(&problem, choice->algorithm), places);
    return vx_gpu_conv_bytes(choices, launch, &problem, choice);
}

/* The most that a launch needs with so many rows (with levels: or fewer) of any density;
 * adds all sorted maps. */
static size_t places_launch_most(const struct vx_gpu_choices *choices, i32 launch,
                                 struct vx_gpu_places *places)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    const i64 n = places->rows[at->set];
    const i32 sizes = vx_size_class(n),
              densities = choices->by_density ? VX_DENSITIES_COUNT : 1;
    size_t most = places_launch(choices, launch, places);
    if (!vx_gpu_is_conv(choices, launch) || !n) return most;
    if (!choices->plan->levels && !choices->by_density) return most;
    for (i32 size = choices->plan->levels ? 1 : sizes; size <= sizes; size++)
        for (i32 density = 0; density < densities; density++) {
            const i64 last = vx_size_last(size);
            size_t wanted = places_conv(choices, launch, (enum vx_density)density,
                                        last < n ? last : n, places);
            if (wanted > most) most = wanted;
        }
    return most;
}

struct vx_gpu_order_want vx_gpu_sorted_want(const struct vx_gpu_choices *choices,
                                            const i64 *rows,
                                            const struct vx_gpu_sorted *sorted)
{
    const struct vx_map_key *key = &choices->plan->maps[sorted->map];
    return (struct vx_gpu_order_want){
        .n = rows[key->to],
        .v = vx_map_offsets(key),
        .groups = sorted->groups,
        .kernel = {key->kernel[0], key->kernel[1], key->kernel[2]},
        .sorted = true,
        .gray = true,
        .blocks = choices->streams,
        .neighbours = choices->neighbours[sorted->map]};
}

/* Places the join, if there is one, and all pieces as if the store were empty. */
static size_t places_pieces(const struct vx_plan *plan, const struct vx_gpu_sizes *sizes,
                            size_t at, struct vx_gpu_places *places)
{
    if (sizes->count > 1) {
        places->joined_rows = at;
        at = vx_add_line(at, (size_t)places->rows[0] * sizeof(i32));
        for (i32 i = 0; i < plan->maps_count; i++) {
            const struct vx_map_key *key = &plan->maps[i];
            places->joined[i] = at;
            at = vx_add_line(at, vx_gpu_level_map_bytes(places->rows[key->to], key));
        }
        for (i32 o = 0; o < plan->ordered_count; o++) {
            const i64 rows = places->rows[plan->ordered[o].set];
            places->joined_ordered[o] = at;
            at = vx_add_bytes(
                at, vx_gpu_ordered_place(&plan->ordered[o], rows, false, NULL, NULL));
        }
    }
    for (i32 i = 0; i < sizes->count; i++) {
        const i64 *rows = sizes->rows + (i64)i * plan->sets_count;
        places->pieces[i] = at;
        at = vx_add_bytes(at, plan->levels ? vx_gpu_piece_maps_bytes(plan, rows)
                                           : vx_gpu_piece_bytes(plan, rows[0]));
    }
    return at;
}

/* The most samples on each set that has sums over them: a piece has one of each number. */
static void samples_count(const struct vx_plan *plan, const struct vx_gpu_sizes *sizes,
                          struct vx_gpu_places *places)
{
    for (i32 o = 0; o < plan->ordered_count; o++) {
        places->samples_max[o] = 0;
        for (i32 i = 0; i < sizes->count; i++) {
            i64 rows = sizes->rows[(i64)i * plan->sets_count + plan->ordered[o].set];
            places->samples_max[o] +=
                (i32)(rows < VX_KEY_SAMPLES_MAX ? rows : VX_KEY_SAMPLES_MAX);
        }
    }
}

/* Places where the samples begin, behind one number that says how many there are. */
static size_t places_samples(const struct vx_plan *plan, size_t at,
                             struct vx_gpu_places *places)
{
    for (i32 o = 0; o < plan->ordered_count; o++) {
        places->starts[o] = at;
        if (plan->ordered[o].samples)
            at = vx_add_line(at, VX_GPU_LINE_BYTES +
                                     ((size_t)places->samples_max[o] + 1) * sizeof(i32));
    }
    return at;
}

/* With levels: places the rows of all pieces, as if the store were empty. */
static size_t places_perms(const struct vx_plan *plan, const struct vx_gpu_sizes *sizes,
                           struct vx_gpu_places *places)
{
    size_t at = 0;
    if (!plan->levels) return 0;
    for (i32 i = 0; i < sizes->count; i++) {
        places->perms[i] = at;
        at = vx_add_bytes(
            at, vx_gpu_piece_bytes(plan, sizes->rows[(i64)i * plan->sets_count]));
    }
    return at;
}

/* Bytes of the indices of all sets, set 0 too, each as large as its bound. */
static size_t places_levels(const struct vx_gpu_choices *choices,
                            const struct vx_gpu_piece *pieces, i32 count,
                            struct vx_gpu_places *places)
{
    const struct vx_plan *plan = choices->plan;
    i64 bounds[VX_BATCH_ITEMS_MAX * VX_SETS_MAX];
    const struct vx_gpu_levels levels = {.keys = choices->keys,
                                         .sets_count = plan->sets_count,
                                         .requests_count = count,
                                         .rows_max = bounds};
    for (i32 i = 0; i < count; i++)
        vx_sets_rows_max(plan->sets, plan->sets_count, pieces[i].n,
                         bounds + (i64)i * plan->sets_count);
    size_t indices = vx_gpu_build_bytes(pieces, count, true);
    places->levels = vx_add_line(places->scratch, indices);
    return vx_add_bytes(places->levels - places->scratch, vx_gpu_levels_bytes(&levels));
}

/* Places the coordinates, and scratch memory for building and then for sorting; returns
 * where it ends. */
static size_t places_scratch(const struct vx_gpu_choices *choices,
                             const struct vx_gpu_sizes *sizes, size_t at,
                             struct vx_gpu_places *places)
{
    const struct vx_plan *plan = choices->plan;
    struct vx_gpu_piece pieces[VX_BATCH_ITEMS_MAX] = {{0}};
    size_t build, orders = 0;
    for (i32 i = 0; i < sizes->count; i++) {
        pieces[i].n = sizes->rows[(i64)i * plan->sets_count];
        places->coords[i] = at;
        at = vx_add_line(at, (size_t)pieces[i].n * 4 * sizeof(i32));
    }
    places->scratch = at;
    build = plan->levels ? places_levels(choices, pieces, sizes->count, places)
                         : vx_gpu_build_bytes(pieces, sizes->count, false);
    for (i32 i = 0; i < places->sorted_count; i++) {
        struct vx_gpu_order_want want =
            vx_gpu_sorted_want(choices, places->rows, &places->sorted[i]);
        places->sorted[i].scratch = orders; /* all of a stage are built together */
        orders = vx_add_line(orders, vx_gpu_order_scratch_bytes(&want));
    }
    const bool apart = is_staged(plan) || places->beside;
    places->order_scratch = apart ? vx_add_line(at, build) : at;
    return apart ? vx_add_bytes(places->order_scratch, orders)
                 : vx_add_bytes(at, build > orders ? build : orders);
}

/* Places scratch memory and tensors: both in the same memory if maps are made before the
 * layers.  Beside them, scratch comes first, where bounds and rows make the same of it; with
 * stages it comes last, as it always is made of bounds.  Returns where both end. */
static size_t places_tensors(const struct vx_gpu_choices *choices,
                             const struct vx_gpu_sizes *sizes,
                             struct vx_gpu_places *places)
{
    const size_t bytes = vx_plan_bytes(choices->plan, places->rows);
    places->tensors = places->shared;
    if (is_staged(choices->plan))
        return places_scratch(choices, sizes, vx_add_line(places->shared, bytes), places);
    const size_t scratch = places_scratch(choices, sizes, places->shared, places);
    if (places->beside) places->tensors = vx_add_line(scratch, 0);
    const size_t tensors = vx_add_line(places->tensors, bytes);
    return scratch > tensors ? scratch : tensors;
}

/* The most scratch of orders and of sets by logits, in the workspace. */
static size_t places_ranks(const struct vx_plan *plan, const struct vx_gpu_places *places)
{
    size_t most = 0;
    for (i32 o = 0; o < plan->ordered_count; o++) {
        if (!vx_plan_is_sorted(&plan->ordered[o])) continue;
        size_t wanted = vx_gpu_ranks_bytes(places->rows[plan->ordered[o].set]);
        if (wanted > most) most = wanted;
    }
    for (i32 set = 1; set < plan->sets_count; set++) {
        const struct vx_set_key *key = &plan->sets[set].key;
        size_t wanted = key->top ? vx_gpu_top_bytes(places->rows[key->from]) : 0;
        if (wanted > most) most = wanted;
    }
    return most;
}

/* Adds up the rows; false: there are too many. */
static bool places_rows(const struct vx_gpu_choices *choices,
                        const struct vx_gpu_sizes *sizes, struct vx_gpu_places *places)
{
    const i32 sets = choices->plan->sets_count;
    for (i32 set = 0; set < sets; set++) {
        places->rows[set] = 0;
        for (i32 i = 0; i < sizes->count; i++)
            places->rows[set] += sizes->rows[(i64)i * sets + set];
        if (places->rows[set] > choices->rows_max[set]) return false;
    }
    return true;
}

static void places_densities(const struct vx_gpu_sizes *sizes,
                             struct vx_gpu_places *places)
{
    static const struct vx_gpu_densities surfaces;
    places->densities = sizes->densities ? *sizes->densities : surfaces;
}

void vx_gpu_places_make(const struct vx_gpu_choices *choices,
                        const struct vx_gpu_sizes *sizes, struct vx_gpu_places *places)
{
    const struct vx_plan *plan = choices->plan;
    size_t workspace = 0;
    VX_ASSERT(sizes->count >= 1);
    VX_ASSERT(sizes->count <= VX_BATCH_ITEMS_MAX);
    places->pieces_count = sizes->count;
    places->sorted_count = 0;
    places->bytes = SIZE_MAX;
    places_densities(sizes, places);
    if (!places_rows(choices, sizes, places)) return;
    samples_count(plan, sizes, places);
    for (i32 i = 0; i < plan->launches_count; i++) {
        VX_ASSERT(sizes->bounds || !is_staged(plan));
        size_t wanted = sizes->bounds ? places_launch_most(choices, i, places)
                                      : places_launch(choices, i, places);
        if (wanted > workspace) workspace = wanted;
    }
    memcpy(places->laid, places->rows, sizeof places->laid);
    places->beside = !is_staged(plan) && places->rows[0] >= choices->beside_rows &&
                     places->rows[0] <= choices->beside_rows_most;
    places->shared = places_perms(plan, sizes, places);
    size_t at = vx_add_line(places_tensors(choices, sizes, places), 0);
    at = places_pieces(plan, sizes, at, places);
    for (i32 i = 0; i < places->sorted_count; i++) {
        struct vx_gpu_order_want want =
            vx_gpu_sorted_want(choices, places->rows, &places->sorted[i]);
        places->sorted[i].offset = at;
        at = vx_add_line(at, vx_gpu_order_bytes(&want));
    }
    const size_t ranks = places_ranks(plan, places), dense = vx_gpu_dense_bytes(plan);
    if (ranks > workspace && !places->beside) workspace = ranks;
    if (dense > workspace) workspace = dense;
    places->ranks = at = places_samples(plan, at, places);
    places->workspace = places->beside ? vx_add_line(at, ranks) : at;
    places->bytes = vx_add_line(places->workspace, workspace);
}

void vx_gpu_choices_beside(struct vx_gpu_choices *choices, i64 n, size_t bytes,
                           struct vx_gpu_places *places)
{
    if (choices->plan->levels) return;
    i64 fit = 0, end = n + 1; /* the answer is in [fit, end) */
    while (end - fit > 1) {
        const i64 rows = fit + (end - fit) / 2;
        choices->beside_rows_most = rows;
        vx_gpu_places_make(choices, &(struct vx_gpu_sizes){&rows, 1, true, NULL}, places);
        if (places->bytes <= bytes)
            fit = rows;
        else
            end = rows;
    }
    choices->beside_rows_most = fit;
}

void vx_gpu_places_stage(const struct vx_gpu_choices *choices,
                         const struct vx_gpu_sizes *sizes, i32 stage,
                         struct vx_gpu_places *places)
{
    const struct vx_plan *plan = choices->plan;
    const i32 sorted = places->sorted_count;
    VX_ASSERT(is_staged(plan));
    VX_ASSERT(places->pieces_count == sizes->count);
    places_densities(sizes, places);
    const bool known = places_rows(choices, sizes, places);
    VX_ASSERT(known);
    for (i32 set = 0; set < plan->sets_count; set++)
        VX_ASSERT(places->rows[set] <= places->laid[set]);
    samples_count(plan, sizes, places);
    for (i32 i = vx_plan_stage_begin(plan, stage); i < plan->stage_ends[stage]; i++)
        (void)places_launch(choices, i, places);
    VX_ASSERT(places->sorted_count == sorted); /* all were laid out */
}

size_t vx_gpu_places_need(const struct vx_gpu_choices *choices, i64 n,
                          struct vx_gpu_places *places)
{
    size_t most = 0;
    i64 rows[VX_SETS_MAX];
    if (n > choices->voxels_max) return SIZE_MAX;
    for (i32 size = 1; size <= vx_size_class(n); size++) {
        const i64 last = vx_size_last(size);
        vx_sets_rows_max(choices->plan->sets, choices->plan->sets_count,
                         last > n ? n : last, rows);
        vx_gpu_places_make(choices, &(struct vx_gpu_sizes){rows, 1, true, NULL}, places);
        if (places->bytes > most) most = places->bytes;
    }
    return most;
}
