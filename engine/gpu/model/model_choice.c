/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_choice.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/gpu/model/model_mlp.h"
#include "engine/gpu/model/model_narrow.h"

#include <string.h>

/* Rows of set 0 for each processor (vx_gpu_choices.beside_rows): two blocks of a map, of 32 rows
 * each. */
#define BESIDE_PROCESSOR_ROWS 64

bool vx_gpu_is_conv(const struct vx_gpu_choices *choices, i32 launch)
{
    return vx_launch_is_product(&choices->plan->launches[launch]) &&
           !choices->narrow[launch];
}

/* The set of the rows that a launch reads. */
static i32 set_in(const struct vx_plan *plan, const struct vx_launch *launch)
{
    return plan->tensor_sets[launch->inputs[0]];
}

void vx_gpu_problem_make(const struct vx_gpu_choices *choices, i32 launch, i64 n,
                         struct vx_conv_problem *problem)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    const struct vx_layer *layer = at->node->layer, *gather = at->node->gather;
    VX_ASSERT(vx_gpu_is_conv(choices, launch));
    *problem = (struct vx_conv_problem){
        .n = n,
        .kernel = {1, 1, 1},
        .v = 1,
        .ci = vx_channels_padded(vx_node_channels_in(at->node)),
        .co = vx_channels_padded(layer->channels / vx_node_panels(at->node)),
        .type = choices->numbers[launch],
        .in_scale = layer->fp8_scale,
        .strides = {.in = vx_plan_stride(choices->plan, at->inputs[0]),
                    .out = vx_plan_stride(choices->plan, at->output)},
    };
    if (set_in(choices->plan, at) != at->set)
        problem->n_in = choices->rows_max[set_in(choices->plan, at)];
    if (at->node->residual)
        problem->strides.residual = vx_plan_stride(choices->plan, at->inputs[1]);
    if (at->map < 0) return;
    if (gather) layer = gather;
    memcpy(problem->kernel, layer->kernel, sizeof problem->kernel);
    problem->v = layer->v;
}

void vx_gpu_problem_of(const struct vx_gpu_choices *choices, i32 launch, const i64 *rows,
                       struct vx_conv_problem *problem)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    vx_gpu_problem_make(choices, launch, rows[at->set], problem);
    problem->n_in = rows[set_in(choices->plan, at)];
    /* No row in is read then, but one has a place. */
    if (!problem->n_in) problem->n_in = 1;
}

/* A layer in FP8 is of type E4M3 where the device has that.  Of a gathered layer, and of one
 * whose children are computed apart, the rows in alone are rounded: they are small. */
static void numbers_choose(struct vx_gpu_choices *choices, const struct vx_caps *caps)
{
    for (i32 i = 0; i < choices->plan->launches_count; i++) {
        const struct vx_launch *at = &choices->plan->launches[i];
        struct vx_conv_problem problem;
        choices->numbers[i] = choices->type;
        if (!vx_gpu_is_conv(choices, i) || !(at->node->layer->fp8_scale > 0)) continue;
        if (at->node->gather || vx_node_panels(at->node) > 1) continue;
        vx_gpu_problem_make(choices, i, choices->rows_max[at->set], &problem);
        if (vx_conv_multiplies_e4m3(&problem, caps)) choices->numbers[i] = VX_NUMBER_E4M3;
    }
}

static struct vx_conv_choice *choice_at(const struct vx_gpu_choices *choices, i32 launch,
                                        i32 size, enum vx_density density)
{
    return &choices->choices[((i32)density * choices->sizes + size - 1) *
                                 choices->plan->launches_count +
                             launch];
}

/* The sizes of a launch. */
static i32 sizes_of(const struct vx_gpu_choices *choices, i32 launch)
{
    i32 set = choices->plan->launches[launch].set;
    return vx_size_class(choices->rows_max[set]);
}

/* Whether rows of a map may be sorted by their masks.  A coarse voxel has most of the few
 * voxels of its block, so that sorting by them saves nothing, and costs its launches. */
