/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/sched/sched_rig.h"

struct vx_sched *rig_open(const struct vx_batching *batching, i32 workers)
{
    return rig_open_queue(batching, workers, RIG_QUEUE_MAX);
}

struct vx_sched *rig_open_queue(const struct vx_batching *batching, i32 workers,
                                i32 queue_max)
{
    struct vx_sched *sched;
    ck_assert(!vx_sched_open(queue_max, &sched).fault);
    vx_sched_instance_set(sched, 0, batching, true);
    for (i32 w = 0; w < workers; w++) {
        vx_sched_worker_up(sched, w);
        vx_sched_instance_ready(sched, 0, w, true);
    }
    return sched;
}

void rig_close(struct vx_sched **sched)
{
    int dropped = 0;
    for (i32 w = 0; w < VX_WORKERS_MAX; w++)
        vx_sched_worker_down(*sched, w, rig_count_job, &dropped);
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        vx_sched_drop_instance(*sched, i, rig_count_job, &dropped);
    vx_sched_close(sched);
}

void rig_teach(struct vx_sched *sched, const struct vx_batching *batching, u32 workers,
               const struct rig_device *device)
{
    i32 instance = device->instance, worker = device->worker;
    const struct vx_batching alone = {.voxels_max = 1000000, .requests_max = 1};
    vx_sched_instance_set(sched, instance, &alone, false);
    for (i32 w = 0; w < VX_WORKERS_MAX; w++)
        if (workers & (1u << w)) vx_sched_instance_ready(sched, instance, w, w == worker);
    for (i64 k = 0; k < 12; k++) {
        struct vx_job job = rig_job(100 + 100 * (k % 4));
        struct vx_batch_plan plan;
        job.instance = instance;
        rig_submit(sched, &job, 0);
        rig_pick(sched, 0, &plan);
        ck_assert_int_eq(plan.worker, worker);
        i64 build_ns = device->build_ns * job.voxels;
        const struct vx_batch_end end = {
            .worker = worker,
            .batch = plan.batch,
            .device_ns = device->fixed_ns + device->pair_ns * job.voxels + build_ns,
            .geometry_ns = build_ns,
            .pairs = job.voxels,
        };
        ck_assert(vx_sched_finish(sched, &end, &plan));
    }
    for (i32 w = 0; w < VX_WORKERS_MAX; w++)
        if (workers & (1u << w)) vx_sched_instance_ready(sched, instance, w, true);
    vx_sched_instance_set(sched, instance, batching, false);
}

struct vx_job rig_job(i64 voxels)
{
    return (struct vx_job){.voxels = voxels, .pairs = voxels, .deadline_ns = VX_NEVER};
}

void rig_submit(struct vx_sched *sched, struct vx_job *job, i64 now_ns)
{
    struct vx_why why = {""};
    vx_status st = vx_sched_submit(sched, job, now_ns, NULL, &why);
    ck_assert_msg(!st.fault, "%s", vx_status_text(st, &why));
}

void rig_pick(struct vx_sched *sched, i64 now_ns, struct vx_batch_plan *plan)
{
    ck_assert(vx_sched_pick(sched, now_ns, plan));
}

void rig_finish(struct vx_sched *sched, const struct vx_batch_plan *plan, i64 now_ns)
{
    struct vx_batch_plan ended;
    const struct vx_batch_end end = {
        .worker = plan->worker, .batch = plan->batch, .now_ns = now_ns};
    ck_assert(vx_sched_finish(sched, &end, &ended));
    ck_assert_int_eq(ended.jobs_count, plan->jobs_count);
    for (i32 j = 0; j < ended.jobs_count; j++) {
        ck_assert_ptr_eq(ended.jobs[j], plan->jobs[j]);
        ck_assert_int_eq(ended.jobs[j]->state, VX_JOB_NEW);
    }
}

void rig_no_job(void *context, struct vx_job *job)
{
    (void)context;
    (void)job;
    ck_abort_msg("no job was expected here");
}

void rig_count_job(void *context, struct vx_job *job)
{
    ck_assert_int_eq(job->state, VX_JOB_NEW);
    ++*(int *)context;
}
