/* plan - how a graph is run: launches in order, their maps, where their tensors lie.
 *
 * A plan holds for every N: memory is counted in channels per voxel (memory.h).  It is
 * made once when a model is loaded and then only read.
 *
 *   VX_TRY(vx_plan_build(graph, &arena, &plan));
 *   if (vx_plan_bytes(plan, n) > have) ...at most vx_plan_voxels_max(plan, have) fit...
 *
 * Tensor 0 is the features as f32; tensor i + 1 is the result of node i.
 *
 * Owner    lives in the arena; points into the graph, which must outlive it.
 * Thread   any; pure.
 * Limits   VX_LAYERS_MAX launches; VX_PLAN_ARENA_BYTES is always enough.
 * Fails    RESOURCE_EXHAUSTED when the arena is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_PLAN_H
#define VX_ENGINE_PLAN_PLAN_H

#include "engine/geometry/geometry.h"
#include "engine/model/fuse.h"
#include "engine/plan/memory.h"

/* VX_LAYERS_MAX launches, tensors and maps of less than 64 bytes each. */
#define VX_PLAN_ARENA_BYTES (256 << 10)

/* Rows are padded to this many, so that every tensor begins on a 64-byte line. */
#define VX_PLAN_ROWS_UNIT 16

/* Launches are one per node, in the order of the nodes. */
struct vx_launch {
    const struct vx_node *node;
    enum vx_op op; /* the node's, but LINEAR for a convolution of one offset */
    i32 map;       /* SUBM_CONV: index in the plan's maps, else -1 */
    i32 inputs[VX_LAYER_INPUTS_MAX]; /* tensors */
    i32 output;                      /* tensor */
};

struct vx_plan {
    const struct vx_graph *graph;
    struct vx_launch *launches;
    i32 launches_count;
    struct vx_memory_tensor *tensors;
    i32 tensors_count;
    i64 channels; /* per voxel, of all tensors together */
    struct vx_map_key *maps;
    i32 maps_count;
    i32 outputs[VX_OUTPUTS_MAX]; /* tensors */
};

VX_MUST_USE vx_status vx_plan_build(const struct vx_graph *graph, struct vx_arena *arena,
                                    const struct vx_plan **plan);

/* Bytes for N voxels; SIZE_MAX when that is beyond counting. */
size_t vx_plan_bytes(const struct vx_plan *plan, i64 n);
/* The most voxels that fit in `bytes`; at most VX_VOXELS_MAX. */
i64 vx_plan_voxels_max(const struct vx_plan *plan, size_t bytes);
/* Where a tensor begins. */
size_t vx_plan_tensor_offset(const struct vx_plan *plan, i32 tensor, i64 n);

#endif
