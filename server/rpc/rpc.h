/* rpc - the adapter between gRPC's C core and the loop; no other code touches gRPC.
 *
 * The completion-queue threads match the method, admit the call, decode its message, copy
 * the tensors into their slots and hand the call to the loop.  The message of ModelInfer
 * is received only after admission (PAYLOAD_NONE).  A reply is started with
 * grpc_call_start_batch, on the loop or, if it is large, on a sender thread (rpc_send.c).
 * Output tensors are lent to gRPC as slices over the arena; a slot comes back when gRPC
 * drops its slice.
 *
 * A message of ModelStreamInfer is handled like a call: it arrives, it is answered or it
 * fails, and its client may leave.  Only rpc knows that it is part of a stream, and in
 * what order the answers leave.
 *
 *   VX_TRY(vx_rpc_open(&options, &why, &rpc));
 *   VX_TRY(vx_rpc_start(rpc, &why));                 port open, threads running
 *   ... arrivals mailbox: struct vx_call ...
 *   vx_rpc_reply_infer(rpc, &call, &reply, outputs);
 *   vx_rpc_stop_accepting(rpc);                      listeners closed, GOAWAY sent
 *   vx_rpc_close(&rpc);                              ends every call
 *
 * Owner    the loop; call.h says who owns a call.
 * Thread   open, start, replies, stop, close: loop.  The rpc threads give to the
 *          mailboxes `arrivals` and `gone`.
 * Limits   calls_max          calls between arrival and end.  One more inference is
 *                             refused RESOURCE_EXHAUSTED, and its message is not read.
 *                             Small calls (unary, but not ModelInfer) have a few places
 *                             more, so that a probe is answered while inference is full.
 *                             While calls_max are in flight, a call that brings no
 *                             message loses its place to a call of a connection with
 *                             fewer such calls.
 *          receive_bytes_max  of unfinished messages, on streams or not.  Beyond it one
 *                             connection at a time is read; rpc_govern.h says what else a
 *                             connection may cost.
 *          streams_max        streams of inferences, with VX_STREAM_REQUESTS_MAX requests
 *                             in progress on each.  While calls_max are in flight,
 *                             streams wait and are not refused.
 *          message_bytes_max  a message.
 *          receive_ns_max     for a message to arrive.
 *          send_ns_max        for an answer to be read by the client.
 *          connections_max    connections.  Each has 20 s to send its first bytes, less
 *                             if others want its place.
 * Fails    open: INVALID_ARGUMENT for an address, UNAVAILABLE when the port is taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_H
#define VX_SERVER_RPC_H

#include "engine/base/memory/mailbox.h"
#include "server/call/call.h"
#include "server/govern/cuts.h"
#include "server/tls/tls.h"

struct vx_rpc;

/* One row per RPC of proto/service.def. */
enum vx_method_kind {
    VX_METHOD_UNARY_BIG, /* body read after admission: ModelInfer */
    VX_METHOD_UNARY,
    VX_METHOD_SERVER_STREAM,
    VX_METHOD_BIDI,
    VX_METHOD_INFER_STREAM, /* each message is a request of its own: ModelStreamInfer */
};
struct vx_method {
    const char *path; /* "/inference.GRPCInferenceService/ModelInfer" */
    enum vx_method_kind kind;
};
enum vx_method_id {
#define VX_METHOD(path_, identifier_, kind_) VX_METHOD_ID_##identifier_,
#include "proto/service.def"
#undef VX_METHOD
    VX_METHODS_COUNT
};
const struct vx_method *vx_method_get(i32 method);

/* A call that was refused before the loop had it, or that was cut. */
struct vx_rpc_refusal {
    enum vx_code code;
    const char *method; /* as in service.def; "" when it is not known */
    const char *model;  /* "" when it was not read */
    const char *text;   /* what the client is told */
};