#define BLOCK_OFFSETS 8
static bool sorting_pays(const struct vx_plan *plan, i32 map)
{
    if (map < 0) return false;
    const struct vx_map_key *key = &plan->maps[map];
    return key->kind != VX_MAP_DOWN || vx_map_offsets(key) > BLOCK_OFFSETS;
}

/* Only maps of one set are measured. */
static void follow(struct vx_gpu_choices *choices)
{
    const struct vx_plan *plan = choices->plan;
    for (i32 map = 0; map < plan->maps_count; map++) {
        const struct vx_map_key *key = &plan->maps[map];
        choices->follows[map] = -1;
        if (key->kind != VX_MAP_SUBM || vx_map_offsets(key) == 1) continue;
        if (choices->followed_count == VX_GPU_FILLS_MAX) continue;
        choices->follows[map] = (i8)choices->followed_count;
        choices->followed[choices->followed_count++] = map;
    }
}

/* The choices of a launch for one size: on surfaces, and on what it may lie on instead. */
static void choose_size(struct vx_gpu_choices *choices, i32 launch, i32 size,
                        const struct vx_pick *pick)
{
    const i32 map = choices->plan->launches[launch].map;
    const struct vx_conv_choice *first =
        choice_at(choices, launch, size, VX_DENSITY_SURFACE);
    struct vx_conv_problem problem;
    vx_gpu_problem_make(choices, launch, vx_size_middle(size), &problem);
    for (int i = 0; i < VX_DENSITIES_COUNT; i++) {
        const enum vx_density density = (enum vx_density)i;
        struct vx_conv_choice *choice = choice_at(choices, launch, size, density);
        *choice = *first;
        if (density != VX_DENSITY_SURFACE) problem.fill = vx_density_fill(density);
        if (density == VX_DENSITY_SURFACE || (map >= 0 && choices->follows[map] >= 0))
            (void)vx_pick_conv(pick, &problem, choice);
        choices->by_density |= memcmp(choice, first, sizeof *choice) != 0;
    }
}

static void choose(struct vx_gpu_choices *choices, const struct vx_pick *pick)
{
    /* A layer of one offset has no map, and only IMPLICIT needs none. */
    struct vx_pick plain = *pick;
    plain.algorithm = VX_CONV_IMPLICIT;
    for (i32 i = 0; i < choices->plan->launches_count; i++) {
        const struct vx_launch *launch = &choices->plan->launches[i];
        if (!vx_gpu_is_conv(choices, i)) continue;
        bool sorted = sorting_pays(choices->plan, launch->map);
        if (launch->map >= 0 && pick->algorithm != VX_CONV_AUTO) sorted = true;
        for (i32 size = 1; size <= sizes_of(choices, i); size++) {
            choose_size(choices, i, size, sorted ? pick : &plain);
            VX_ASSERT(sorted ||
                      choice_at(choices, i, size, VX_DENSITY_SURFACE)->algorithm ==
                          VX_CONV_IMPLICIT);
        }
    }
}

void vx_gpu_rows_max(const struct vx_plan *plan, i64 n, i64 rows[VX_SETS_MAX])
{
    struct vx_set sets[VX_SETS_MAX];
    for (i32 i = 0; i < plan->sets_count; i++) {
        sets[i] = plan->sets[i];
        sets[i].rows_max = 0;
    }
    vx_sets_rows_max(sets, plan->sets_count, n, rows);
    /* Its samples bound a request, too. */
    for (i32 i = 1; i < plan->sets_count; i++) {
        const struct vx_set_key *key = &plan->sets[i].key;
        if (key->rule != VX_SET_SAMPLES) continue;
        const i64 samples = (i64)VX_BATCH_ITEMS_MAX * (VX_SAMPLE_MAX + 1);
        rows[i] = rows[key->from] < samples ? rows[key->from] : samples;
    }
}

/* The maps that convolutions which may stream read in the order of their rows.  For a single
 * one it takes as long to write the neighbours as they save.  One of live children has orders
 * of its own. */
