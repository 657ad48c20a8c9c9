/* tracing - which requests have the times of their steps written down, and under which ids.
 *
 * Two may ask for it.  A client's TraceSetting: every trace_rate-th request of all models or
 * of one, until trace_count is used up.  And the traceparent of a request (W3C Trace
 * Context) whose `sampled` flag is set: its caller records the trace, and wants our part of
 * it, whatever the settings are.  A trace is one TRACE line of the log (infer_count.c).
 *
 *   VX_TRY(vx_tracing_open(registry, &tracing));
 *   struct vx_trace trace = vx_tracing_begin(tracing, model, traceparent);
 *   if (trace.wanted) VX_LOG(TRACE, ..., VX_LOG_TEXT("trace_id", trace.trace_id), ...);
 *
 * Settings are a model's where it has its own, else the server's; setting a NULL takes a
 * model back to the server's, and the server back to the default.
 *
 * Owner    the front.
 * Thread   loop.
 * Limits   VX_INSTANCES_MAX models with settings of their own; those of a model that is gone are
 *          kept, for when it comes back, until a row is needed.
 * Fails    set: RESOURCE_EXHAUSTED one model more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TRACING_H
#define VX_SERVER_TRACING_H

#include "engine/base/limits.h"
#include "engine/base/status.h"

struct vx_registry;
struct vx_tracing;

enum vx_trace_setting {
    VX_TRACE_LEVEL,         /* 1 = TIMESTAMPS, 0 = OFF */
    VX_TRACE_RATE,          /* every so many-th request */
    VX_TRACE_COUNT,         /* traces that are left; -1 = without end */
    VX_TRACE_LOG_FREQUENCY, /* kept for who asks: each trace is a line, at once */
    VX_TRACE_SETTINGS_COUNT
};
/* Of the server or of a model: what is not said is taken from above. */
struct vx_trace_settings {
    bool said[VX_TRACE_SETTINGS_COUNT];
    i64 values[VX_TRACE_SETTINGS_COUNT];
};

VX_MUST_USE vx_status vx_tracing_open(struct vx_registry *registry,
                                      struct vx_tracing **tracing);
void vx_tracing_close(struct vx_tracing **tracing);

/* `model` "" is the server's.  *own: what was set for it; *all: every value that counts. */
void vx_tracing_get(struct vx_tracing *tracing, const char *model,
                    struct vx_trace_settings *own, struct vx_trace_settings *all);
VX_MUST_USE vx_status vx_tracing_set(struct vx_tracing *tracing, const char *model,
                                     const struct vx_trace_settings *own);

/* The ids of a request, as W3C writes them. */
#define VX_TRACE_ID_BYTES 33
#define VX_SPAN_ID_BYTES  17
struct vx_trace {
    bool wanted;                      /* a TRACE line */
    char trace_id[VX_TRACE_ID_BYTES]; /* the caller's, else ours when `wanted`; "" */
    char parent_id[VX_SPAN_ID_BYTES]; /* the caller's span; "" when it said none */
    char span_id[VX_SPAN_ID_BYTES];   /* ours, when there is a trace_id */
};
/* One request of this model ends.  `traceparent` is "" when none came; one that is not as
 * W3C says is as if none had. */
struct vx_trace vx_tracing_begin(struct vx_tracing *tracing, const char *model,
                                 const char *traceparent);

/* True when `text` is a traceparent; then *trace has its two ids, and `wanted` its flag. */
bool vx_tracing_parse(const char *text, struct vx_trace *trace);

#endif