struct vx_rpc_options {
    const char *addresses;   /* "127.0.0.1:0,unix:/run/voxeld.sock", "[::1]:8001" */
    i32 connections_max;     /* one more is closed at once */
    struct vx_tls_files tls; /* cert NULL or "" = plain; Unix sockets always are */
    i32 streams_max;         /* of ModelStreamInfer; one more is RESOURCE_EXHAUSTED */
    i32 threads;             /* completion queues, one thread each */
    i32 calls_max;
    i64 message_bytes_max;
    size_t reader_bytes;   /* from so many on a message is decoded apart; 0 = 32 MiB */
    i64 receive_bytes_max; /* for unfinished messages, of all connections */
    i64 receive_ns_max;    /* a call whose message takes longer is cancelled; 0 = never */
    i64 send_ns_max;       /* the same for an answer that the client does not read */
    const struct vx_slots *slots; /* thread-safe */
    u64 arena_bytes;              /* size of the arena; 0 = no limit for one connection */
    struct vx_regions *regions;   /* shared memory of clients; NULL = not served */
    struct vx_access *access;     /* who may call what; NULL = everybody everything */
    /* True: every worker copies coordinates out of a region once and checks its own copy
     * (a GPU): they need not be copied here. */
    bool coords_in_place;
    const _Atomic i64 *voxels_most;          /* as in call_tensors.h; may be NULL */
    struct vx_coords_ref_key coords_ref_key; /* of the hash that makes coords_refs */
    struct vx_coords_ref_key owners_key; /* of that which keeps those of tokens apart */
    struct vx_mailbox *arrivals;         /* holds calls, linked by `arrival` */
    struct vx_mailbox *gone;             /* holds calls, linked by `gone` */
    /* Called after vx_rpc_stop_accepting, on any thread, when another call has ended and
     * the counters show it.  It must be short and call no rpc function.  NULL = not
     * wanted. */
    void (*on_ended)(void *context);
    /* Called on any thread; it must be short and call no rpc function.  NULL = not
     * wanted. */
    void (*on_refused)(void *context, const struct vx_rpc_refusal *refusal);
    /* A connection has ended; its calls may still be ending.  Called on any thread; it
     * must be short.  NULL = not wanted. */
    void (*on_disconnected)(void *context, u64 connection);
    void *context;
};

/* Counted on the rpc threads, read by the loop for metrics. */
struct vx_rpc_counters {
    u64 calls[VX_METHODS_COUNT]; /* arrived */
    u64 refused_full;            /* calls_max, streams_max */
    u64 refused_bad;             /* could not be decoded */
    u64 refused_draining;
    u64 cut_receiving, cut_sending; /* receive_ns_max, send_ns_max */
    u64 unknown_methods;
    u64 bytes_in, bytes_out;
    i32 in_flight;                             /* calls between arrival and end, now */
    i32 connections;                           /* open, now */
    u64 connections_ever, connections_refused; /* accepted; closed for connections_max */
    u64 connections_cut[VX_RPC_CUTS_COUNT];
    bool secure; /* there is TLS: */
    struct vx_tls_counters tls;
    i32 streams;   /* of ModelStreamInfer, now */
    i32 crew;      /* threads that take calls, now */
    i32 receiving; /* bodies being received, now */
    u64 moved;     /* grows when something of a message comes, or anything goes out */
};

/* Whether the text is a list of addresses; open looks their hosts up. */
VX_MUST_USE vx_status vx_rpc_addresses_check(const char *addresses, struct vx_why *why);
VX_MUST_USE vx_status vx_rpc_open(const struct vx_rpc_options *options,
                                  struct vx_why *why, struct vx_rpc **rpc);
VX_MUST_USE vx_status vx_rpc_start(struct vx_rpc *rpc, struct vx_why *why);
/* The port of the first TCP address; 0 when all are Unix sockets. */
i32 vx_rpc_port(const struct vx_rpc *rpc);
void vx_rpc_counters_get(const struct vx_rpc *rpc, struct vx_rpc_counters *counters);
/* Whether a connection is open.  If it is not, on_disconnected has been called or will
 * be.  So a caller that records something for a connection asks afterwards, and removes
 * the record if the answer is false.  Any thread. */
bool vx_rpc_connection_lives(const struct vx_rpc *rpc, u64 connection);
/* Whether the process that opened a Unix connection had that supplementary group when it
 * connected.  False if the connection has ended, or if the process has more than
 * VX_RPC_GROUPS_MAX groups: they are not examined.  Any thread. */
#define VX_RPC_GROUPS_MAX 1024
bool vx_rpc_connection_in_group(const struct vx_rpc *rpc, u64 connection, u32 gid);

