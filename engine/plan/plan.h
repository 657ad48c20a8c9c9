/* plan - how a graph is run: its launches in order, their maps, the places of tensors.
 *
 * A plan is valid for any numbers of rows: memory is counted in channels per row of each
 * set (memory.h), and the tensors of a set lie behind those of the sets before it.  It is
 * made once, when a model is loaded, and then only read.
 *
 * It runs in stages (network/sets.h): first the sets, maps and launches of stage 0; then
 * the sets of stage 1, whose sizes only that tells; and so on.  A static network has one
 * stage.  The tensors of a stage lie behind those of the stages before it, so their places
 * follow from the rows of the sets that are known by then.
 *
 *   VX_TRY(vx_plan_build(graph, &vx_plan_cpu, &arena, &plan));
 *   if (vx_plan_bytes_max(plan, n) > have) ...at most vx_plan_voxels_max(plan, have)...
 *   vx_plan_tensor_offset(plan, tensor, rows)            (rows of each set)
 *
 * Tensor 0 is the features in the type of the computation; tensor i + 1 is the result of
 * node i.  The input of a layer in FP8 is rounded into a tensor of its own, which lives for
 * that launch alone (`rounded`).  A staged plan, for a device with its own memory, has more
 * tensors: the features and the outputs in the request's types.  They are alive only before
 * the first launch and after the last one, so they mostly share memory with others.
 *
 * Owner    the plan lives in the arena; the graph must outlive it.
 * Thread   any; pure.
 * Limits   VX_LAYERS_MAX launches; VX_PLAN_ARENA_BYTES is always enough.
 * Fails    RESOURCE_EXHAUSTED when the arena is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_PLAN_H
#define VX_ENGINE_PLAN_PLAN_H

#include "engine/network/fuse.h"
#include "engine/map_key.h"
#include "engine/plan/memory.h"

/* VX_LAYERS_MAX launches and maps of 64 bytes each at most, and twice as many tensors. */
#define VX_PLAN_ARENA_BYTES (256 << 10)

/* Which launches write and read rows that are parts of others: place.h. */
enum vx_plan_parts { VX_PLAN_PARTS_NONE, VX_PLAN_PARTS_CPU, VX_PLAN_PARTS_GPU };

/* How a device wants its tensors. */
struct vx_plan_options {
    i32 rows_unit;     /* rows are padded to a multiple of it, which aligns the tensors */
    i32 channels_unit; /* channels are padded to a multiple of it; both powers of two */
    i32 element_bytes; /* 4 or 2 */
    /* Of an element of an input that is rounded to e4m3 into a tensor of its own, before the
     * launch; 0 = no such tensors. */
    i32 rounded_bytes;
    bool staged; /* also the features and outputs in the request's types */
    enum vx_plan_parts parts;
};
/* f32, channels not padded, every tensor aligned to 64 bytes, inputs of a concat in its rows,
 * where they may be. */
extern const struct vx_plan_options vx_plan_cpu;
/* Staged, channels padded, 2 or 4 bytes an element, tensors aligned to 256 bytes, inputs of a
 * concat as on the CPU. */
struct vx_plan_options vx_plan_gpu(i32 element_bytes);

/* One launch for each node, in the order of the nodes. */
struct vx_launch {
    const struct vx_node *node;
    /* The node's; LINEAR for a convolution that needs no map, SPARSE_CONV for a product of
     * gathered rows (fuse.h). */
    enum vx_op op;
    i32 map;   /* index in the plan's maps, or -1 */
    i32 order; /* VOXELIZE on the CPU: of its second map (vx_layer_order), else -1 */
    i32 set;   /* of the result */
    i32 inputs[VX_LAYER_INPUTS_MAX]; /* indices of tensors */
    i32 output;                      /* index of a tensor */
    i32 rounded; /* index of the tensor for its input in e4m3, as wide as that; 0 = none */
};
/* True for a matrix product over all channels: a linear layer, or a convolution that is not in
 * groups. */
static inline bool vx_launch_is_product(const struct vx_launch *launch)
{
    if (launch->op == VX_OP_LINEAR || launch->node->gather) return true;
    return vx_op_is_conv(launch->op) && launch->node->layer->groups == 1;
}

/* A tensor whose rows are part of the rows of a concat's result. */
struct vx_plan_part {
    i32 whole; /* the concat's tensor; 0 (the features, never a concat): it has its own rows */
    i32 column; /* its first channel there */
};

/* A set whose rows are needed in canonical order, ascending by sample, x, y, z; or whose
 * voxels are needed. */
struct vx_plan_ordered {
    i32 set;
    bool output; /* network->coords of the same index is about it */
    /* A layer needs the order itself: it has sums over the voxels of a sample, lies on
     * samples, or goes between points and voxels. */
    bool samples;
    bool dense; /* staged plan only: an output is a dense tensor of it */
};
/* False: only the voxels of its rows are needed, in any order. */
static inline bool vx_plan_is_sorted(const struct vx_plan_ordered *ordered)
{
    return ordered->output || ordered->samples;
}

