/* measure - checks and times the candidates of one convolution on the device.
 *
 * A candidate is an algorithm with a tile.  Each candidate runs once into poisoned
 * memory, and its output is compared with the oracle: the output of the simplest
 * algorithm's first tile.  The oracle itself is compared with sums in double on the host,
 * for VX_MEASURE_ROWS sampled rows.  If candidate and oracle both have the layer's order,
 * their bits must agree (conv.h).  Correct candidates are timed with a few runs, and the
 * fastest few are timed again: median of event times, with the last-level cache
 * overwritten before each run.
 *
 *   VX_TRY(vx_measure_open(&device, &want, &why, &measure));
 *   VX_TRY(vx_measure_ready(measure, &problem, NULL, &why));      (loading thread)
 *   VX_TRY(vx_measure_conv(measure, &problem, &why, &report));    (device thread)
 *   VX_TRY(vx_measure_keep(jit, &report, table, &why));           (rows for pick.h)
 *   vx_measure_close(&measure);
 *
 * To run other work on the device in between, call begin, and step while *more, instead
 * of vx_measure_conv.  The geometry has problem.n voxels: a shell, which is like a surface,
 * or noise if the problem's fill is of the density sparse (engine/tune/shapes.h).  Features
 * and weights are random numbers from VX_MEASURE_SEED.
 *
 * Owner    the caller; what `device` and `want` point to must outlive the measure.
 * Thread   ready: the loading thread; the rest: device.
 * Limits   VX_MEASURE_CANDIDATES_MAX candidates; device memory beside the engine's own:
 *          RESOURCE_EXHAUSTED when there is not enough.
 * Fails    as gpu.h and jit.h; INTERNAL when the oracle itself is wrong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_MEASURE_H
#define VX_ENGINE_TUNE_MEASURE_H

#include "engine/gpu/conv/conv.h"
#include "engine/tune/table.h"

/* 6 algorithms of some 40 tiles. */
#define VX_MEASURE_CANDIDATES_MAX 256
/* Candidates of mode AUTO.  If the cost model is right within a factor of 1.5, the
 * fastest candidate of every measured shape is among its best eight. */
#define VX_MEASURE_CANDIDATES_AUTO 8
/* Rows of the oracle that the host sums again in double.  If a tenth of the rows are
 * wrong, 64 random rows miss it once in a thousand times.  Candidates are compared
 * in all rows. */
#define VX_MEASURE_ROWS        64
#define VX_MEASURE_RUNS_SCREEN 5
#define VX_MEASURE_RUNS_FINAL  25 /* of those that were the fastest in the screening */
#define VX_MEASURE_FINALISTS   4
#define VX_MEASURE_SEED        UINT64_C(0x766f78656c64)

struct vx_measure_device {
    struct vx_kernel_set *set;
    struct vx_jit *jit;
    struct vx_gpu_stream *stream;
};
struct vx_measure_want {
    enum vx_tune_mode mode;           /* AUTO: the cheapest few; ALL: all that fit */
    enum vx_conv_algorithm algorithm; /* pinned, or AUTO: those of the layer's order */
    i32 dilation[3];                  /* 0 counts as 1 */
    const i32 *coords;                /* (problem.n, 4) on the host; NULL = by the fill */
};

struct vx_measure_result {
    struct vx_conv_choice choice;
    bool right;      /* within both bounds, and in every bit if the orders are the same */
    bool same;       /* the same bits as the oracle */
    bool final;      /* ns is of the second timing */
    f64 nmse, worst; /* against the oracle; worst element as a share of its bound */
    f64 ns;          /* median; 0 when not right */
};
struct vx_measure_report {
    struct vx_conv_problem problem; /* as requested */
    f64 fill;                       /* as counted: pairs / (N*V) */
    struct vx_conv_choice oracle;
    i64 pairs;
    i32 count, rejected;
    i32 best; /* index of the fastest right one; -1 = none */
    struct vx_measure_result results[VX_MEASURE_CANDIDATES_MAX];
};

struct vx_measure;

VX_MUST_USE vx_status vx_measure_open(const struct vx_measure_device *device,
                                      const struct vx_measure_want *want,
                                      struct vx_why *why, struct vx_measure **measure);
void vx_measure_close(struct vx_measure **measure);
/* Pure: lists what would be measured, cheapest first; returns how many. */
i32 vx_measure_candidates(const struct vx_measure_want *want,
                          const struct vx_conv_problem *problem,
                          const struct vx_caps *caps,
                          struct vx_conv_choice choices[VX_MEASURE_CANDIDATES_MAX]);
/* Compiles and loads all that vx_measure_conv will launch for this problem. */
VX_MUST_USE vx_status vx_measure_ready(struct vx_measure *measure,
                                       const struct vx_conv_problem *problem,
                                       const struct vx_progress *progress,
                                       struct vx_why *why);
/* Every kernel must be ready.  `report` is large: not for a small stack.  A wrong
 * candidate is logged, counted and not timed.  begin sets up and runs the oracle; a step
 * measures one candidate, or one finalist again; *more: steps are left.  After a fault
 * call only close. */
VX_MUST_USE vx_status vx_measure_begin(struct vx_measure *measure,
                                       const struct vx_conv_problem *problem,
                                       struct vx_why *why,
                                       struct vx_measure_report *report);
VX_MUST_USE vx_status vx_measure_step(struct vx_measure *measure, struct vx_why *why,
                                      struct vx_measure_report *report, bool *more);
/* begin and all steps. */
VX_MUST_USE vx_status vx_measure_conv(struct vx_measure *measure,
                                      const struct vx_conv_problem *problem,
                                      struct vx_why *why,
                                      struct vx_measure_report *report);
/* Adds the report of the same candidates on another cloud to one of so many before: a candidate's time
 * is the geometric mean, and it is right if it is right on each. */
void vx_measure_join(const struct vx_measure_report *one, i32 before,
                     struct vx_measure_report *all);
/* Puts the fastest candidate of each algorithm into the table, under the density of the
 * requested fill and not of the counted one: a plan that does not know the fill (0) must
 * find the row. */
VX_MUST_USE vx_status vx_measure_keep(const struct vx_jit *jit,
                                      const struct vx_measure_report *report,
                                      struct vx_tune_table *table, struct vx_why *why);

#endif
