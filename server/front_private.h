/* front_private - what the files of front share; nobody else includes it.
 *
 *   front.c        start, one turn, calls, workers
 *   front_stop.c   signals; from serving to the end, step by step
 *
 * Owner    vx_front_run.
 * Thread   loop; front_ring is called from any.
 * Limits   none of its own.
 * Fails    open: with what a part could not get.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_FRONT_PRIVATE_H
#define VX_SERVER_FRONT_PRIVATE_H

#include "engine/base/arena.h"
#include "server/due.h"
#include "server/front.h"
#include "server/geometries.h"
#include "server/health.h"
#include "server/http.h"
#include "server/infer.h"
#include "server/models.h"
#include "server/scanner.h"

#include <uv.h>

/* Stopping, step by step; each step begins once and never goes back. */
enum vx_front_phase {
    VX_FRONT_SERVING,
    VX_FRONT_GRACE,    /* health says NOT_SERVING; requests are still taken */
    VX_FRONT_DRAINING, /* nothing new; what is in flight ends */
    VX_FRONT_STOPPING, /* workers end */
    VX_FRONT_CLOSING,  /* handles close; then the loop is empty */
};

struct vx_front {
    const struct vx_config *config;
    uv_loop_t loop;
    uv_async_t bell;   /* something is in a mailbox */
    uv_prepare_t turn; /* before each wait: one step */
    uv_idle_t spin;    /* active: the loop asks again and does not sleep */
    i64 spin_ns;       /* for so long after an event */
    i64 event_ns;      /* the last mail, the last word of a worker */
    struct vx_due due; /* the scheduler's next moment */
    uv_timer_t stats;
    uv_timer_t phase_over; /* of GRACE and DRAINING */
    uv_signal_t signals[3];
    struct vx_scanner scanner;
    bool scanned; /* the repository has been looked at once */
    struct vx_mailbox arrivals, gone;
    enum vx_front_phase phase;
    bool announced;
    struct vx_shared *shared;
    struct vx_registry *registry;
    struct vx_sched *sched;
    struct vx_geometries *geometries;
    struct vx_models *models;
    struct vx_regions *regions;
    struct vx_workers *workers;
    struct vx_rpc *rpc;
    struct vx_health *health;
    struct vx_metrics *metrics;
    struct vx_tracing *tracing;
    struct vx_http *http;
    struct vx_infer infer;
    struct vx_arena scratch; /* of one small question */
    void *scratch_block;
    u8 *answer;
};

/* front_stop.c */
/* Signals begin to be heard. */
void vx_front_open_signals(struct vx_front *front);
/* Each turn: the end of draining is noticed. */
void vx_front_stop_when_drained(struct vx_front *front);
/* vx_workers_options.on_stopped: the last worker is gone. */
void vx_front_close_handles(void *context);

#endif
