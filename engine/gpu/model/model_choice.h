/* model_choice - how a model runs on one device: algorithms, tiles and memory layout.
 *
 * Every layer has an algorithm and a tile for each size and density (tune/density.h; other
 * maps than of one set count as surfaces).  They are chosen at load; the sorted maps that
 * they need, and the memory layout of a round, then depend only on the rows of each set and
 * the densities of the round, whose memory is enough for any density, so that a request that
 * does not fit is refused before anything is launched.  A size is the class (tune/size.h) of the
 * rows of the layer's set; within one size only lengths change.
 *
 *   VX_TRY(vx_gpu_choices_open(&want, &choices));
 *   vx_gpu_places_make(choices, &(struct vx_gpu_sizes){rows, 1, false, NULL}, &places);
 *   if (places.bytes > have) ...
 *   vx_gpu_choices_close(&choices);
 *
 * One block of memory holds a round (round.h), in this order:
 *   perms      with levels: the order of the rows of each piece
 *   shared     the plan's tensors; before the first of them is written, the coordinates
 *              and the scratch memory of the geometry
 *   join       rows and maps of all pieces as one, if there are several pieces
 *   pieces     rows (of one set) and maps of the pieces that the store does not keep
 *   sorted     row orders
 *   workspace  the largest workspace of a convolution; before that of ranks.h, and after
 *              the last layer of model_dense.h
 * With stages (plan.h) sets are made while tensors are alive: then the coordinates and the
 * scratch memory lie behind the tensors, that for sorting behind the indices, and all is laid
 * out by bounds, once.
 * The place of a piece that the store keeps stays unused: a round needs the same memory
 * whatever the store has.  Where perms, coordinates and scratch lie depends on the rows of
 * set 0 alone: with levels they are in use before the others are known.
 *
 * Owner    the caller; the plan outlives the choices.
 * Thread   any: after open only vx_gpu_choice_set changes anything.
 * Limits   VX_LAYERS_MAX maps; N up to the voxels_max given.
 * Fails    RESOURCE_EXHAUSTED no memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_CHOICE_H
#define VX_ENGINE_GPU_MODEL_CHOICE_H

#include "engine/gpu/conv/conv.h"
#include "engine/gpu/geometry/geometry_store.h"
#include "engine/gpu/geometry/order.h"
#include "engine/gpu/geometry/pieces.h"
#include "engine/plan/plan.h"
#include "engine/tune/pick.h"

struct vx_gpu_choices_want {
    const struct vx_plan *plan;
    enum vx_number type;
    i64 voxels_max;
    const struct vx_pick *pick;
};
/* The densities of the maps that are followed (vx_gpu_choices.followed). */
struct vx_gpu_densities {
    u8 of[VX_GPU_FILLS_MAX]; /* enum vx_density; zeros: surfaces */
};
struct vx_gpu_choices {
    const struct vx_plan *plan;
    const struct vx_caps *caps; /* of the device, or of its architecture */
    enum vx_number type;
    i32 streams; /* blocks of convolutions that do; 0: none may (conv.h) */
    bool neighbours[VX_LAYERS_MAX]; /* by map: its orders have neighbours (order.h) */
    i64 voxels_max;
    /* From so many rows of set 0 on, and to so many, maps are made beside what needs none
     * (vx_gpu_places.beside); with fewer or more, scratch memory and tensors are the same memory. */
    i64 beside_rows, beside_rows_most;
    i64 rows_max[VX_SETS_MAX]; /* the most rows of each set in a round */
    struct vx_set_key keys[VX_SETS_MAX];
    i32 stages[VX_SETS_MAX];               /* of each set (network/sets.h) */
    enum vx_number numbers[VX_LAYERS_MAX]; /* by launch: what a convolution multiplies */
    u8 runs[VX_LAYERS_MAX]; /* by launch: launches of a run (model_mlp.h) */
    const struct vx_tile *narrow[VX_LAYERS_MAX]; /* by launch (model_narrow.h), or NULL */
    /* The first maps of one set and several offsets: their fills are counted and kept, by
     * their numbers here, which are the same for all models with the same maps. */
    i32 followed[VX_GPU_FILLS_MAX], followed_count;
    i8 follows[VX_LAYERS_MAX]; /* by map: its number in followed; -1 = it is not */
    bool by_density;           /* some choice depends on it; false: nothing is counted */
    struct vx_conv_choice *choices; /* (densities, sizes, launches) */
    i32 sizes;
};

