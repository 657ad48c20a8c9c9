/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model_choice.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"

#include <string.h>

static size_t add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static size_t add_line(size_t a, size_t b)
{
    if (b > SIZE_MAX - VX_GPU_LINE_BYTES) return SIZE_MAX;
    return add(a, vx_round_up(b, VX_GPU_LINE_BYTES));
}

bool vx_gpu_is_conv(const struct vx_launch *launch)
{
    return launch->op == VX_OP_SUBM_CONV || launch->op == VX_OP_LINEAR;
}

void vx_gpu_problem_make(const struct vx_gpu_choices *choices, i32 launch, i64 n,
                         struct vx_conv_problem *problem)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    const struct vx_layer *layer = at->node->layer;
    VX_ASSERT(vx_gpu_is_conv(at));
    *problem = (struct vx_conv_problem){
        .n = n,
        .kernel = {1, 1, 1},
        .v = 1,
        .ci = vx_channels_padded(layer->channels_in),
        .co = vx_channels_padded(layer->channels),
        .type = choices->type,
    };
    if (at->op != VX_OP_SUBM_CONV) return;
    memcpy(problem->kernel, layer->kernel, sizeof problem->kernel);
    problem->v = layer->v;
}

/* A size that stands for all of its bit length: their middle. */
static i64 size_middle(int bits)
{
    return bits < 2 ? 1 : (i64)3 << (bits - 2);
}

static struct vx_conv_choice *choice_at(const struct vx_gpu_choices *choices, i32 launch,
                                        int bits)
{
    return &choices->choices[(bits - 1) * choices->plan->launches_count + launch];
}

static void choose(const struct vx_gpu_choices *choices, const struct vx_pick *pick)
{
    /* A layer of one offset reads no map; only IMPLICIT does without one. */
    struct vx_pick linear = *pick;
    linear.algorithm = VX_CONV_IMPLICIT;
    for (i32 i = 0; i < choices->plan->launches_count; i++) {
        const struct vx_launch *launch = &choices->plan->launches[i];
        if (!vx_gpu_is_conv(launch)) continue;
        bool map = launch->op == VX_OP_SUBM_CONV;
        for (int bits = 1; bits <= vx_bit_length((u64)choices->voxels_max); bits++) {
            struct vx_conv_problem problem;
            struct vx_conv_choice *choice = choice_at(choices, i, bits);
            vx_gpu_problem_make(choices, i, size_middle(bits), &problem);
            (void)vx_pick_conv(map ? pick : &linear, &problem, choice);
            VX_ASSERT(map || choice->algorithm == VX_CONV_IMPLICIT);
        }
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
    *made = (struct vx_gpu_choices){want->plan, want->type, want->voxels_max, NULL};
    size_t count =
        (size_t)vx_bit_length((u64)want->voxels_max) * (size_t)want->plan->launches_count;
    made->choices = vx_alloc_zero(count * sizeof *made->choices);
    if (!made->choices) {
        vx_gpu_choices_close(&made);
        VX_FAIL(RESOURCE_EXHAUSTED, "no memory for the choices of a model");
    }
    choose(made, want->pick);
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
                                               i32 launch, i64 n)
{
    VX_ASSERT(n > 0);
    VX_ASSERT(n <= choices->voxels_max);
    return choice_at(choices, launch, vx_bit_length((u64)n));
}

void vx_gpu_choice_set(struct vx_gpu_choices *choices, i32 launch, int bits,
                       const struct vx_conv_choice *choice)
{
    VX_ASSERT(bits > 0);
    VX_ASSERT(bits <= vx_bit_length((u64)choices->voxels_max));
    *choice_at(choices, launch, bits) = *choice;
}

/* The map that a choice reads: one of those that are there already, or a new one. */
static i32 places_map(const struct vx_plan *plan, i32 map,
                      const struct vx_gpu_map_want *want, struct vx_gpu_places *places)
{
    for (i32 i = 0; i < places->maps_count; i++) {
        const struct vx_gpu_map_place *place = &places->maps[i];
        if (place->map == map && place->want.groups == want->groups &&
            place->want.sorted == want->sorted)
            return i;
    }
    struct vx_gpu_map_place *made = &places->maps[places->maps_count];
    *made = (struct vx_gpu_map_place){.map = map, .want = *want};
    made->want.key = plan->maps[map];
    return places->maps_count++;
}

static void places_launch(const struct vx_gpu_choices *choices, i32 launch,
                          struct vx_gpu_places *places)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    struct vx_conv_problem problem;
    places->map_of[launch] = -1;
    if (!vx_gpu_is_conv(at)) return;
    const struct vx_conv_choice *choice = vx_gpu_choice_get(choices, launch, places->n);
    vx_gpu_problem_make(choices, launch, places->n, &problem);
    size_t workspace = vx_conv_workspace(&problem, choice);
    if (workspace > places->bytes) places->bytes = workspace; /* the most, for now */
    if (at->op != VX_OP_SUBM_CONV) return;
    /* Not in windows: kernels/README.md, decisions. */
    const struct vx_gpu_map_want want = {
        .groups = vx_conv_groups(&problem, choice->algorithm),
        .sorted = vx_conv_sorted(choice->algorithm),
        .gray = true,
        .windows = 1,
    };
    places->map_of[launch] = places_map(choices->plan, at->map, &want, places);
}

void vx_gpu_places_make(const struct vx_gpu_choices *choices, i64 n,
                        struct vx_gpu_places *places)
{
    places->n = n;
    places->maps_count = 0;
    places->bytes = 0;
    for (i32 i = 0; i < choices->plan->launches_count; i++)
        places_launch(choices, i, places);
    size_t workspace = places->bytes, at = 0;
    size_t shared = (size_t)n * 4 * sizeof(i32), tensors;
    tensors = vx_plan_bytes(choices->plan, n);
    if (tensors > shared) shared = tensors;
    places->index = at;
    at = add_line(at, vx_gpu_index_bytes(n));
    for (i32 i = 0; i < places->maps_count; i++) {
        struct vx_gpu_map_place *place = &places->maps[i];
        size_t scratch = vx_gpu_map_scratch_bytes(n, &place->want);
        if (scratch > shared) shared = scratch;
        place->offset = at;
        at = add_line(at, vx_gpu_map_bytes(n, &place->want));
    }
    places->shared = at;
    places->workspace = add_line(at, shared);
    places->bytes = add_line(places->workspace, workspace);
}

size_t vx_gpu_places_need(const struct vx_gpu_choices *choices, i64 n,
                          struct vx_gpu_places *places)
{
    size_t most = 0;
    if (n > choices->voxels_max) return SIZE_MAX;
    for (int bits = 1; bits <= vx_bit_length((u64)n); bits++) {
        i64 last = ((i64)1 << bits) - 1;
        vx_gpu_places_make(choices, last < n ? last : n, places);
        if (places->bytes > most) most = places->bytes;
    }
    return most;
}
