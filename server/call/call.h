/* call - one RPC between the completion-queue threads and the loop.
 *
 * Life of a call, and who owns it:
 *   rpc     from arrival until it is decoded, or refused
 *   loop    from the arrivals mailbox until vx_rpc_reply*, vx_rpc_fail or vx_rpc_finish
 *   rpc     until gRPC has given every tag back; then it returns to its pool
 * When the peer goes away while the loop owns the call, the rpc side puts `gone` into the
 * gone mailbox once; the loop acts on it if it still owns the call and then calls
 * vx_rpc_release_gone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CALL_H
#define VX_SERVER_CALL_H

#include "engine/base/memory/mailbox.h"
#include "proto/codec.h"
#include "proto/request.h"
#include "server/access/access.h"
#include "server/base/peer.h"
#include "server/call/admit.h"
#include "server/regions/regions.h"
#include "server/sched/sched.h"
#include "server/trace/record.h"

#define VX_CALL_MAGIC 0x76784341u /* "vxCA" */

#define VX_TRACEPARENT_BYTES 64 /* W3C: 55 characters and a NUL */

/* Where a call waits: call_turns.h. */
struct vx_call_turn {
    struct vx_call *connection; /* of a connection's first call: that of the next turn */
    struct vx_call *next;       /* of the same connection */
    struct vx_call *last;       /* of a connection's first call: its last one */
    bool waits;
};

/* Where it waits to be handled at all: call_arrivals.h. */
struct vx_call_coming {
    struct vx_call *other; /* of an origin's first call: that of the next turn */
    struct vx_call *next;  /* of the same origin */
    struct vx_call *last;  /* of an origin's first call: its last one */
    bool waits;
    bool left; /* its client left meanwhile */
};

struct vx_call {
    u32 magic;
    i32 method;             /* row of proto/service.def */
    struct vx_link arrival; /* arrivals mailbox: a decoded request, a stream's message */
    struct vx_link gone;    /* in the gone mailbox, at most once */
    struct vx_peer peer;    /* of the connection that it came on */
    i64 arrived_ns;         /* when the headers had arrived */
    i64 decoded_ns;         /* when the body was in its slots */
    i64 deadline_ns;        /* from gRPC; VX_NEVER when none */
    char traceparent[VX_TRACEPARENT_BYTES]; /* "" when none */
    struct vx_access_ticket ticket;         /* who asks; zeros unless access is on */
    struct vx_coords_ref names_mask; /* ModelInfer: of the token's names of geometries */
    u64 names_origin;                /* ModelInfer: in whose share its geometry is kept */
    char tracestate[VX_TRACESTATE_BYTES]; /* "" when none, or when it is too long */

    struct vx_request request; /* ModelInfer */
    u64 body_bytes;            /* ModelInfer: size of the whole message */
    u64 copied_bytes;          /* ModelInfer: of coordinates out of a region */
    /* ModelInfer: the ranges of regions that the request names, and a reference to each
     * region; NONE = the tensor is in the message.  The rpc thread takes them; they are
     * given back together with the slots. */
    struct vx_place inputs_held[VX_INPUTS_MAX];           /* parallel to request.inputs */
    struct vx_place outputs_held[VX_REQUEST_OUTPUTS_MAX]; /* to request.outputs */
    vx_status regions_status; /* a fault: none was taken; the loop refuses the call */
    struct vx_why regions_why;

    /* Other methods: the message, contiguous, until the reply or the next message. */
    struct vx_span message;
    bool message_end; /* streams: the client has half-closed; message is empty */

    /* From here on used by the loop only. */
    bool answered;         /* the loop has given the call back to rpc */
    bool is_gone;          /* the peer left while the call waited or ran */
    bool geometry_unknown; /* its coords_ref was not known */
    bool region_small;     /* INTERNAL, as in Triton, and yet no fault of ours */
    struct vx_call_coming coming;
    struct vx_call_turn turn; /* of a control method; of a stream, only rpc uses it */
    struct vx_job job;
    struct vx_admitted admitted; /* ModelInfer: what to run, as vx_admit says */
    struct vx_place outputs[VX_REQUEST_OUTPUTS_MAX]; /* by the model's output number */
    bool dense_paid; /* its dense outputs are paid for, though it may run again */
    /* A fault: outputs whose size became known while it ran found no place. */
    vx_status places_status;
    struct vx_why places_why;
    struct vx_call *watch_next; /* health: list of Watch and reflection streams */
    i32 watch_said; /* health: the status last sent; reflection: 1 once it has begun */
};

static inline struct vx_call *vx_call_of_job(struct vx_job *job)
{
    return VX_CONTAINER(job, struct vx_call, job);
}

#endif
