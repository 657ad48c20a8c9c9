/* thread - the role of each thread, and the assert that a function runs on the right one.
 *
 * Every mutable object belongs to one thread.  A thread enters its role once.  A function
 * that is bound to a role begins with VX_ON(role), so that a call from the wrong thread
 * panics instead of racing.
 *
 *   vx_thread_enter(VX_ROLE_LOOP);
 *   void vx_sched_submit(...) { VX_ON(LOOP); ... }
 *
 * Owner    the caller of open joins the thread.
 * Thread   any; the role is thread-local.  A thread without a role may not call a
 *          function that is bound to one.
 * Fails    open: RESOURCE_EXHAUSTED when the system gives no thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_THREAD_H
#define VX_ENGINE_BASE_THREAD_H

#include "engine/base/process/check.h"
#include "engine/base/status.h"

#include <pthread.h>

enum vx_role {
    VX_ROLE_NONE,    /* a thread that has entered no role */
    VX_ROLE_LOOP,    /* front: all scheduler state, timers, worker sockets, admin HTTP */
    VX_ROLE_ACCEPT,  /* front: accepts connections, learns when they end */
    VX_ROLE_TLS,     /* front: shakes hands with clients, reads certificates */
    VX_ROLE_RPC,     /* front: gRPC completion queues; decodes, copies, hands over */
    VX_ROLE_MAIN,    /* worker: loads models, page-locks memory */
    VX_ROLE_DEVICE,  /* worker: opens the device, runs all batches */
    VX_ROLE_COMPUTE, /* worker: helpers of the CPU device; readers of a GPU's power */
    VX_ROLE_COMPILE, /* worker: compiles kernels */
    VX_ROLE_LOG,     /* front and worker: writes log lines, waits for their reader */
    VX_ROLE_TRACE,   /* front: packs spans, posts them, waits for the collector */
};

#define VX_ON(role_) VX_ASSERT(vx_thread_role() == VX_ROLE_##role_)

void vx_thread_enter(enum vx_role role);
enum vx_role vx_thread_role(void);
const char *vx_thread_name(void); /* of the role: "loop" */

/* Starts a thread that enters `role` and calls run(context); pthread_join joins it. */
VX_MUST_USE vx_status vx_thread_open(pthread_t *thread, enum vx_role role,
                                     void (*run)(void *), void *context);

/* Joins it if it ends within `limit_ns`; else it is left to itself, and with it what it uses.  Not
 * pthread_timedjoin_np, which waits by the time of day. */
bool vx_thread_join_within(pthread_t thread, i64 limit_ns);

#endif