static void mark_neighbours(struct vx_gpu_choices *choices)
{
    i32 readers[VX_LAYERS_MAX] = {0};
    for (i32 i = 0; choices->streams && i < choices->plan->launches_count; i++) {
        const struct vx_launch *launch = &choices->plan->launches[i];
        struct vx_conv_problem problem;
        if (!vx_gpu_is_conv(choices, i) || launch->map < 0) continue;
        if (vx_node_panels(launch->node) > 1) continue;
        vx_gpu_problem_make(choices, i, 1, &problem);
        if (vx_conv_wants_neighbours(&problem) && ++readers[launch->map] == 2)
            choices->neighbours[launch->map] = true;
    }
}

vx_status vx_gpu_choices_open(const struct vx_gpu_choices_want *want,
                              struct vx_gpu_choices **choices)
{
    *choices = NULL;
    VX_ASSERT(want->voxels_max > 0);
    VX_ASSERT(want->voxels_max <= VX_VOXELS_MAX);
    struct vx_gpu_choices *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the choices of a model");
    *made = (struct vx_gpu_choices){
        .plan = want->plan,
        .caps = want->pick->caps,
        .type = want->type,
        .streams = vx_conv_streams(want->type, want->pick->caps),
        .voxels_max = want->voxels_max,
        .beside_rows = (i64)want->pick->caps->processors * BESIDE_PROCESSOR_ROWS,
        .beside_rows_most = want->plan->levels ? INT64_MAX : 0};
    i64 most = 0;
    vx_gpu_rows_max(want->plan, want->voxels_max, made->rows_max);
    for (i32 i = 0; i < want->plan->sets_count; i++) {
        made->keys[i] = want->plan->sets[i].key;
        made->stages[i] = want->plan->sets[i].stage;
        if (made->rows_max[i] > most) most = made->rows_max[i];
    }
    made->sizes = vx_size_class(most);
    made->choices = vx_alloc_zero(vx_gpu_choices_bytes(made));
    if (!made->choices) {
        vx_gpu_choices_close(&made);
        VX_FAIL(RESOURCE_EXHAUSTED, "no memory for the choices of a model");
    }
    for (i32 i = 0; i < want->plan->launches_count; i++)
        made->narrow[i] =
            vx_gpu_narrow_tile(&want->plan->launches[i], want->type, want->pick->caps);
    numbers_choose(made, want->pick->caps);
    follow(made);
    choose(made, want->pick);
    mark_neighbours(made);
    vx_gpu_mlp_find(made, want->pick->caps);
    *choices = made;
    return VX_OK;
}

void vx_gpu_choices_close(struct vx_gpu_choices **choices)
{
    struct vx_gpu_choices *it = *choices;
    *choices = NULL;
    if (!it) return;
    vx_free(it->choices);
    vx_free(it);
}

const struct vx_conv_choice *vx_gpu_choice_get(const struct vx_gpu_choices *choices,
                                               i32 launch, i64 n, enum vx_density density)
{
    VX_ASSERT(n > 0);
    VX_ASSERT(vx_size_class(n) <= sizes_of(choices, launch));
    return choice_at(choices, launch, vx_size_class(n), density);
}

const struct vx_conv_choice *vx_gpu_choice_of(const struct vx_gpu_choices *choices,
                                              const struct vx_gpu_places *places,
                                              i32 launch)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    const i32 followed = at->map >= 0 ? choices->follows[at->map] : -1;
    enum vx_density density = VX_DENSITY_SURFACE;
    if (followed >= 0) density = (enum vx_density)places->densities.of[followed];
    return vx_gpu_choice_get(choices, launch, places->rows[at->set], density);
}

void vx_gpu_choice_set(struct vx_gpu_choices *choices, i32 launch, i32 size,
                       const struct vx_conv_choice *choice)
{
    VX_ASSERT(size > 0);
    VX_ASSERT(size <= sizes_of(choices, launch));
    const struct vx_conv_choice before =
        *choice_at(choices, launch, size, VX_DENSITY_SURFACE);
    for (int i = 0; i < VX_DENSITIES_COUNT; i++) {
        struct vx_conv_choice *at = choice_at(choices, launch, size, (enum vx_density)i);
        if (!memcmp(at, &before, sizeof before)) *at = *choice;
    }
}
