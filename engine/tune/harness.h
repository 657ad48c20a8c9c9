/* harness - one convolution set up on the device to be measured.
 *
 * It has the tensors, the geometry, the map and the workspace of the convolution, runs it
 * any number of times, and measures the time.
 *
 *   VX_TRY(vx_harness_open(set, stream, &why, &harness));
 *   VX_TRY(vx_harness_load(harness, &problem, NULL, &why));      (a shell of problem.n)
 *   VX_TRY(vx_harness_use(harness, &choice, &why));              (its map and workspace)
 *   VX_TRY(vx_harness_run(harness, harness->out, &why));
 *   VX_TRY(vx_harness_time(harness, &timing, &why, ns));
 *   vx_harness_close(&harness);
 *
 * Owner    the caller; set and stream are borrowed.
 * Thread   device.
 * Limits   device memory for one problem at a time beside the engine's own.
 * Fails    as gpu.h; RESOURCE_EXHAUSTED when the problem does not fit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_HARNESS_H
#define VX_ENGINE_TUNE_HARNESS_H

#include "engine/gpu/conv/conv.h"
#include "engine/gpu/geometry/order.h"
#include "engine/tune/data.h"
#include "engine/tune/density.h"

/* The most runs of one timing; each run has a pair of events. */
#define VX_HARNESS_RUNS_MAX 200
/* To empty the last-level cache, this many times its size is written, because a cache
 * does not always evict the oldest lines. */
#define VX_HARNESS_FLUSH_TIMES     2
#define VX_HARNESS_FLUSH_BYTES_MIN ((size_t)1 << 20)

struct vx_harness {
    struct vx_gpu_queue queue; /* blas: opened when the explicit algorithm first runs */
    struct vx_gpu *gpu;
    struct vx_conv_problem problem; /* fill is counted by load; no strides */
    struct vx_conv_choice choice;   /* the last one of vx_harness_use */
    struct vx_map_key key;
    bool own;   /* EXPLICIT uses our kernel even if there is a vendor's library */
    bool plain; /* masks are sorted as numbers, else by their Gray rank */
    i64 pairs;  /* 0 until known */
    struct vx_data *in_data, *weight_data;
    void *coords, *index_memory, *rows, *map_memory, *order_memory; /* device */
    void *scratch, *in, *weight, *bias, *out, *workspace;
    void *column_scale; /* of type E4M3 */
    void *tiled;        /* weights, NULL until a tile that streams is used */
    size_t map_bytes, order_bytes, scratch_bytes, workspace_bytes;
    struct vx_gpu_index index;
    struct vx_gpu_order_want want; /* of the map; groups 0 = no map is built */
    struct vx_gpu_map map;
    void *flush;
    size_t flush_bytes;
    struct vx_gpu_event *events[2 * VX_HARNESS_RUNS_MAX];
};

VX_MUST_USE vx_status vx_harness_open(struct vx_kernel_set *set,
                                      struct vx_gpu_stream *stream, struct vx_why *why,
                                      struct vx_harness **harness);
void vx_harness_close(struct vx_harness **harness);

/* The options of a load; zeros are the defaults. */
struct vx_harness_geometry {
    const i32 *coords; /* (n, 4) on the host; NULL = n voxels of the problem's density */
    i32 dilation[3];   /* 0 counts as 1 */
};
/* Loads a problem, frees the one before.  Needs the kernels of vx_gpu_map_kernels. */
VX_MUST_USE vx_status vx_harness_load(struct vx_harness *harness,
                                      const struct vx_conv_problem *problem,
                                      const struct vx_harness_geometry *geometry,
                                      struct vx_why *why);
/* Makes the map and the workspace for a choice, whose kernels must be ready. */
VX_MUST_USE vx_status vx_harness_use(struct vx_harness *harness,
                                     const struct vx_conv_choice *choice,
                                     struct vx_why *why);
/* Puts one convolution on the stream. */
VX_MUST_USE vx_status vx_harness_run(struct vx_harness *harness, void *out,
                                     struct vx_why *why);
/* Puts the build of the map, from the coordinates on, on the stream. */
VX_MUST_USE vx_status vx_harness_map_run(struct vx_harness *harness, struct vx_why *why);
size_t vx_harness_out_bytes(const struct vx_harness *harness);

/* The time of a warm-up, because clocks rise under load: an idle H200 runs at 345 MHz and
 * reaches 1980 MHz within milliseconds.  It must not be longer: after some 50 ms the
 * power limit lowers the clock again, and wide convolutions take 7 % more time than in a
 * burst (256 to 128 channels: 1.31 and 1.41 ms on random data, no change on zeros).  The
 * fake has no clock and ignores it. */
#define VX_STAND_WARM_NS INT64_C(10000000)

/* Times whatever `run` puts on the stream. */
struct vx_harness_timing {
    vx_status (*run)(void *context, struct vx_why *why);
    void *context;
    i32 runs, warmups;
    i64 warm_ns; /* warm-ups are repeated for this long: VX_STAND_WARM_NS */
    bool cold;   /* the last-level cache is overwritten before each run */
    bool graph;  /* recorded once and replayed, else launched one by one */
};
/* Writes ns[runs], sorted, the fastest first. */
VX_MUST_USE vx_status vx_harness_time(struct vx_harness *harness,
                                      const struct vx_harness_timing *timing,
                                      struct vx_why *why, f64 *ns);
/* A quantile of sorted numbers: a share of 0.5 gives the median. */
f64 vx_harness_quantile(const f64 *sorted, i32 count, f64 share);

#endif
