/* stand - one convolution set up on the device to be run again and again: tensors, geometry,
 * maps, workspace, and a stopwatch.
 *
 *   VX_TRY(vx_stand_open(set, stream, &why, &stand));
 *   VX_TRY(vx_stand_load(stand, &problem, NULL, NULL, &why));      (a shell of problem.n)
 *   VX_TRY(vx_stand_use(stand, &choice, &why));                    (its map, its workspace)
 *   VX_TRY(vx_stand_run(stand, stand->out, &why));
 *   VX_TRY(vx_stand_time(stand, &timing, &why, ns));
 *   vx_stand_close(&stand);
 *
 * Owner    the caller; set and stream are borrowed.
 * Thread   device.
 * Limits   device memory for one problem at a time beside the engine's own.
 * Fails    as gpu.h; RESOURCE_EXHAUSTED when the problem does not fit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_STAND_H
#define VX_ENGINE_TUNE_STAND_H

#include "engine/gpu/conv.h"
#include "engine/tune/data.h"

/* Pairs of events: the most runs of one timing. */
#define VX_STAND_RUNS_MAX 200
/* What is written to empty the last-level cache: so many times its size, because a cache
 * does not always throw out the oldest. */
#define VX_STAND_FLUSH_TIMES     2
#define VX_STAND_FLUSH_BYTES_MIN ((size_t)1 << 20)

struct vx_stand {
    struct vx_gpu_queue queue; /* blas: opened when the explicit algorithm first runs */
    struct vx_gpu *gpu;
    struct vx_conv_problem problem; /* fill is counted by load */
    struct vx_conv_choice choice;   /* the last that was used */
    struct vx_map_key key;
    i32 windows; /* of sorted maps; 0 = what the engine takes */
    bool own;    /* EXPLICIT multiplies with our kernel even where the vendor has one */
    bool plain;  /* masks sorted as numbers, else by their Gray rank */
    i64 pairs;   /* 0 until known */
    struct vx_data *in_data, *weight_data;
    void *coords, *index_memory, *rows, *map_memory, *map_scratch; /* device */
    void *in, *weight, *bias, *out, *workspace;
    size_t map_bytes, scratch_bytes, workspace_bytes;
    struct vx_gpu_index index;
    struct vx_gpu_map_want want; /* of the map; groups 0 = none is built */
    struct vx_gpu_map map;
    void *flush;
    size_t flush_bytes;
    struct vx_gpu_event *events[2 * VX_STAND_RUNS_MAX];
};

VX_MUST_USE vx_status vx_stand_open(struct vx_kernel_set *set,
                                    struct vx_gpu_stream *stream, struct vx_why *why,
                                    struct vx_stand **stand);
void vx_stand_close(struct vx_stand **stand);

/* What a load is told besides the problem: zeros are the defaults. */
struct vx_stand_geometry {
    const i32 *coords; /* (n, 4) on the host; NULL = a shell of n voxels */
    i32 dilation[3];   /* 0 counts as 1 */
};
/* Frees what was loaded before.  The kernels of vx_gpu_map_kernels must be ready. */
VX_MUST_USE vx_status vx_stand_load(struct vx_stand *stand,
                                    const struct vx_conv_problem *problem,
                                    const struct vx_stand_geometry *geometry,
                                    struct vx_why *why);
/* Makes map and workspace right for a choice whose kernels are ready. */
VX_MUST_USE vx_status vx_stand_use(struct vx_stand *stand,
                                   const struct vx_conv_choice *choice,
                                   struct vx_why *why);
/* The map that a choice reads: what the engine would build for it. */
void vx_stand_map_want(const struct vx_stand *stand, enum vx_conv_algorithm algorithm,
                       struct vx_gpu_map_want *want);
/* Puts one convolution on the stream. */
VX_MUST_USE vx_status vx_stand_run(struct vx_stand *stand, void *out, struct vx_why *why);
/* Puts what stands between coordinates and map on the stream. */
VX_MUST_USE vx_status vx_stand_map_run(struct vx_stand *stand, struct vx_why *why);
size_t vx_stand_out_bytes(const struct vx_stand *stand);

/* Clocks rise under load: an idle H200 stands at 345 MHz and is at 1980 within
 * milliseconds.  Not longer: from some 50 ms on its power limit lowers them again, and wide
 * convolutions come out 7 % slower than they are in a burst (256 to 128 channels, 1.31
 * and 1.41 ms on random data; on zeros nothing changes).  The fake has no clock. */
#define VX_STAND_WARM_NS INT64_C(10000000)

/* Times whatever `run` puts on the stream. */
struct vx_stand_timing {
    vx_status (*run)(void *context, struct vx_why *why);
    void *context;
    i32 runs, warmups;
    i64 warm_ns; /* and warm-ups go on for this long: see VX_STAND_WARM_NS */
    bool cold;   /* the last-level cache is overwritten before each run */
    bool graph;  /* recorded once and replayed, else launched one by one */
};
/* ns[runs], sorted: the fastest first. */
VX_MUST_USE vx_status vx_stand_time(struct vx_stand *stand,
                                    const struct vx_stand_timing *timing,
                                    struct vx_why *why, f64 *ns);
/* Of sorted numbers: the one that `share` of them lie at or below. */
f64 vx_stand_quantile(const f64 *sorted, i32 count, f64 share);

#endif
