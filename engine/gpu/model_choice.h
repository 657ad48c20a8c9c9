/* model_choice - how a model runs on one device: an algorithm and a tile for every layer
 * and size, the sorted maps these want, and where all of a round lies in the device's
 * memory.
 *
 * Everything here is decided at load, or by arithmetic on the number of voxels: what
 * does not fit is refused before anything is launched.  Sizes are powers of two (the
 * bit length of N); inside one of them nothing changes but lengths.
 *
 *   VX_TRY(vx_gpu_choices_open(&want, &choices));
 *   vx_gpu_places_make(choices, &(struct vx_gpu_sizes){&n, 1}, &places);
 *   if (places.bytes > have) ...
 *   vx_gpu_choices_close(&choices);
 *
 * One block of memory holds a round (round.h), in this order:
 *   join       of several pieces: their rows and maps as one
 *   pieces     what is built for those that the geometry store does not keep
 *   sorted     orders of rows
 *   shared     the plan's tensors; before the first of them lives, the coordinates, then
 *              the scratch of geometry
 *   workspace  of the convolution that wants most
 * What the store keeps leaves its place here unused: a round needs what it would need with
 * an empty store, whatever the store has.
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
#include "engine/gpu/order.h"
#include "engine/gpu/pieces.h"
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

/* The voxels of the pieces of one round. */
struct vx_gpu_sizes {
    const i64 *list;
    i32 count; /* 1 .. VX_BATCH_ITEMS_MAX */
};
/* Rows sorted by one map's masks. */
struct vx_gpu_sorted {
    i32 map; /* in the plan's maps */
    i32 groups;
    size_t offset;
};
struct vx_gpu_places {
    i64 n; /* of all pieces */
    i32 pieces_count;
    size_t rows;                       /* offsets: of the join; one piece has none */
    size_t joined[VX_LAYERS_MAX];      /* its maps, in the plan's order */
    size_t pieces[VX_BATCH_ITEMS_MAX]; /* vx_gpu_piece_place */
    i32 sorted_count;
    struct vx_gpu_sorted sorted[VX_LAYERS_MAX];
    i32 sorted_of[VX_LAYERS_MAX]; /* by launch: in sorted; -1 = rows as they are */
    size_t shared, coords[VX_BATCH_ITEMS_MAX], scratch;
    size_t workspace;
    size_t bytes; /* of all; SIZE_MAX when that is beyond counting */
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
/* Together 1 .. voxels_max voxels. */
void vx_gpu_places_make(const struct vx_gpu_choices *choices,
                        const struct vx_gpu_sizes *sizes, struct vx_gpu_places *places);
/* The most that any round of one piece of up to N voxels needs (a smaller size may have a hungrier
 * algorithm); SIZE_MAX beyond voxels_max.  `places` is overwritten. */
size_t vx_gpu_places_need(const struct vx_gpu_choices *choices, i64 n,
                          struct vx_gpu_places *places);

/* Rows and maps of a piece of n voxels: what a round, or the store, keeps of it. */
size_t vx_gpu_piece_bytes(const struct vx_plan *plan, i64 n);
/* Sets rows and maps of *piece, whose n, and array of maps, are there. */
void vx_gpu_piece_place(const struct vx_plan *plan, void *memory,
                        struct vx_gpu_piece *piece);
/* What a sorted map has beside the map: order and block masks. */
struct vx_gpu_order_want vx_gpu_sorted_want(const struct vx_plan *plan, i64 n,
                                            const struct vx_gpu_sorted *sorted);
size_t vx_gpu_sorted_bytes(const struct vx_gpu_order_want *want);
void vx_gpu_sorted_place(const struct vx_gpu_order_want *want, void *memory,
                         struct vx_gpu_map *map);

#endif
