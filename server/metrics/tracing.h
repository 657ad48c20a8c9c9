/* tracing - decides which requests are traced, and under which ids.
 *
 * A request is traced for one of two reasons.  A client's TraceSetting: every
 * trace_rate-th request of all models or of one, until trace_count is used up.  Or the
 * request's traceparent (W3C Trace Context) has its `sampled` flag set: its caller
 * records the trace and wants our part of it, whatever the settings are.  A trace is one
 * TRACE line of the log, with the times of the request's steps (infer_count.c).
 *
 * With a collector (server/trace) a request may also be exported as spans.  Then a caller
 * with a traceparent has decided already: its flag counts.  A request without one is
 * exported if the TraceSetting takes it, or by --otlp-ratio, which is a property of its
 * trace id, as OpenTelemetry has it.
 *
 *   VX_TRY(vx_tracing_open(registry, &tracing));
 *   struct vx_trace trace = vx_tracing_begin(tracing, model, traceparent);
 *   if (trace.wanted) VX_LOG(TRACE, ..., VX_LOG_TEXT("trace_id", trace.trace_id), ...);
 *
 * A setting of a model takes precedence over the server's.  A setting without a value is
 * removed: then the server's applies to the model, and the default to the server.
 *
 * Owner    the front.
 * Thread   loop.
 * Limits   VX_INSTANCES_MAX models with settings of their own.  Those of a model that is
 *          gone are kept in case it comes back, until another model needs the row.
 * Fails    set: RESOURCE_EXHAUSTED when the table is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TRACING_H
#define VX_SERVER_TRACING_H

#include "engine/base/limits.h"
#include "engine/base/status.h"
#include "server/trace/record.h"

struct vx_registry;
struct vx_tracing;

enum vx_trace_setting {
    VX_TRACE_LEVEL,         /* 1 = TIMESTAMPS, 0 = OFF */
    VX_TRACE_RATE,          /* every so many-th request */
    VX_TRACE_COUNT,         /* traces that are left; -1 = without end */
    VX_TRACE_LOG_FREQUENCY, /* stored but has no effect: each trace is logged at once */
    VX_TRACE_SETTINGS_COUNT
};
/* Of the server or of a model.  If a model's is not set, the server's applies; if the
 * server's is not, the default. */
struct vx_trace_settings {
    bool said[VX_TRACE_SETTINGS_COUNT];
    i64 values[VX_TRACE_SETTINGS_COUNT];
};

VX_MUST_USE vx_status vx_tracing_open(struct vx_registry *registry,
                                      struct vx_tracing **tracing);
void vx_tracing_close(struct vx_tracing **tracing);
/* From now on there is a collector; `ratio` of the requests without a traceparent are
 * exported. */
void vx_tracing_export(struct vx_tracing *tracing, f64 ratio);

/* `model` "" = the server.  *own: what is set for it; *all: every value that applies. */
void vx_tracing_get(struct vx_tracing *tracing, const char *model,
                    struct vx_trace_settings *own, struct vx_trace_settings *all);
VX_MUST_USE vx_status vx_tracing_set(struct vx_tracing *tracing, const char *model,
                                     const struct vx_trace_settings *own);

/* The ids of a request, in W3C's form. */
struct vx_trace {
    bool wanted;                      /* log a TRACE line */
    bool exported;                    /* send its spans */
    char trace_id[VX_TRACE_ID_BYTES]; /* the caller's, else ours if one of these, or "" */
    char parent_id[VX_SPAN_ID_BYTES]; /* the caller's span; "" when it sent none */
    char span_id[VX_SPAN_ID_BYTES];   /* ours, when there is a trace_id */
};
/* Called once for each request of this model, when it ends.  `traceparent` is "" when
 * none came; one that is malformed is ignored. */
struct vx_trace vx_tracing_begin(struct vx_tracing *tracing, const char *model,
                                 const char *traceparent);

/* True when `text` is a traceparent: *trace has its ids and, in `wanted`, its flag. */
bool vx_tracing_parse(const char *text, struct vx_trace *trace);

#endif
