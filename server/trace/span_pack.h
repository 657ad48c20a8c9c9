/* span_pack - makes OTLP of records: the body of one POST to a collector.
 *
 * A record becomes one span of the request, kind SERVER, with OpenTelemetry's names for an
 * RPC and ours for what an RPC does not have, and a child for each stage that was reached.
 *
 *   VX_TRY(vx_span_pack_open(&resource, &pack));
 *   for (...) vx_span_pack_add(pack, record);
 *   bytes = vx_span_pack_end(pack, clock_offset_ns, &length);
 *
 * Owner    the caller; the resource and the records are borrowed until end.
 * Thread   one at a time; no clock, no sockets; allocates in open alone.
 * Limits   VX_SPAN_PACK_RECORDS records.
 * Fails    open: RESOURCE_EXHAUSTED without memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SPAN_PACK_H
#define VX_SERVER_SPAN_PACK_H

#include "server/trace/record.h"
#include "server/trace/trace_text.h"

/* In one POST; 3,584 spans, 0.7 MB as they usually are.  Collectors take 20 MB. */
#define VX_SPAN_PACK_RECORDS 512
/* A record with the longest texts. */
#define VX_SPAN_PACK_RECORD_BYTES 8192

struct vx_span_pack;

VX_MUST_USE vx_status vx_span_pack_open(const struct vx_resource *resource,
                                        struct vx_span_pack **pack);
void vx_span_pack_close(struct vx_span_pack **pack);

void vx_span_pack_add(struct vx_span_pack *pack, const struct vx_record *record);
/* `offset_ns`: from the records' clock to nanoseconds since 1970.  The bytes are valid
 * until the next end, and the pack is empty again. */
const u8 *vx_span_pack_end(struct vx_span_pack *pack, i64 offset_ns, size_t *length);

/* What the collector says in the body of its answer: how many spans it did not take, and
 * why ("" = it does not say).  A body that is not readable says 0. */
i64 vx_span_answer_rejected(const u8 *body, size_t length, struct vx_why *why);

#endif
