/* record - one request that has ended, as the exporter gets it: ids, times, facts.
 *
 * The loop fills in a record in the ring, and the exporter's thread makes spans of it.  All
 * times were measured for the request anyway, by the clock that front and workers share.
 *
 *   struct vx_record *record = vx_exporter_begin(exporter, spans);
 *   if (record) ...fill it in..., vx_exporter_end(exporter);
 *
 * Owner    a slot of the ring; no pointers to anything that changes or goes away.
 * Thread   the loop until vx_exporter_end, then the exporter's.
 * Limits   VX_RECORD_SPANS_MAX spans.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RECORD_H
#define VX_SERVER_RECORD_H

#include "engine/base/status.h"
#include "proto/limits.h"

/* As texts of W3C Trace Context, with the NUL. */
#define VX_TRACE_ID_BYTES 33
#define VX_SPAN_ID_BYTES  17
/* W3C asks for at least 512 characters to be passed on. */
#define VX_TRACESTATE_BYTES 513
/* Longest name of a device, with the NUL: "cuda:15". */
#define VX_RECORD_DEVICE_BYTES 32

/* The stages of a request: each is a child of the request's own span. */
enum vx_stage {
    VX_STAGE_RECEIVE,  /* the body arrives and is decoded */
    VX_STAGE_QUEUE,    /* it waits for its device */
    VX_STAGE_INPUT,    /* feats are copied and converted */
    VX_STAGE_GEOMETRY, /* voxels are sorted, neighbour maps built */
    VX_STAGE_COMPUTE,  /* layers */
    VX_STAGE_ANSWER,   /* outputs are converted and come back to the front */
    VX_STAGES_COUNT
};
#define VX_RECORD_SPANS_MAX (1 + VX_STAGES_COUNT)

struct vx_record {
    char trace_id[VX_TRACE_ID_BYTES];
    char span_id[VX_SPAN_ID_BYTES];
    char parent_id[VX_SPAN_ID_BYTES];      /* the caller's span; "" = none */
    char trace_state[VX_TRACESTATE_BYTES]; /* the caller's; "" = none */
    const char *path; /* of the RPC, static: "/package.Service/Method" */
    enum vx_code code;
    char why[VX_WHY_BYTES]; /* the sentence of a failure; "" = none */
    /* Stage s is from times_ns[s] to times_ns[s + 1]; the request from the first to the
     * last.  A request that never ran has the stages before `stages` alone; the last of
     * them then ends at times_ns[stages], which is the request's end. */
    i64 times_ns[VX_STAGES_COUNT + 1];
    i32 stages;

    char model[VX_WIRE_NAME_BYTES];
    char id[VX_REQUEST_ID_BYTES]; /* the client's name of the request; "" = none */
    i64 version;                  /* 0 = no such model */
    i64 voxels;
    i64 bytes_in, bytes_out;
    /* Only if it ran. */
    bool ran;
    bool geometry_hit;
    char device[VX_RECORD_DEVICE_BYTES];
    i32 worker;
    i64 pairs;
    i64 batch_requests, batch_voxels;
    f64 batch_fill; /* voxels of all sets, as a share of what the model allows; 0 = no limit */
};

/* How many spans a record becomes: one for itself, one for each stage. */
static inline i32 vx_record_spans(const struct vx_record *record)
{
    return 1 + record->stages;
}

#endif
