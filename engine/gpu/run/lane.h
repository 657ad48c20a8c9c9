/* lane - one of a device's two main streams, with the streams beside it, events and memory that
 * a round needs.
 *
 * It has its streams twice.  A round beside a much longer one takes the urgent ones: a device gives
 * its processors to blocks in the order of their streams' priority, and to blocks of one priority as
 * they come, so that those of the short round waited for all that the long one had launched.
 *
 * Events time the parts of a round.  Page-locked host memory, and device memory of the
 * same size, hold the descriptions that are uploaded and the results that the host reads.
 *
 *   VX_TRY(vx_gpu_lane_open(gpu, set, &why, &lane));
 *   VX_TRY(vx_gpu_lane_mark(&lane, VX_GPU_MARK_BEGIN, &why));
 *   ...
 *   VX_TRY(vx_gpu_lane_wait(&lane, &why));
 *   vx_gpu_lane_close(&lane);
 *
 * Owner    the caller's struct; gpu and set are borrowed and outlive it.
 * Thread   device.
 * Limits   one round at a time.
 * Fails    as gpu.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_LANE_H
#define VX_ENGINE_GPU_LANE_H

#include "engine/base/limits.h"
#include "engine/gpu/geometry/pieces.h"

/* Questions about dense outputs: of each member its samples, and an output each. */
#define VX_GPU_DENSE_EACH_MAX (1 + VX_NETWORK_OUTPUTS_MAX)

/* Maps of the members of a round, each with its pairs: pick.c has no more members than their
 * descriptions fit, of 64 bytes each; a single member may have all maps of a network. */
#define VX_GPU_PAIRS_MAX (VX_GPU_JOIN_UPLOAD / 64)

/* Streams on which maps are made while features are copied: most networks have two kinds of
 * maps, those of one set and those between sets. */
#define VX_GPU_BESIDE_STREAMS 2

/* The events that separate the parts of a round. */
enum vx_gpu_mark {
    VX_GPU_MARK_BEGIN,
    VX_GPU_MARK_GEOMETRY, /* but for maps that are made beside what follows */
    VX_GPU_MARK_FEATS,
    VX_GPU_MARK_MAPS, /* those too */
    VX_GPU_MARK_LAYERS,
    VX_GPU_MARK_END,
    VX_GPU_MARKS_COUNT
};

struct vx_gpu_lane_streams {
    struct vx_gpu_stream *main, *beside[VX_GPU_BESIDE_STREAMS];
};

struct vx_gpu_lane {
    u32 bit; /* this lane in vx_gpu_geometry.writers; set before open */
    struct vx_gpu *gpu;
    struct vx_gpu_lane_streams streams[2]; /* usual; urgent */
    /* The streams of its rounds: main and beside of one of the two. */
    struct vx_gpu_queue queue;
    struct vx_gpu_stream *beside[VX_GPU_BESIDE_STREAMS];
    /* How far the latter are (round_work.h). */
    struct vx_gpu_event *come[VX_GPU_BESIDE_STREAMS];
    struct vx_gpu_event *made; /* all geometry of the round is there */
    struct vx_gpu_event *marks[VX_GPU_MARKS_COUNT];
    struct vx_gpu_event *sized; /* the sizes of sets have been copied out */
    struct vx_gpu_event *told;  /* and so have the answers about geometries */
    /* With stages: where the geometry of a stage begins, and ends; not of stage 0. */
    struct vx_gpu_event *stages[VX_SETS_MAX][2];
    struct vx_gpu_upload upload;
    /* One per member of the round, where kernels write them, and where the host reads them: the
     * same, or a copy (vx_gpu_lane_answer).  Behind the last one, the pairs of each map of each
     * member (round_fills.h). */
    struct vx_gpu_piece_result *results, *answers;
    u32 *differs;
    u32 (*faults)[2];
    u8 *counts; /* host: the counts of the sets of a round (levels.h) */
    /* What is asked of the voxels of dense outputs, and found (round_dense.h). */
    u8 *dense_host, *dense_device;
    void *host, *device; /* the two allocations that hold all of this */
};

VX_MUST_USE vx_status vx_gpu_lane_open(struct vx_gpu *gpu, struct vx_kernel_set *set,
                                       struct vx_why *why, struct vx_gpu_lane *lane);
void vx_gpu_lane_close(struct vx_gpu_lane *lane); /* a lane of zeros is closed */
/* Its next round goes before what usual streams have not begun, or does not; none of it runs. */
void vx_gpu_lane_hurry(struct vx_gpu_lane *lane, bool urgent);
VX_MUST_USE vx_status vx_gpu_lane_mark(struct vx_gpu_lane *lane, enum vx_gpu_mark mark,
                                       struct vx_why *why);
/* Nanoseconds of the device between two marks that have happened. */
VX_MUST_USE vx_status vx_gpu_lane_elapsed(struct vx_gpu_lane *lane,
                                          enum vx_gpu_mark begin, enum vx_gpu_mark end,
                                          struct vx_why *why, i64 *ns);
/* Copies so many bytes of results out, unless kernels write them where the host reads them. */
VX_MUST_USE vx_status vx_gpu_lane_answer(struct vx_gpu_lane *lane,
                                         struct vx_gpu_stream *stream, size_t bytes,
                                         struct vx_why *why);
/* For all that is on its streams. */
VX_MUST_USE vx_status vx_gpu_lane_wait(struct vx_gpu_lane *lane, struct vx_why *why);

#endif
