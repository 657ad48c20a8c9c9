/* front_private - what the files of front share; no other file includes it.
 *
 *   front.c        start, one iteration, calls, workers
 *   front_expect.c what the settings' texts alone show to be wrong
 *   front_ready.c  when it is ready, and who hears of it
 *   front_access.c who may ask what
 *   front_mail.c   calls from rpc, one of each origin in turn
 *   front_answer.c control methods, one of each connection in turn
 *   front_stop.c   signals; the phases of stopping
 *
 * Owner    vx_front_run.
 * Thread   loop; front_ring is called from any.
 * Limits   none of its own.
 * Fails    open: with the error of the part that could not open.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_FRONT_PRIVATE_H
#define VX_SERVER_FRONT_PRIVATE_H

#include "engine/base/memory/arena.h"
#include "server/access/access_file.h"
#include "server/base/due.h"
#include "server/call/call_arrivals.h"
#include "server/call/call_turns.h"
#include "server/control/health.h"
#include "server/front/front.h"
#include "server/front/manager.h"
#include "server/http/http.h"
#include "server/infer/geometries.h"
#include "server/infer/infer.h"
#include "server/infer/view.h"
#include "server/models/models.h"
#include "server/repository/scanner.h"

#include <uv.h>

/* The phases of stopping, in order; the front never goes back to an earlier one. */
enum vx_front_phase {
    VX_FRONT_SERVING,
    VX_FRONT_GRACE,    /* health reports NOT_SERVING; requests are still accepted */
    VX_FRONT_DRAINING, /* new calls are refused; those in flight may end */
    VX_FRONT_STOPPING, /* workers end */
    VX_FRONT_CLOSING,  /* handles close; then the loop ends */
};

struct vx_front {
    const struct vx_config *config;
    uv_loop_t loop;
    uv_async_t wakeup; /* wakes the loop: a mailbox has something or a region changed */
    uv_prepare_t turn; /* calls front_on_turn before the loop waits, each iteration */
    uv_idle_t spin;    /* while active, the loop polls and does not sleep */
    i64 spin_ns;       /* for so long after an event */
    i64 event_ns;      /* when the loop was last woken or a worker's message came */
    struct vx_due due; /* fires when the scheduler has something to do */
    uv_timer_t stats;
    uv_timer_t phase_over; /* ends GRACE and DRAINING */
    uv_timer_t held;       /* ends CLOSING when a read of the pool does not return */
    uv_poll_t signals;
    int signals_fd;
    struct vx_manager manager; /* what started this process */
    struct vx_scanner scanner;
    bool scanned; /* the repository has been read at least once */
    struct vx_mailbox arrivals, gone;
    struct vx_call_arrivals coming;   /* from `arrivals`, to be handled */
    struct vx_link *left, *left_last; /* from `gone` */
    struct vx_call_turns control;     /* calls of control methods, to be answered */
    enum vx_front_phase phase;
    bool announced;
    struct vx_access *access; /* NULL: nothing is asked and nothing limited */
    struct vx_access_file tokens;
    struct vx_shared *shared;
    struct vx_registry *registry;
    struct vx_sched *sched;
    struct vx_geometries *geometries;
    struct vx_models *models;
    _Atomic i64 voxels_most; /* that one of them serves in one request */
    struct vx_regions *regions;
    struct vx_workers *workers;
    struct vx_rpc *rpc;
    struct vx_health *health;
    struct vx_metrics *metrics;
    struct vx_tracing *tracing;
    struct vx_exporter *exporter; /* NULL: there is no collector */
    i64 drained_ns;               /* when the drain time is over; 0 = it has not begun */
    u64 moved;                    /* vx_rpc_counters.moved, while draining, */
    i64 moved_ns;                 /* and when it last grew */
    struct vx_http *http;
    struct vx_infer infer;
    struct vx_arena scratch; /* for one control call */
    void *scratch_block;
    u8 *answer;
};

/* front.c */
/* What control methods and health see of the front. */
struct vx_front_view vx_front_view(const struct vx_front *front);
/* A call that rpc has decoded; one whose client has left. */
void vx_front_on_arrival(struct vx_front *front, struct vx_call *call);
void vx_front_on_gone(struct vx_front *front, struct vx_call *call);

/* front_mail.c */
/* Empties the mailboxes. */
void vx_front_mail_take(struct vx_front *front);
/* Handles what was in them, for so long at most; at least one of each kind. */
void vx_front_mail_handle(struct vx_front *front, i64 most_ns);

/* front_ready.c */
/* True when every model that should serve can run on some worker now. */
bool vx_front_is_ready(const struct vx_front *front);
/* Writes the ready file, the first time that the front is ready. */
void vx_front_announce(struct vx_front *front);
/* The service manager hears of a start that is over: every model serves, or it was tried
 * and failed.  A model that fails must not make the manager end the others.  From then on
 * the manager's sockets are listened to. */
void vx_front_tell_manager(struct vx_front *front);

/* front_answer.c: a page of the admin port; the context is the front. */
void vx_front_on_http(void *context, const struct vx_http_request *request,
                      struct vx_http_reply *reply);

/* front_access.c */
/* Opens front->access if a setting asks for it, and reads the file of tokens. */
VX_MUST_USE vx_status vx_front_open_access(struct vx_front *front, struct vx_why *why);
/* True: the page may not be seen, and the reply says so. */
bool vx_front_refuses_page(const struct vx_front *front,
                           const struct vx_http_request *request,
                           struct vx_http_reply *reply);

/* front_answer.c */
/* Keeps a failure for the page; any thread. */
void vx_front_note_failure(struct vx_front *front, const struct vx_rpc_refusal *refusal);
/* Ends a call of a control method that failed. */
void vx_front_fail(struct vx_front *front, struct vx_call **call, vx_status status,
                   const struct vx_why *why);
/* Answers calls of control methods, one of each connection in turn, for about so long;
 * VX_NEVER = all. */
void vx_front_answer(struct vx_front *front, i64 most_ns);

/* front_stop.c */
/* Starts to handle SIGTERM, SIGINT and SIGHUP. */
void vx_front_open_signals(struct vx_front *front);
/* How long the last spans may take: what is left of the drain time. */
i64 vx_front_spans_ns(const struct vx_front *front);
/* Each iteration: stops the workers when draining has ended. */
void vx_front_stop_when_drained(struct vx_front *front);
/* vx_workers_options.on_stopped: the last worker has ended. */
void vx_front_close_handles(void *context);
/* Behind the end of the loop; ends the process where a thread of the pool does not come back. */
void vx_front_loop_close(struct vx_front *front);

#endif
