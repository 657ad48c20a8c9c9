/* exec_job - one request that runs through a plan on the CPU device.
 *
 * exec_geometry.c makes it, its sets and maps, and gives its tensors places; exec_launch.c
 * carries out its launches.  exec.c calls them stage by stage (plan.h), and converts features
 * and outputs.  exec_warm.c does the same for a made-up request, piece by piece.
 *
 * Owner    exec.c; everything that it points to is borrowed for the run.
 * Thread   device.
 * Limits   those of the plan.
 * Fails    as exec.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_EXEC_JOB_H
#define VX_ENGINE_PLAN_EXEC_JOB_H

#include "engine/cpu/run/exec.h"

#define VX_EXEC_MAGIC 0x76784558u /* "vxEX" */

struct vx_job {
    struct vx_exec *exec;
    const struct vx_plan *plan;
    const struct vx_weights *weights;
    struct vx_item *item;
    u8 *block; /* the plan's offsets count from here */
    size_t bytes;
    struct vx_progress running; /* report NULL for a warm-up */
    struct vx_geometry *geometry;
    bool made_up;               /* a warm-up: sets by logits have stand-ins */
    i64 parts;                  /* sets and maps that are still wanted */
    i64 told;                   /* reports of progress so far */
    i32 sets[VX_SETS_MAX];      /* the geometry's number of each set of the network */
    i64 rows[VX_SETS_MAX];      /* 0 for sets of later stages */
    i32 shapes[VX_SETS_MAX][3]; /* of the request */
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
    const struct vx_job *tells; /* the request whose progress is told now, or NULL */
    struct vx_job asking;       /* the request that asks; item NULL = none does */
    bool launched;              /* its layers are done */
    /* exec_aside.c */
    struct vx_exec *aside; /* what runs meanwhile; NULL in that itself */
    /* The running request only reads its geometry, and has `in_use` bytes of the block. */
    bool computes;
    size_t in_use;
    bool lacks;         /* the last request did not fit in its block */
    i64 aside_ns;       /* of all that ran meanwhile, since open */
    i64 rests_until_ns; /* until then the running request has the device thread */
};

/* Opens and closes what runs meanwhile. */
VX_MUST_USE vx_status vx_aside_open(struct vx_exec *exec, struct vx_why *why);
void vx_aside_close(struct vx_exec *exec);

struct vx_job vx_job_make(struct vx_exec *exec, const struct vx_plan *plan,
                          const struct vx_weights *weights, struct vx_item *item);
/* Fails unless the tensors for these numbers of rows fit in `bytes`. */
VX_MUST_USE vx_status vx_exec_fits(const struct vx_plan *plan, size_t bytes,
                                   const i64 *rows, struct vx_why *why);
/* The same in the job's own bytes; its exec remembers whether they are too few. */
VX_MUST_USE vx_status vx_job_fits(const struct vx_job *job, const i64 *rows);
/* Finds or builds the geometry of the request, and checks the spatial shape. */
VX_MUST_USE vx_status vx_job_hold(struct vx_job *job);
/* Gets the sets and maps of a stage; the layers of the stages before have run. */
VX_MUST_USE vx_status vx_job_stage(struct vx_job *job, i32 stage);
/* Gives the tensors on the sets of a stage their places. */
VX_MUST_USE vx_status vx_job_place(struct vx_job *job, i32 stage);
/* A large request takes many seconds, so its progress is reported: before each set, map and
 * launch, and at the end. */
void vx_job_tell(struct vx_job *job);
/* The same within one of these, which may take many seconds, too: it goes on, and has nothing more
 * done. */
void vx_job_tell_again(const struct vx_job *job);
/* Carries out one launch of the plan: geometry and tensors are there. */
void vx_job_launch(const struct vx_job *job, i32 index);

/* How many rows of a product are computed: all, or in a warm-up those that take a moment.  The
 * others are cleared, so that their memory is there. */
i64 vx_job_rows(const struct vx_job *job, const struct vx_launch *launch);

/* exec_outputs.c */
enum vx_number vx_job_number_of(enum vx_dtype dtype);
/* True for an output that is a tensor of the plan as it is, and is computed where the caller
 * wants it.  That may be a client's memory, which the client changes at any time: what layers
 * read there are numbers, and a wrong one makes the client's own answer wrong.  Logits are not
 * there: how many voxels they make is counted, and then those are written. */
bool vx_job_output_is_in_place(const struct vx_plan *plan, i32 output);
/* The rows of output `o`, in the numbers of the model's signature, if it is not on set 0;
 * its sets are there. */
i64 vx_job_output_rows(const struct vx_job *job, i32 o);
/* Fails where the request has more samples than limits.samples allows (RESOURCE_EXHAUSTED), or
 * a voxel of a set of this stage lies outside of its shape (INVALID_ARGUMENT), for a dense
 * output that it wants. */
VX_MUST_USE vx_status vx_job_dense_check(const struct vx_job *job, i32 stage);
/* Writes all that are wanted, once the launches are done. */
void vx_job_write_outputs(struct vx_job *job);

#endif
