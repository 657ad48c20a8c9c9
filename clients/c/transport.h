/* transport - unary calls over one gRPC channel, for any method and any bytes.
 *
 * Only this file, client.c and connect.c use gRPC.  A request is a list of pieces that
 * stay where they are; the answer is a list of spans over the memory that gRPC received
 * into.  A call ends for its owner only when gRPC has also dropped every piece: the
 * pieces' memory may then be reused, even if the server refused during the upload.
 *
 *   struct voxel_call call = {.method = "/package.Service/Method", .pieces = list, ...};
 *   voxel_call_run(client, &call);
 *   if (call.error.code == VOXEL_OK) ... voxel_call_spans(&call, &spans) ...
 *   voxel_call_fini(&call);
 *
 * Owner    the caller owns the call and what its pieces point to until it has ended; the
 *          method is a static string.
 * Thread   any.  Blocking calls use a completion queue of their own from a small pool, so
 *          that the answer wakes the thread that waits for it and no other.  Asynchronous
 *          calls share one queue, served by voxel_client_poll or by the client's threads.
 * Limits   messages of at most 2^31-1 bytes, both ways.
 * Fails    in call.error.  voxel_call_start itself fails without memory, when the client
 *          is closing (CANCELLED), or when gRPC refuses the call (INTERNAL).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_TRANSPORT_H
#define VOXEL_CLIENTS_C_TRANSPORT_H

#include "clients/c/geometry_header.h"
#include "clients/c/voxel.h"
#include "clients/c/wire.h"

#include <stdatomic.h>

#include <grpc/grpc.h>

/* Spans kept inside the call: answers up to about 1 MB need no list of their own. */
#define VOXEL_CALL_SPANS 32

/* W3C: 55 characters and a NUL; later versions may be longer. */
#define VOXEL_TRACEPARENT_BYTES 64

struct voxel_call {
    /* Set by the owner. */
    const char *method;
    const struct voxel_span *pieces;
    size_t pieces_count;
    int64_t deadline_us;                 /* from the start; 0 = the client's default */
    char geometry[VOXEL_GEOMETRY_BYTES]; /* the header x-voxel-geometry; "" = none */
    char traceparent[VOXEL_TRACEPARENT_BYTES]; /* that header; "" = none */
    void (*on_end)(struct voxel_call *call);   /* of an asynchronous call */

    /* Set when it has ended. */
    struct voxel_error error;
    int64_t begin_ns; /* monotonic */
    int64_t end_ns;

    /* The transport's own. */
    grpc_call *rpc;
    bool taken_back; /* voxel_client_close has cancelled it */
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    grpc_byte_buffer *reply;
    atomic_size_t borrowed; /* pieces gRPC still holds */
    struct voxel_call *next, *previous;
    struct voxel_span inside[VOXEL_CALL_SPANS];
    struct voxel_span *outside;
};

/* Sends the request and waits until the call has ended; the result is in the call. */
void voxel_call_run(struct voxel_client *client, struct voxel_call *call);
/* Sends the request.  call->on_end runs exactly once, unless this function fails. */
enum voxel_code voxel_call_start(struct voxel_client *client, struct voxel_call *call,
                                 struct voxel_error *error);
/* The answer's bytes, valid until voxel_call_fini.  False when memory is full. */
bool voxel_call_spans(struct voxel_call *call, struct voxel_spans *spans);
/* Releases the answer.  Allowed for a call that never started. */
void voxel_call_fini(struct voxel_call *call);

int64_t voxel_clock_ns(void); /* monotonic */

#endif
