/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/admin.h"

#include "server/admin/page.h"

static i32 admin_view_workers(const struct vx_workers *workers,
                              struct vx_worker_view *views)
{
    i32 count = vx_workers_count(workers);
    for (i32 w = 0; w < count; w++) {
        const struct vx_worker_info *info = vx_workers_info(workers, w);
        views[w] = (struct vx_worker_view){
            .index = w,
            .device = info->device,
            .state = vx_worker_state_name(info->state),
            .up = info->state == VX_WORKER_UP,
            .restarts = info->restarts,
            .losses = info->losses,
            .hangs = info->hangs,
            .problem = info->problem.text,
            .pid = info->pid,
            .stats = info->stats,
        };
    }
    return count;
}

void vx_admin_answer(const struct vx_admin *admin, const struct vx_http_request *request,
                     struct vx_http_reply *reply)
{
    struct vx_worker_view workers[VX_WORKERS_MAX];
    struct vx_rpc_counters counters = {0};
    vx_rpc_counters_get(admin->rpc, &counters);
    struct vx_exporter_counts spans;
    if (admin->exporter) vx_exporter_counts_get(admin->exporter, &spans);
    const struct vx_metrics_sources sources = {
        .metrics = admin->metrics,
        .registry = admin->registry,
        .rpc = &counters,
        .sched = admin->sched,
        .workers = workers,
        .workers_count = admin_view_workers(admin->workers, workers),
        .queued = vx_sched_queued(admin->sched),
        .queued_voxels = vx_sched_queued_voxels(admin->sched),
        .running = vx_sched_running(admin->sched),
        .arena_bytes = vx_shared_bytes(admin->shared),
        .arena_bytes_used = vx_shared_used(admin->shared),
        .regions = admin->regions,
        .access = admin->access,
        .spans = admin->exporter ? &spans : NULL,
        .problem = admin->problem,
        .ready = admin->ready,
    };
    vx_page_answer(&sources, request, reply);
}
