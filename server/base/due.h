/* due - wakes the loop at a time, to the microsecond.
 *
 * libuv's own timers count milliseconds: too coarse for a batch that waits 200 us for
 * further requests.
 *
 *   vx_due_init(&due, &loop);
 *   vx_due_set(&due, vx_sched_next_ns(sched));     each iteration; VX_NEVER: not at all
 *   vx_due_fini(&due);                             before the loop is closed
 *
 * It has no callback: the iteration that it starts reads the clock and does what is due.
 *
 * Owner    the caller; alive until the loop has closed its handles.
 * Thread   loop.
 * Limits   one file descriptor.
 * Fails    init: RESOURCE_EXHAUSTED without a descriptor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_DUE_H
#define VX_SERVER_DUE_H

#include "engine/base/status.h"

#include <uv.h>

struct vx_due {
    uv_poll_t poll;
    int fd;
    i64 at_ns; /* what it is set to */
};

VX_MUST_USE vx_status vx_due_init(struct vx_due *due, uv_loop_t *loop);
/* By vx_clock_ns; a time that has passed wakes the loop at once. */
void vx_due_set(struct vx_due *due, i64 at_ns);
void vx_due_fini(struct vx_due *due);

#endif
