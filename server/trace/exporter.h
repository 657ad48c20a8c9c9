/* exporter - sends the spans of requests to an OpenTelemetry collector, never in their way.
 *
 * The loop copies what it knows of a request that has ended into a ring, and goes on.  A
 * thread of its own makes OTLP of it and posts it.  A collector that is dead, slow or
 * hostile costs spans, which are counted, and nothing else: when the ring is full, the
 * loop drops what it would have put there.
 *
 *   VX_TRY(vx_exporter_open(&options, why, &exporter));
 *   struct vx_record *record = vx_exporter_begin(exporter, spans);
 *   if (record) ...fill it in..., vx_exporter_end(exporter);
 *   vx_exporter_close(&exporter, VX_NS_PER_S);
 *
 * A batch goes when VX_EXPORTER_SPANS wait, or after delay_ns.  One that the collector
 * cannot take now is tried again, with pauses that double or as Retry-After says, until it
 * is VX_EXPORTER_KEEP_NS old.
 *
 * Owner    the front.
 * Thread   begin and end: loop.  counts: any.  open and close: the loop's, which does not
 *          serve then.
 * Limits   VX_RECORD_RING_SLOTS requests wait; one POST at a time.
 * Fails    open: INVALID_ARGUMENT for a setting, RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_EXPORTER_H
#define VX_SERVER_EXPORTER_H

#include "engine/base/process/clock.h"
#include "server/trace/record.h"

/* OpenTelemetry's number for a batch.  When more waits, more goes in one POST. */
#define VX_EXPORTER_SPANS 512
/* How long a batch is worth trying: meanwhile the ring takes what comes. */
#define VX_EXPORTER_KEEP_NS (60 * VX_NS_PER_S)

struct vx_exporter;

struct vx_exporter_options {
    const char *endpoint; /* --otlp-endpoint */
    const char *resource; /* --otlp-resource */
    i64 delay_ns;         /* longest time that a span waits for its batch */
    i64 timeout_ns;       /* of one POST */
    i64 pause_ms; /* first pause before another try; 0 = as OTLP's clients do, 1 s */
};
/* Whether open would refuse the texts. */
VX_MUST_USE vx_status vx_exporter_expect(const struct vx_exporter_options *options,
                                         struct vx_why *why);
VX_MUST_USE vx_status vx_exporter_open(const struct vx_exporter_options *options,
                                       struct vx_why *why, struct vx_exporter **exporter);
/* Sends what waits, for up to limit_ns; what is left then is counted as failed. */
void vx_exporter_close(struct vx_exporter **exporter, i64 limit_ns);

/* A zeroed record; NULL: there is no room, and so many spans are counted as dropped. */
struct vx_record *vx_exporter_begin(struct vx_exporter *exporter, i32 spans);
void vx_exporter_end(struct vx_exporter *exporter);

/* Spans since the start, by what became of them. */
struct vx_exporter_counts {
    u64 sent;     /* the collector took them */
    u64 rejected; /* the collector refused them */
    u64 failed;   /* it did not answer, or could not take them, for too long */
    u64 dropped;  /* too many waited */
};
void vx_exporter_counts_get(const struct vx_exporter *exporter,
                            struct vx_exporter_counts *counts);

#endif
