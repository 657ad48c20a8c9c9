/* collector - posts bodies to an OpenTelemetry collector over one HTTP/1.1 connection.
 *
 * The thread that calls this waits: no other thread may depend on it.  Every wait has the
 * deadline of its POST, and ends early when the process stops.
 *
 *   vx_collector_open(&collector, &endpoint, stop_fd, &stop_ns);
 *   enum vx_posted posted = vx_collector_post(&collector, body, bytes, deadline_ns);
 *   ...collector.answer, collector.why...
 *
 * A connection that the collector kept open may be closed by the time that it is used
 * again: then the body goes once more, over a new one.
 *
 * Owner    the caller; `endpoint` is borrowed.
 * Thread   one at a time.
 * Limits   deadline_ns, vx_answer's.
 * Fails    post: FAILED without an answer, and why.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_COLLECTOR_H
#define VX_SERVER_COLLECTOR_H

#include "engine/base/status.h"
#include "server/trace/answer.h"
#include "server/trace/trace_text.h"

#include <stdatomic.h>

struct vx_collector {
    const struct vx_endpoint *endpoint;
    int fd;               /* the connection; -1 = none */
    int stop_fd;          /* readable when the process stops */
    _Atomic i64 *stop_ns; /* then no wait lasts longer than this */
    struct vx_answer answer;
    struct vx_why why;
};

/* A connection is made by the first post. */
void vx_collector_open(struct vx_collector *collector, const struct vx_endpoint *endpoint,
                       int stop_fd, _Atomic i64 *stop_ns);
void vx_collector_close(struct vx_collector *collector);

enum vx_posted {
    VX_POSTED_TAKEN,   /* 2xx; the answer may say that some spans were not */
    VX_POSTED_REFUSED, /* any other status: the same body would be refused again */
    VX_POSTED_LATER,   /* 429, 502, 503, 504: the same body may be taken later */
    VX_POSTED_FAILED,  /* no answer; worth another try */
};
enum vx_posted vx_collector_post(struct vx_collector *collector, const u8 *body,
                                 size_t bytes, i64 deadline_ns);

#endif
