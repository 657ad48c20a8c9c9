/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/base/due.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void due_on_event(uv_poll_t *poll, int status, int events)
{
    struct vx_due *due = VX_CONTAINER(poll, struct vx_due, poll);
    (void)status; /* a timer has no errors */
    (void)events;
    u64 times;
    /* It may have been set again since it fired: then there is nothing to read. */
    bool was_set = read(due->fd, &times, sizeof times) < 0;
    VX_ASSERT(!was_set || errno == EAGAIN);
    if (!was_set) due->at_ns = VX_NEVER;
}

vx_status vx_due_init(struct vx_due *due, uv_loop_t *loop)
{
    due->at_ns = VX_NEVER;
    due->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    VX_ENSURE(due->fd >= 0, RESOURCE_EXHAUSTED, "no timer for the scheduler");
    VX_ASSERT(!uv_poll_init(loop, &due->poll, due->fd));
    VX_ASSERT(!uv_poll_start(&due->poll, UV_READABLE, due_on_event));
    return VX_OK;
}

void vx_due_set(struct vx_due *due, i64 at_ns)
{
    if (at_ns == due->at_ns) return;
    due->at_ns = at_ns;
    struct itimerspec when = {0}; /* all zeros: never */
    if (at_ns != VX_NEVER) {
        i64 some_ns = at_ns > 0 ? at_ns : 1; /* 0 would mean never */
        when.it_value.tv_sec = some_ns / VX_NS_PER_S;
        when.it_value.tv_nsec = some_ns % VX_NS_PER_S;
    }
    VX_ASSERT(!timerfd_settime(due->fd, TFD_TIMER_ABSTIME, &when, NULL));
}

static void due_on_closed(uv_handle_t *handle)
{
    struct vx_due *due = VX_CONTAINER((uv_poll_t *)handle, struct vx_due, poll);
    close(due->fd);
}

void vx_due_fini(struct vx_due *due)
{
    uv_close((uv_handle_t *)&due->poll, due_on_closed);
}
