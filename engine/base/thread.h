/* thread - which thread is this, and may it do what it is about to do?
 *
 * Every mutable thing belongs to one thread.  A thread says its role once; a function
 * bound to a role begins with VX_ON(role), so that a call from the wrong thread is a
 * panic and not a race.
 *
 *   vx_thread_enter(VX_ROLE_LOOP);
 *   void vx_sched_submit(...) { VX_ON(LOOP); ... }
 *
 * Owner    who opens a thread joins it.
 * Thread   any; the role is thread-local.  A thread without one may call nothing bound.
 * Fails    open: RESOURCE_EXHAUSTED when the system gives no thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_THREAD_H
#define VX_ENGINE_BASE_THREAD_H

#include "engine/base/check.h"
#include "engine/base/status.h"

#include <pthread.h>

enum vx_role {
    VX_ROLE_NONE,    /* a thread that has not said what it is */
    VX_ROLE_LOOP,    /* front: all scheduler state, timers, worker sockets, admin HTTP */
    VX_ROLE_ACCEPT,  /* front: takes connections, and hears of their end */
    VX_ROLE_RPC,     /* front: completion-queue threads; decode, copy, hand over */
    VX_ROLE_MAIN,    /* worker: messages, model files */
    VX_ROLE_DEVICE,  /* worker: the only one that runs batches */
    VX_ROLE_COMPUTE, /* worker: the CPU device's helpers */
    VX_ROLE_COMPILE, /* worker: turns kernel texts into binaries */
    VX_ROLE_LOG,     /* front and worker: writes lines, and waits for who reads them */
};

#define VX_ON(role_) VX_ASSERT(vx_thread_role() == VX_ROLE_##role_)

void vx_thread_enter(enum vx_role role);
enum vx_role vx_thread_role(void);
const char *vx_thread_name(void);

/* Starts a thread that enters `role` and runs `main(context)`.  Join with pthread_join.
 */
VX_MUST_USE vx_status vx_thread_open(pthread_t *thread, enum vx_role role,
                                     void (*run)(void *), void *context);

#endif