/* The rows of the pieces of one round on each set. */
struct vx_gpu_sizes {
    const i64 *rows; /* (count, the plan's sets) */
    i32 count;       /* 1 .. VX_BATCH_ITEMS_MAX */
    /* The rows are bounds: lay out what any smaller numbers on sets but 0 need, too, as a
     * smaller one may have an algorithm that needs more. */
    bool bounds;
    const struct vx_gpu_densities *densities; /* NULL: all are surfaces */
};
/* Rows sorted by one map's masks. */
struct vx_gpu_sorted {
    i32 map; /* index in the plan's maps */
    i32 groups;
    size_t offset;
    size_t scratch; /* from places.order_scratch on: of this order alone */
};
struct vx_gpu_places {
    i64 rows[VX_SETS_MAX]; /* of all pieces, on each set */
    struct vx_gpu_densities densities;
    /* The rows that offsets count from: `rows`, or with stages the bounds. */
    i64 laid[VX_SETS_MAX];
    i32 pieces_count;
    size_t joined_rows;           /* offset of the join's rows, if there is a join */
    size_t joined[VX_LAYERS_MAX]; /* offsets of its maps, in the plan's order */
    size_t joined_ordered[VX_SETS_MAX]; /* and of its canonical orders, as in the plan */
    /* Of the ordered sets with samples: where 23_key_order says how the samples begin, and
     * the most of them. */
    size_t starts[VX_SETS_MAX];
    i32 samples_max[VX_SETS_MAX];
    size_t
        pieces[VX_BATCH_ITEMS_MAX];   /* offsets for vx_gpu_piece_place, or _maps_place */
    size_t perms[VX_BATCH_ITEMS_MAX]; /* with levels: offsets of their rows */
    i32 sorted_count;
    struct vx_gpu_sorted sorted[VX_LAYERS_MAX];
    i32 sorted_of[VX_LAYERS_MAX]; /* by launch: index in sorted; -1 = brick order */
    /* Maps are made while features are copied, and coordinates compared while layers run
     * (round_work.h): tensors do not share the memory that this needs. */
    bool beside;
    size_t shared, coords[VX_BATCH_ITEMS_MAX], scratch;
    size_t order_scratch; /* for sorting */
    size_t levels;        /* with levels: where vx_gpu_levels_place takes memory */
    size_t tensors;       /* what the plan's offsets count from */
    size_t ranks;         /* scratch of vx_gpu_ranks_build */
    size_t workspace;
    size_t bytes; /* of the whole round; SIZE_MAX on overflow */
};

VX_MUST_USE vx_status vx_gpu_choices_open(const struct vx_gpu_choices_want *want,
                                          struct vx_gpu_choices **choices);
void vx_gpu_choices_close(struct vx_gpu_choices **choices);
/* Bytes of choices->choices. */
static inline size_t vx_gpu_choices_bytes(const struct vx_gpu_choices *choices)
{
    return (size_t)VX_DENSITIES_COUNT * (size_t)choices->sizes *
           (size_t)choices->plan->launches_count * sizeof *choices->choices;
}
/* The most rows of each set in a round of n voxels: limits.sets bound each request, and a
 * round may have many. */
