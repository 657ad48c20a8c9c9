/* infer - one inference from its arrival on the loop to its answer.
 *
 * arrival -> admit (does it fit the model?) -> who has its geometry? -> output slots ->
 * scheduler -> RUN to a worker -> DONE -> reply, output slots lent to gRPC.  A tensor lies
 * in a slot of ours or in a region of its client's.  Every way a request can end goes
 * through one function, which gives its slots and regions back, counts it and answers it.
 *
 *   vx_infer_on_call(infer, call);
 *   vx_infer_dispatch(infer);                      once per turn of the loop
 *   vx_infer_on_done(infer, worker, &message);
 *   vx_infer_on_gone(infer, call);
 *
 * Owner    a call is infer's from on_call until it is answered.
 * Thread   loop.
 * Limits   the scheduler's queue, the shared arena.
 * Fails    never; each call ends with its own status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_INFER_H
#define VX_SERVER_INFER_H

#include "server/geometries.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/registry.h"
#include "server/rpc.h"
#include "server/sched.h"
#include "server/shared.h"
#include "server/tracing.h"
#include "server/workers.h"

/* A batch that is with a worker. */
struct vx_infer_sent {
    u64 batch; /* 0 = this place is free */
    i64 sent_ns;
};

struct vx_infer {
    const struct vx_config *config;
    struct vx_registry *registry;
    const struct vx_models *models; /* which workers have what, or will */
    struct vx_regions *regions;     /* where tensors may lie; NULL: nowhere */
    struct vx_sched *sched;
    struct vx_geometries *geometries;
    struct vx_shared *shared;
    struct vx_rpc *rpc;
    struct vx_workers *workers;
    struct vx_metrics *metrics;
    struct vx_tracing *tracing;
    struct vx_infer_sent sent[VX_WORKERS_MAX][VX_WORKER_DEPTH];
    bool stopping; /* workers end: what still arrives is refused */
};

void vx_infer_on_call(struct vx_infer *infer, struct vx_call *call);
void vx_infer_on_gone(struct vx_infer *infer, struct vx_call *call);
void vx_infer_on_done(struct vx_infer *infer, i32 worker,
                      const struct vx_message_done *done);
/* A worker is gone: its batches wait again, or are answered INTERNAL when they died
 * twice; what only it could run is answered FAILED_PRECONDITION. */
void vx_infer_on_worker_down(struct vx_infer *infer, i32 worker);
/* A job whose model cannot run any more. */
void vx_infer_on_lost(struct vx_infer *infer, struct vx_job *job);
/* Answers what waited too long and sends what can run. */
void vx_infer_dispatch(struct vx_infer *infer);
/* Answers everything that still waits: the drain time is over. */
void vx_infer_drop_all(struct vx_infer *infer);

#endif
