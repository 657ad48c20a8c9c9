/* exec_job - one request that runs through a plan on the CPU device.
 *
 * exec.c prepares it: geometry, places of tensors, conversions.  exec_launch.c carries out
 * its launches.
 *
 * Owner    exec.c; everything that it points to is borrowed for the run.
 * Thread   device.
 * Limits   those of the plan.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_EXEC_JOB_H
#define VX_ENGINE_PLAN_EXEC_JOB_H

#include "engine/cpu/run/exec.h"

struct vx_job {
    struct vx_exec *exec;
    const struct vx_plan *plan;
    const struct vx_weights *weights;
    struct vx_item *item;
    u8 *block; /* the plan's offsets count from here */
    size_t bytes;
    struct vx_progress running; /* report NULL for a warm-up */
    struct vx_geometry *geometry;
    i32 sets[VX_SETS_MAX]; /* the geometry's number of each set of the network */
    i64 rows[VX_SETS_MAX];
    const struct vx_map *maps[VX_LAYERS_MAX];
    const f32 *feats; /* tensor 0, or the caller's features if they are f32 */
    f32 *tensors[VX_MEMORY_TENSORS_MAX];
};

struct vx_exec {
    u32 magic;
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
    u8 *block;
    size_t bytes;
    size_t used_max;
    struct vx_progress running;
    struct vx_job asking; /* the request that asks; item NULL = none does */
    bool launched;        /* its layers are done */
};

/* Carries out one launch of the plan: geometry and tensors are there. */
void vx_job_launch(const struct vx_job *job, i32 index);

/* exec_outputs.c */
enum vx_number vx_job_number_of(enum vx_dtype dtype);
/* True for an output that is a tensor of the plan as it is. */
bool vx_job_output_is_plain(const struct vx_plan *plan, i32 output);
/* The rows of output `o`, in the numbers of the model's signature, if it is not on set 0;
 * its sets are there. */
i64 vx_job_output_rows(const struct vx_job *job, i32 o);
/* Fails with INVALID_ARGUMENT where a voxel lies outside of a dense output that the
 * request wants; its sets are there. */
VX_MUST_USE vx_status vx_job_dense_check(const struct vx_job *job);
/* Writes all that are wanted, once the launches are done. */
void vx_job_write_outputs(const struct vx_job *job);

#endif