struct vx_plan {
    const struct vx_graph *graph;
    struct vx_plan_options options;
    struct vx_launch *launches;
    i32 launches_count;
    i32 stages_count;            /* at least 1 */
    i32 stage_ends[VX_SETS_MAX]; /* launches of this stage and those before it */
    struct vx_memory_tensor *tensors;
    i32 *tensor_sets;           /* the set on which each tensor lies */
    struct vx_plan_part *parts; /* of each tensor */
    i32 tensors_count;
    const struct vx_set *sets; /* the network's */
    i32 sets_count;
    i32 sets_by_stage[VX_SETS_MAX]; /* all sets, by stage, then by number */
    /* First those with outputs, in the order of network->coords. */
    struct vx_plan_ordered ordered[VX_SETS_MAX];
    i32 ordered_count;
    bool levels; /* several sets, a map that is not SUBM, or an ordered set */
    i64 channels[VX_SETS_MAX]; /* of 4 bytes, per row, that the set's tensors need */
    struct vx_map_key *maps;
    const struct vx_map_key **maps_by_size; /* pointers to the maps, largest first */
    i32 maps_count;
    i32 outputs[VX_OUTPUTS_MAX]; /* indices of tensors, as the two below */
    i32 staged_feats;            /* staged plan only */
    i32 staged_outputs[VX_OUTPUTS_MAX];
};

VX_MUST_USE vx_status vx_plan_build(const struct vx_graph *graph,
                                    const struct vx_plan_options *options,
                                    struct vx_arena *arena, const struct vx_plan **plan);

/* Bytes for these numbers of rows, one for each set; SIZE_MAX when the number overflows. */
size_t vx_plan_bytes(const struct vx_plan *plan, const i64 *rows);
/* The most bytes for a request of N voxels, with every set as large as it can be. */
size_t vx_plan_bytes_max(const struct vx_plan *plan, i64 n);
/* The most voxels for which that fits in `bytes`; at most VX_VOXELS_MAX. */
i64 vx_plan_voxels_max(const struct vx_plan *plan, size_t bytes);
/* Writes what a request needs, for error sentences: "24 channels each", or "24 channels
 * each, and 5 sets made from them". */
#define VX_PLAN_NEED_BYTES 96
const char *vx_plan_need_text(const struct vx_plan *plan, char out[VX_PLAN_NEED_BYTES]);
/* Fails with RESOURCE_EXHAUSTED when a set has more rows than limits.sets allows.
 * `exact`: it has so many, else at least so many. */
VX_MUST_USE vx_status vx_plan_check_set(const struct vx_plan *plan, i32 set, i64 rows,
                                        bool exact, struct vx_why *why);
/* The spatial shape of a request: its own, or if that is zeros the network's; zeros: none.
 */
const i32 *vx_plan_shape(const struct vx_plan *plan, const i32 own[3]);
/* The shape of each set for a request with that spatial shape of its own.  Fails with
 * INVALID_ARGUMENT if a kernel is larger than what it reads. */
VX_MUST_USE vx_status vx_plan_shapes(const struct vx_plan *plan, const i32 own[3],
                                     struct vx_why *why, i32 shapes[VX_SETS_MAX][3]);
/* Fails with INVALID_ARGUMENT if no request may have that spatial shape of its own: a set
 * would exceed the range of coordinates, or lack voxels of the library's (blocks.h).  A
 * warm-up may have it, since nobody reads its answer. */
VX_MUST_USE vx_status vx_plan_check_shape(const struct vx_plan *plan, const i32 own[3],
                                          struct vx_why *why);
/* Fails with INVALID_ARGUMENT: this row of the request, at sample x y z, lies outside of
 * its spatial shape.  -1 and NULL: some row. */
VX_MUST_USE vx_status vx_plan_outside(const struct vx_plan *plan, const i32 own[3],
                                      i64 row, const i32 at[4], struct vx_why *why);
/* The rows of all sets together. */
i64 vx_plan_set_voxels(const struct vx_plan *plan, const i64 *rows);
/* The pairs of the maps for which vx_map_is_one; ORDER, which not every device has, has
 * none. */
i64 vx_plan_one_pairs(const struct vx_plan *plan, const i64 *rows);
/* Fails with INVALID_ARGUMENT: the logit of this voxel of the set that `set` is made from,
 * sample x y z, is not a number; `child`: which of them, 0 for KEEP. */
VX_MUST_USE vx_status vx_plan_not_a_number(const struct vx_plan *plan, i32 set,
                                           const i32 voxel[4], i32 child,
                                           struct vx_why *why);
/* The first launch of a stage. */
static inline i32 vx_plan_stage_begin(const struct vx_plan *plan, i32 stage)
{
    return stage ? plan->stage_ends[stage - 1] : 0;
}
/* The stage in which a map can be made: that of the later of its two sets. */
i32 vx_plan_map_stage(const struct vx_plan *plan, const struct vx_map_key *map);
/* The tensor with the logits of a set by logits (vx_set_is_predicted). */
i32 vx_plan_logits(const struct vx_plan *plan, i32 set);
/* Whether a tensor is the logits of some set: it decides which voxels there are, and is read
 * several times for that, so it never lies in memory that another process may change. */
bool vx_plan_is_logits(const struct vx_plan *plan, i32 tensor);
/* Channels of a tensor of the graph (not a staged one), without padding. */
i32 vx_plan_channels(const struct vx_plan *plan, i32 tensor);
/* Elements from a row of a tensor of the graph to the next: its channels, padded, or those of
 * what it is part of. */
i32 vx_plan_stride(const struct vx_plan *plan, i32 tensor);
/* True for an input of a concat that lies in the rows of its result: it is not copied. */
bool vx_plan_in_place(const struct vx_plan *plan, const struct vx_launch *concat,
                      i32 input);
/* The inputs of a concat that are copied. */
i32 vx_plan_copies(const struct vx_plan *plan, const struct vx_launch *concat);
/* The offset of a tensor, in bytes, for these numbers of rows; those of sets of later stages
 * than the tensor's set are not read. */
size_t vx_plan_tensor_offset(const struct vx_plan *plan, i32 tensor, const i64 *rows);

#endif