/* Reads the certificate files again, soon.  Any thread. */
void vx_rpc_reload(struct vx_rpc *rpc);
/* Who calls, by the certificate that the client has shown when it connected.  False: it
 * has shown none (no --tls-client-ca, a Unix socket), or its connection has ended.  Any
 * thread that owns the call. */
bool vx_rpc_call_name(struct vx_call *call, struct vx_tls_name *name);

/* Answers an inference.  Takes over the call and the slots: outputs[i].bytes must equal
 * reply->outputs[i].bytes; a slot of 0 bytes is no slot.  The slots are given back when
 * gRPC has finished with them. */
void vx_rpc_reply_infer(struct vx_rpc *rpc, struct vx_call **call,
                        const struct vx_reply *reply, const struct vx_place *outputs);
/* Counts so many bytes of slots of the arena for the call's tensors.  False: little of it
 * is left and the connection already has its part; nothing is counted. */
bool vx_rpc_may_take(struct vx_call *call, u64 bytes);
/* So many of them were given back; the rest counts until the call has ended. */
void vx_rpc_gave(struct vx_call *call, u64 bytes);
/* So many inferences are about to be answered together: if there are several, the loop
 * leaves larger answers to the sender threads. */
void vx_rpc_answers_coming(struct vx_rpc *rpc, i32 count);
/* Answers a unary call with a copy of the bytes. */
void vx_rpc_reply(struct vx_rpc *rpc, struct vx_call **call, const void *bytes,
                  size_t length);
/* Ends any call with a status.  The caller gives the input slots of an inference back. */
void vx_rpc_fail(struct vx_rpc *rpc, struct vx_call **call, vx_status status,
                 const struct vx_why *why);

/* Streams: sends one message (copied).  At most VX_STREAM_SENDS_MAX may wait to be sent;
 * with one more it returns false, and the caller tries again later or ends the stream. */
#define VX_STREAM_SENDS_MAX 16
VX_MUST_USE bool vx_rpc_send(struct vx_rpc *rpc, struct vx_call *call, const void *bytes,
                             size_t length);
/* Bidi: called first for every arrival.  False: the loop had ended the stream while the
 * message was on its way; the call must not be touched again. */
VX_MUST_USE bool vx_rpc_take_message(struct vx_rpc *rpc, struct vx_call *call);
/* Server stream: nobody reads its message any more, though the call may last. */
void vx_rpc_message_end(struct vx_rpc *rpc, struct vx_call *call);
/* Bidi: asks for the next message; it comes through the arrivals mailbox. */
void vx_rpc_receive(struct vx_rpc *rpc, struct vx_call *call);
/* ModelStreamInfer: requests of one stream in progress, including those whose answer
 * waits for an earlier one.  More than a batch holds, so that one client can fill a
 * device; the next message stays in the network. */
#define VX_STREAM_REQUESTS_MAX 64
/* Ends a stream OK. */
void vx_rpc_finish(struct vx_rpc *rpc, struct vx_call **call);

/* Cancels calls whose client is too slow: in sending its message, or in reading its
 * answer, which occupies arena memory.  Called about once a second. */
void vx_rpc_cut_slow(struct vx_rpc *rpc, i64 now_ns);

/* Drops the reference of a call that came through the gone mailbox. */
void vx_rpc_release_gone(struct vx_rpc *rpc, struct vx_call *call);

/* Whether connections are accepted from sockets that the service manager keeps open
 * (base/handed.h): not before there is something to serve, and no longer once another
 * process will.  Clients wait there meanwhile, and are not refused. */
void vx_rpc_hear_handed(struct vx_rpc *rpc, bool wanted);
/* Refuses new inferences UNAVAILABLE with Triton's sentence.  The port stays open and
 * small calls are answered, so that health tells the truth while the server drains. */
void vx_rpc_refuse(struct vx_rpc *rpc);
/* Closes the listeners and sends clients GOAWAY; calls in flight continue. */
void vx_rpc_stop_accepting(struct vx_rpc *rpc);
/* Ends every call that is left, including those in the mailboxes, joins the threads,
 * frees all.  The loop gives back the slots of requests that it had taken. */
void vx_rpc_close(struct vx_rpc **rpc);

#endif
