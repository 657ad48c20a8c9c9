/* plan - how a graph is run: launches in order, their maps, where their tensors lie.
 *
 * A plan holds for every N: memory is counted in channels per voxel (memory.h).  It is
 * made once when a model is loaded and then only read.
 *
 *   VX_TRY(vx_plan_build(graph, &vx_plan_cpu, &arena, &plan));
 *   if (vx_plan_bytes(plan, n) > have) ...at most vx_plan_voxels_max(plan, have) fit...
 *
 * Tensor 0 is the features as the layers read them; tensor i + 1 is the result of node i.
 * A staged plan, of a device with memory of its own, also has the features as they were
 * sent and every output as it is wanted: they are alive before the first launch and after
 * the last, so that mostly they lie where other tensors were or will be.
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

/* What a device wants of its tensors. */
struct vx_plan_options {
    i32 rows_unit;     /* rows are padded to a multiple, so that tensors begin on lines */
    i32 channels_unit; /* and so are the channels of a row: powers of two */
    i32 element_bytes; /* 4 or 2 */
    bool staged;
};
/* f32, nothing padded, every tensor on a 64-byte line. */
extern const struct vx_plan_options vx_plan_cpu;
/* Padded channels of 2 or 4 bytes, staged, every tensor on a line of 256 bytes. */
struct vx_plan_options vx_plan_gpu(i32 element_bytes);

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
    struct vx_plan_options options;
    struct vx_launch *launches;
    i32 launches_count;
    struct vx_memory_tensor *tensors;
    i32 tensors_count;
    i64 channels; /* of 4 bytes per voxel, of all tensors together */
    struct vx_map_key *maps;
    const struct vx_map_key **maps_by_size; /* the same, largest first */
    i32 maps_count;
    i32 outputs[VX_OUTPUTS_MAX]; /* tensors */
    i32 staged_feats;            /* tensors of a staged plan */
    i32 staged_outputs[VX_OUTPUTS_MAX];
};

VX_MUST_USE vx_status vx_plan_build(const struct vx_graph *graph,
                                    const struct vx_plan_options *options,
                                    struct vx_arena *arena, const struct vx_plan **plan);

/* Bytes for N voxels; SIZE_MAX when that is beyond counting. */
size_t vx_plan_bytes(const struct vx_plan *plan, i64 n);
/* The most voxels that fit in `bytes`; at most VX_VOXELS_MAX. */
i64 vx_plan_voxels_max(const struct vx_plan *plan, size_t bytes);
/* Channels that a tensor of the graph (not a staged one) has, without padding. */
i32 vx_plan_channels(const struct vx_plan *plan, i32 tensor);
/* Where a tensor begins. */
size_t vx_plan_tensor_offset(const struct vx_plan *plan, i32 tensor, i64 n);

#endif
