/* infer - one inference from its arrival on the loop to its answer.
 *
 * arrival -> admit (does it fit the model?) -> which workers hold its geometry? -> output
 * slots -> scheduler -> RUN to a worker -> DONE -> reply, output slots lent to gRPC.  A
 * tensor lies in a slot of the arena or in a region of its client.  Outputs on other sets
 * than the request's get their slots while it runs: RUN -> SIZES, PLACES -> DONE.  Every
 * way in which a request can end goes through one function, which gives its slots and
 * regions back, counts it and answers it.
 *
 *   vx_infer_on_call(infer, call);
 *   vx_infer_dispatch(infer);                      once per iteration
 *   vx_infer_on_sizes(infer, worker, &message);
 *   vx_infer_on_done(infer, worker, &message);
 *   vx_infer_on_gone(infer, call);
 *
 * Owner    infer owns a call from on_call until it is answered.
 * Thread   loop.
 * Limits   the scheduler's queue, the shared arena.
 * Fails    never; each call ends with its own status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_INFER_H
#define VX_SERVER_INFER_H

#include "server/infer/geometries.h"
#include "server/ipc/shared.h"
#include "server/metrics/metrics.h"
#include "server/metrics/tracing.h"
#include "server/models/models.h"
#include "server/models/registry.h"
#include "server/rpc/rpc.h"
#include "server/sched/sched.h"
#include "server/trace/exporter.h"
#include "server/workers/workers.h"

/* A batch that is with a worker. */
struct vx_infer_sent {
    u64 batch; /* 0 = this entry is free */
    i64 sent_ns;
};

struct vx_infer {
    const struct vx_config *config;
    struct vx_registry *registry;
    const struct vx_models *models; /* which workers have which model, or will have it */
    struct vx_regions *regions;     /* shared memory of clients; NULL: not served */
    struct vx_access *access;       /* who may ask what; NULL: everybody everything */
    struct vx_sched *sched;
    struct vx_geometries *geometries;
    struct vx_shared *shared;
    struct vx_rpc *rpc;
    struct vx_workers *workers;
    struct vx_metrics *metrics;
    struct vx_tracing *tracing;
    struct vx_exporter *exporter; /* NULL: spans go nowhere, and no request is exported */
    struct vx_infer_sent sent[VX_WORKERS_MAX][VX_WORKER_DEPTH];
    bool stopping; /* workers are ending: new requests are refused */
    /* Being filled, one at a time: too large for a stack of small functions. */
    struct vx_message_run run;
    struct vx_message_places places;
    struct vx_batch_plan plan;
    struct vx_reply reply;
};

void vx_infer_on_call(struct vx_infer *infer, struct vx_call *call);
void vx_infer_on_gone(struct vx_infer *infer, struct vx_call *call);
/* A worker knows how many rows some outputs have: they get places, or are refused. */
void vx_infer_on_sizes(struct vx_infer *infer, i32 worker,
                       const struct vx_message_sizes *sizes);
void vx_infer_on_done(struct vx_infer *infer, i32 worker,
                      const struct vx_message_done *done);
/* A worker is gone.  Its jobs wait again; those that have seen too many deaths are
 * answered INTERNAL, and those whose geometry only it held FAILED_PRECONDITION. */
void vx_infer_on_worker_down(struct vx_infer *infer, i32 worker);
/* Answers a job whose model cannot run any more. */
void vx_infer_on_lost(struct vx_infer *infer, struct vx_job *job);
/* Answers jobs that have waited too long, and sends those that can run. */
void vx_infer_dispatch(struct vx_infer *infer);
/* Answers everything that still waits: the drain time is over. */
void vx_infer_drop_all(struct vx_infer *infer);

#endif