void vx_gpu_rows_max(const struct vx_plan *plan, i64 n, i64 rows[VX_SETS_MAX]);
/* True for what vx_conv_launch computes: a dense convolution or a linear layer. */
bool vx_gpu_is_conv(const struct vx_gpu_choices *choices, i32 launch);
/* With children that are computed apart (model_live.h): that of one child's channels.  Rows in
 * that are those of another set are as many as they may be. */
void vx_gpu_problem_make(const struct vx_gpu_choices *choices, i32 launch, i64 n,
                         struct vx_conv_problem *problem);
/* The problem of a round with these rows on each set. */
void vx_gpu_problem_of(const struct vx_gpu_choices *choices, i32 launch, const i64 *rows,
                       struct vx_conv_problem *problem);
/* The choice for a convolution or linear layer and N rows of its set. */
const struct vx_conv_choice *vx_gpu_choice_get(const struct vx_gpu_choices *choices,
                                               i32 launch, i64 n,
                                               enum vx_density density);
/* That of a round: for its rows, of which there are some, and its density. */
const struct vx_conv_choice *vx_gpu_choice_of(const struct vx_gpu_choices *choices,
                                              const struct vx_gpu_places *places,
                                              i32 launch);
/* Sets the choice for all N of one class, on surfaces and on what has no choice of its
 * own. */
void vx_gpu_choice_set(struct vx_gpu_choices *choices, i32 launch, i32 size,
                       const struct vx_conv_choice *choice);
/* With one set: sets beside_rows_most to the most rows, of n at most, whose round needs no more than
 * so many bytes.  Larger ones share memory, so that as many voxels fit as if all did.  Overwrites
 * `places`. */
void vx_gpu_choices_beside(struct vx_gpu_choices *choices, i64 n, size_t bytes,
                           struct vx_gpu_places *places);
/* Lays out a round; all sizes together are 1 .. voxels_max voxels on set 0. */
void vx_gpu_places_make(const struct vx_gpu_choices *choices,
                        const struct vx_gpu_sizes *sizes, struct vx_gpu_places *places);
/* With stages: the rows of the sets of this stage and those before are known; sets what
 * follows from them.  sizes: as the round was laid out, with the rows as they are now. */
void vx_gpu_places_stage(const struct vx_gpu_choices *choices,
                         const struct vx_gpu_sizes *sizes, i32 stage,
                         struct vx_gpu_places *places);
/* The most bytes that a round of one piece of up to N voxels needs: a smaller N may have
 * an algorithm that needs more.  SIZE_MAX beyond voxels_max.  Overwrites `places`. */
size_t vx_gpu_places_need(const struct vx_gpu_choices *choices, i64 n,
                          struct vx_gpu_places *places);

/* Bytes of the rows and maps of a piece of n voxels, in a round or in the store.  With
 * several sets: of the rows alone, as the size of the maps is not known from n. */
size_t vx_gpu_piece_bytes(const struct vx_plan *plan, i64 n);
/* Sets rows and maps of *piece, whose n and array of maps must be set.  With levels:
 * rows alone. */
void vx_gpu_piece_place(const struct vx_plan *plan, void *memory,
                        struct vx_gpu_piece *piece);
/* With levels: the same for the maps, whose rows are set_rows, and for what is ordered. */
size_t vx_gpu_piece_maps_bytes(const struct vx_plan *plan, const i64 *set_rows);
void vx_gpu_piece_maps_place(const struct vx_plan *plan, void *memory,
                             struct vx_gpu_piece *piece);
/* Places what a piece (`piece`), or the join of all, has of an ordered set with so many
 * rows; returns the bytes.  memory NULL: only those. */
size_t vx_gpu_ordered_place(const struct vx_plan_ordered *ordered, i64 rows, bool piece,
                            void *memory, struct vx_gpu_ordered *to);
/* What a sorted map has in addition to the map: row order and block masks.  rows: of each
 * set. */
struct vx_gpu_order_want vx_gpu_sorted_want(const struct vx_gpu_choices *choices,
                                            const i64 *rows,
                                            const struct vx_gpu_sorted *sorted);

#endif
