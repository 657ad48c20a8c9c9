/* model_choice - how a model runs on one device: an algorithm and a tile for every layer
 * and size, the maps these want, and where all of a request lies in the device's memory.
 *
 * Everything here is decided at load, or by arithmetic on the number of voxels: a request
 * that does not fit is refused before anything is launched.  Sizes are powers of two (the
 * bit length of N); inside one of them nothing changes but lengths.
 *
 *   VX_TRY(vx_gpu_choices_open(&want, &choices));
 *   vx_gpu_places_make(choices, n, &places);
 *   if (places.bytes > have) ...
 *   vx_gpu_choices_close(&choices);
 *
 * One block of memory holds a request, in this order:
 *   index      the active set: keys, rows
 *   maps       one piece for each
 *   shared     the plan's tensors; before the first of them lives, the coordinates, then
 *              the scratch of each map
 *   workspace  of the convolution that wants most
 *
 * Owner    the caller; the plan and what pick borrows outlive the choices.
 * Thread   any: after open nothing changes.
 * Limits   VX_LAYERS_MAX maps; N up to the voxels_max given.
 * Fails    RESOURCE_EXHAUSTED no memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_CHOICE_H
#define VX_ENGINE_GPU_MODEL_CHOICE_H

#include "engine/gpu/conv.h"
#include "engine/gpu/map.h"
#include "engine/plan/plan.h"
#include "engine/tune/pick.h"

/* Every piece of the block begins on this many bytes. */
#define VX_GPU_LINE_BYTES 256

struct vx_gpu_choices_want {
    const struct vx_plan *plan;
    enum vx_number type;
    i64 voxels_max;
    const struct vx_pick *pick;
};
struct vx_gpu_choices {
    const struct vx_plan *plan;
    enum vx_number type;
    i64 voxels_max;
    struct vx_conv_choice *choices; /* (sizes, launches) */
};

/* Of one request. */
struct vx_gpu_map_place {
    i32 map; /* in the plan's maps */
    struct vx_gpu_map_want want;
    size_t offset;
};
struct vx_gpu_places {
    i64 n;
    size_t index, shared, workspace; /* offsets */
    size_t bytes;                    /* of all; SIZE_MAX when that is beyond counting */
    i32 maps_count;
    struct vx_gpu_map_place maps[VX_LAYERS_MAX];
    i32 map_of[VX_LAYERS_MAX]; /* by launch: in maps; -1 = needs none */
};

VX_MUST_USE vx_status vx_gpu_choices_open(const struct vx_gpu_choices_want *want,
                                          struct vx_gpu_choices **choices);
void vx_gpu_choices_close(struct vx_gpu_choices **choices);
/* True for what vx_conv_launch computes: a convolution or a linear layer. */
bool vx_gpu_is_conv(const struct vx_launch *launch);
void vx_gpu_problem_make(const struct vx_gpu_choices *choices, i32 launch, i64 n,
                         struct vx_conv_problem *problem);
/* Of a convolution or linear layer, for N voxels. */
const struct vx_conv_choice *vx_gpu_choice_get(const struct vx_gpu_choices *choices,
                                               i32 launch, i64 n);
/* For all sizes of that bit length. */
void vx_gpu_choice_set(struct vx_gpu_choices *choices, i32 launch, int bits,
                       const struct vx_conv_choice *choice);
/* 1 <= n <= voxels_max. */
void vx_gpu_places_make(const struct vx_gpu_choices *choices, i64 n,
                        struct vx_gpu_places *places);
/* The most that any request of up to N voxels needs (a smaller size may have a hungrier
 * algorithm); SIZE_MAX beyond voxels_max.  `places` is overwritten. */
size_t vx_gpu_places_need(const struct vx_gpu_choices *choices, i64 n,
                          struct vx_gpu_places *places);

#endif
