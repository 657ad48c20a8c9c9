/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_choice.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

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

/* The N that represents all N of its bit length: their middle. */
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
    /* A layer of one offset has no map, and only IMPLICIT needs none. */
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

/* The index of the sorted map that a choice reads; adds it if it is new. */
static i32 places_sorted(i32 map, i32 groups, struct vx_gpu_places *places)
{
    for (i32 i = 0; i < places->sorted_count; i++)
        if (places->sorted[i].map == map && places->sorted[i].groups == groups) return i;
    places->sorted[places->sorted_count] = (struct vx_gpu_sorted){map, groups, 0};
    return places->sorted_count++;
}

/* Sets sorted_of for a launch; returns the bytes of its workspace. */
static size_t places_launch(const struct vx_gpu_choices *choices, i32 launch,
                            struct vx_gpu_places *places)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    struct vx_conv_problem problem;
    places->sorted_of[launch] = -1;
    if (!vx_gpu_is_conv(at)) return 0;
    const struct vx_conv_choice *choice = vx_gpu_choice_get(choices, launch, places->n);
    vx_gpu_problem_make(choices, launch, places->n, &problem);
    if (at->op == VX_OP_SUBM_CONV && vx_conv_sorted(choice->algorithm))
        places->sorted_of[launch] =
            places_sorted(at->map, vx_conv_groups(&problem, choice->algorithm), places);
    return vx_conv_workspace(&problem, choice);
}

size_t vx_gpu_piece_bytes(const struct vx_plan *plan, i64 n)
{
    size_t bytes = add_line(0, (size_t)n * sizeof(i32));
    for (i32 i = 0; i < plan->maps_count; i++)
        bytes = add_line(bytes, vx_gpu_map_bytes(n, &plan->maps[i]));
    return bytes;
}

void vx_gpu_piece_place(const struct vx_plan *plan, void *memory,
                        struct vx_gpu_piece *piece)
{
    u8 *at = memory;
    piece->rows = memory;
    at += vx_round_up((size_t)piece->n * sizeof(i32), VX_GPU_LINE_BYTES);
    for (i32 i = 0; i < plan->maps_count; i++) {
        const struct vx_map_key *key = &plan->maps[i];
        vx_gpu_map_place(piece->n, key, at, &piece->maps[i]);
        at += vx_round_up(vx_gpu_map_bytes(piece->n, key), VX_GPU_LINE_BYTES);
    }
}

struct vx_gpu_order_want vx_gpu_sorted_want(const struct vx_plan *plan, i64 n,
                                            const struct vx_gpu_sorted *sorted)
{
    return (struct vx_gpu_order_want){.n = n,
                                      .v = vx_map_offsets(&plan->maps[sorted->map]),
                                      .groups = sorted->groups,
                                      .sorted = true,
                                      .gray = true};
}

/* Places the join, if there is one, and all pieces as if the store were empty. */
static size_t places_pieces(const struct vx_plan *plan, const struct vx_gpu_sizes *sizes,
                            struct vx_gpu_places *places)
{
    size_t at = 0;
    if (sizes->count > 1) {
        places->rows = at;
        at = add_line(at, (size_t)places->n * sizeof(i32));
        for (i32 i = 0; i < plan->maps_count; i++) {
            places->joined[i] = at;
            at = add_line(at, vx_gpu_map_bytes(places->n, &plan->maps[i]));
        }
    }
    for (i32 i = 0; i < sizes->count; i++) {
        places->pieces[i] = at;
        at = add(at, vx_gpu_piece_bytes(plan, sizes->list[i]));
    }
    return at;
}

/* Places the coordinates, and scratch memory for building and then for sorting. */
static size_t places_scratch(const struct vx_plan *plan, const struct vx_gpu_sizes *sizes,
                             struct vx_gpu_places *places)
{
    struct vx_gpu_piece pieces[VX_BATCH_ITEMS_MAX] = {{0}};
    size_t at = 0, most;
    for (i32 i = 0; i < sizes->count; i++) {
        pieces[i].n = sizes->list[i];
        places->coords[i] = places->shared + at;
        at = add_line(at, (size_t)sizes->list[i] * 4 * sizeof(i32));
    }
    places->scratch = places->shared + at;
    most = vx_gpu_build_bytes(pieces, sizes->count);
    for (i32 i = 0; i < places->sorted_count; i++) {
        struct vx_gpu_order_want want =
            vx_gpu_sorted_want(plan, places->n, &places->sorted[i]);
        size_t scratch = vx_gpu_order_scratch_bytes(&want);
        if (scratch > most) most = scratch;
    }
    return add(at, most);
}

void vx_gpu_places_make(const struct vx_gpu_choices *choices,
                        const struct vx_gpu_sizes *sizes, struct vx_gpu_places *places)
{
    const struct vx_plan *plan = choices->plan;
    size_t workspace = 0, shared, tensors;
    VX_ASSERT(sizes->count >= 1);
    VX_ASSERT(sizes->count <= VX_BATCH_ITEMS_MAX);
    places->n = 0;
    for (i32 i = 0; i < sizes->count; i++) places->n += sizes->list[i];
    places->pieces_count = sizes->count;
    places->sorted_count = 0;
    for (i32 i = 0; i < plan->launches_count; i++) {
        size_t wanted = places_launch(choices, i, places);
        if (wanted > workspace) workspace = wanted;
    }
    size_t at = places_pieces(plan, sizes, places);
    for (i32 i = 0; i < places->sorted_count; i++) {
        struct vx_gpu_order_want want =
            vx_gpu_sorted_want(plan, places->n, &places->sorted[i]);
        places->sorted[i].offset = at;
        at = add_line(at, vx_gpu_order_bytes(&want));
    }
    places->shared = at;
    shared = places_scratch(plan, sizes, places);
    tensors = vx_plan_bytes(plan, &places->n);
    places->workspace = add_line(at, tensors > shared ? tensors : shared);
    places->bytes = add_line(places->workspace, workspace);
}

size_t vx_gpu_places_need(const struct vx_gpu_choices *choices, i64 n,
                          struct vx_gpu_places *places)
{
    size_t most = 0;
    if (n > choices->voxels_max) return SIZE_MAX;
    for (int bits = 1; bits <= vx_bit_length((u64)n); bits++) {
        i64 last = ((i64)1 << bits) - 1;
        if (last > n) last = n;
        vx_gpu_places_make(choices, &(struct vx_gpu_sizes){&last, 1}, places);
        if (places->bytes > most) most = places->bytes;
    }
    return most;
}
