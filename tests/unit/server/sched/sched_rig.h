/* sched_rig - a scheduler with workers that are up and devices that are known, for tests.
 *
 *   struct vx_sched *sched = rig_open(&batching, 2);
 *   rig_teach(sched, &(struct rig_device){.worker = 0, .fixed_ns = 200000, .pair_ns = 10});
 *   struct vx_job job = rig_job(100);
 *   rig_submit(sched, &job, now_ns);
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_SCHED_RIG_H
#define VX_TESTS_UNIT_SCHED_RIG_H

#include "engine/base/process/clock.h"
#include "server/sched/sched.h"

#include <check.h>

#define RIG_QUEUE_MAX 512
#define US            VX_NS_PER_US
#define MS            VX_NS_PER_MS

/* Instance 0 is ready on the workers 0 .. workers - 1. */
struct vx_sched *rig_open(const struct vx_batching *batching, i32 workers);
struct vx_sched *rig_open_queue(const struct vx_batching *batching, i32 workers,
                                i32 queue_max);
/* Ends the running jobs, drops the waiting ones. */
void rig_close(struct vx_sched **sched);

/* What a batch costs on a device: afterwards the scheduler has seen a dozen of them. */
struct rig_device {
    i32 instance, worker;
    i64 fixed_ns, pair_ns, build_ns; /* per batch, per pair, per voxel built */
};
void rig_teach(struct vx_sched *sched, const struct vx_batching *batching, u32 workers,
               const struct rig_device *device);

struct vx_job rig_job(i64 voxels);
void rig_submit(struct vx_sched *sched, struct vx_job *job, i64 now_ns);
void rig_pick(struct vx_sched *sched, i64 now_ns, struct vx_batch_plan *plan);
void rig_finish(struct vx_sched *sched, const struct vx_batch_plan *plan, i64 now_ns);
void rig_no_job(void *context, struct vx_job *job);
void rig_count_job(void *context, struct vx_job *job);

#endif
