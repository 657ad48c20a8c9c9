/* rpc - the thin adapter between gRPC's C core and the loop; nothing else touches gRPC.
 *
 * Completion-queue threads match the method, admit, read the body only then (ModelInfer:
 * PAYLOAD_NONE), decode, copy tensors into their slots, and hand the call to the loop.
 * Replies go out from the loop thread with grpc_call_start_batch; output tensors are lent
 * to gRPC as slices over the arena and their slots come back when gRPC drops them.
 *
 * A message of ModelStreamInfer is a call like any inference: it arrives, is answered or
 * fails, may be gone.  That it is one of a stream, and in what order the answers leave, is
 * known here alone.
 *
 *   VX_TRY(vx_rpc_open(&options, &why, &rpc));
 *   vx_rpc_start(rpc);                              port open, threads running
 *   ... arrivals mailbox: struct vx_call ...
 *   vx_rpc_reply_infer(rpc, &call, &reply, outputs);
 *   vx_rpc_stop_accepting(rpc);                     listeners closed, GOAWAY, calls go on
 *   vx_rpc_close(&rpc);                             all calls ended or cut
 *
 * Owner    the loop; calls as said in call.h.
 * Thread   open, start, replies, stop, close: loop.  `events` mailboxes are given from
 *          rpc threads.
 * Limits   calls_max calls between arrival and end: one more inference is
 *          RESOURCE_EXHAUSTED unread, small questions have a few more, so that a probe is
 *          answered while inference is full.  A call that has calls_max full and brings no
 *          message makes room for one of a connection with fewer of that kind.
 *          receive_bytes_max of messages that are not whole, on streams or not; beyond it
 *          one connection at a time is read (rpc_govern.h says what else a connection may
 *          cost); streams_max streams of inferences, VX_STREAM_REQUESTS_MAX under way on
 *          each; with calls_max in flight they wait and are not refused; message_bytes_max
 *          a message; receive_ns_max for it and send_ns_max for an answer on the wire;
 *          connections_max, of which each has 20 s for its first bytes, less when others
 *          want its place.
 * Fails    open: INVALID_ARGUMENT for an address, UNAVAILABLE when the port is taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_H
#define VX_SERVER_RPC_H

#include "engine/base/mailbox.h"
#include "server/call.h"

struct vx_rpc;

/* One row per RPC of proto/service.def. */
enum vx_method_kind {
    VX_METHOD_UNARY_BIG, /* body read after admission: ModelInfer */
    VX_METHOD_UNARY,
    VX_METHOD_SERVER_STREAM,
    VX_METHOD_BIDI,
    VX_METHOD_INFER_STREAM, /* each message a request of its own: ModelStreamInfer */
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

struct vx_rpc_options {
    const char *addresses; /* "127.0.0.1:0,unix:/run/voxeld.sock", "[::1]:8001" */
    i32 connections_max;   /* one more is closed at once */
    i32 streams_max;       /* of ModelStreamInfer; one more is RESOURCE_EXHAUSTED */
    i32 threads;           /* completion queues, one thread each */
    i32 calls_max;
    i64 message_bytes_max;
    i64 receive_bytes_max;        /* of messages that are not whole, of all connections */
    i64 receive_ns_max;           /* a message that takes longer is cut; 0 = never */
    i64 send_ns_max;              /* and so is an answer that the client does not read */
    const struct vx_slots *slots; /* thread-safe */
    u64 arena_bytes;              /* of those; 0 = nobody asks who has how much */
    struct vx_regions *regions;   /* where tensors may lie instead; NULL = nowhere */
    /* Every worker reads coordinates out of a region once and checks its own copy (a GPU):
     * they need not be copied here. */
    bool coords_in_place;
    struct vx_content_key content_key; /* of the names that geometries get */
    struct vx_mailbox *arrivals;       /* of struct vx_call.arrival */
    struct vx_mailbox *gone;           /* of struct vx_call.gone */
    /* After vx_rpc_stop_accepting, on any thread: one more call has ended, as the counters
     * say.  Short, and calls no rpc.  NULL = nobody waits for it. */
    void (*on_ended)(void *context);
    /* A connection is gone: its calls may still be ending.  Any thread; short.  NULL =
     * nobody wants to know. */
    void (*on_disconnected)(void *context, u64 connection);
    void *context;
};

/* Why a connection was closed by us; rpc_govern.h. */
enum vx_rpc_cut {
    VX_RPC_CUT_NONE,
    VX_RPC_CUT_FLOOD,      /* control frames, or calls without a message, all the time */
    VX_RPC_CUT_HEADERS,    /* a header block without end */
    VX_RPC_CUT_IDLE,       /* it had no call, and others came */
    VX_RPC_CUT_LARGE,      /* a message far beyond message_bytes_max */
    VX_RPC_CUT_LATE,       /* a message took longer than receive_ns_max */
    VX_RPC_CUT_STILL,      /* a message stood still while others waited for its room */
    VX_RPC_CUT_STREAMS,    /* more open streams than a client may have */
    VX_RPC_CUT_UNFINISHED, /* unfinished messages of more than receive_bytes_max */
    VX_RPC_CUT_UNREAD, /* its frames went on while nobody read what they brought about */
    VX_RPC_CUTS_COUNT
};

/* Counted on the rpc threads, read by the loop for metrics. */
struct vx_rpc_counters {
    u64 calls[VX_METHODS_COUNT]; /* arrived */
    u64 refused_full;            /* calls_max */
    u64 refused_bad;             /* could not be decoded */
    u64 refused_draining;
    u64 cut_receiving, cut_sending; /* receive_ns_max, send_ns_max */
    u64 unknown_methods;
    u64 bytes_in, bytes_out;
    i32 in_flight;                             /* calls between arrival and end, now */
    i32 connections;                           /* open, now */
    u64 connections_ever, connections_refused; /* accepted; closed for connections_max */
    u64 connections_cut[VX_RPC_CUTS_COUNT];
    i32 streams;   /* of ModelStreamInfer, now */
    i32 receiving; /* bodies being received, now */
};

VX_MUST_USE vx_status vx_rpc_open(const struct vx_rpc_options *options,
                                  struct vx_why *why, struct vx_rpc **rpc);
VX_MUST_USE vx_status vx_rpc_start(struct vx_rpc *rpc, struct vx_why *why);
/* The first TCP port as bound; 0 when all are Unix sockets. */
i32 vx_rpc_port(const struct vx_rpc *rpc);
void vx_rpc_counters_get(const struct vx_rpc *rpc, struct vx_rpc_counters *counters);
/* Whether a connection is open.  Once it says no, on_disconnected has come or comes: who
 * writes something down for a connection asks afterwards, and takes it back on a no.  Any
 * thread. */
bool vx_rpc_connection_lives(const struct vx_rpc *rpc, u64 connection);
/* Whether the process at the other end of a unix connection had that group beside its own
 * when it connected.  Not for one that is gone, or that has more than VX_RPC_GROUPS_MAX:
 * the groups of such a process are not looked at.  Any thread. */
#define VX_RPC_GROUPS_MAX 1024
bool vx_rpc_connection_in_group(const struct vx_rpc *rpc, u64 connection, u32 gid);

/* Answers an inference.  Takes the call and the slots: outputs[i].bytes must equal
 * reply->outputs[i].bytes; a slot of 0 bytes is no slot.  Slots are given back when gRPC
 * is done. */
void vx_rpc_reply_infer(struct vx_rpc *rpc, struct vx_call **call,
                        const struct vx_reply *reply, const struct vx_slot *outputs);
/* The call is about to take so many bytes for its answer.  False: its connection has more
 * than its part of the arena, of which little is left. */
bool vx_rpc_may_take(struct vx_call *call, u64 bytes);
/* So many inferences are about to be answered together: the loop then leaves the writing
 * to others. */
void vx_rpc_answers_coming(struct vx_rpc *rpc, i32 count);
/* Answers a unary call with bytes, which are copied. */
void vx_rpc_reply(struct vx_rpc *rpc, struct vx_call **call, const void *bytes,
                  size_t length);
/* Ends any call with a status.  Input slots of an inference are the caller's to give
 * back. */
void vx_rpc_fail(struct vx_rpc *rpc, struct vx_call **call, vx_status status,
                 const struct vx_why *why);

/* Streams: sends one message (copied); at most VX_STREAM_SENDS_MAX may be on their way,
 * more is false and the caller drops the oldest news or ends the stream. */
#define VX_STREAM_SENDS_MAX 16
VX_MUST_USE bool vx_rpc_send(struct vx_rpc *rpc, struct vx_call *call, const void *bytes,
                             size_t length);
/* Bidi: said first for every arrival.  False: the loop had ended the stream while the
 * message was on its way; the call is not to be touched again. */
VX_MUST_USE bool vx_rpc_take_message(struct vx_rpc *rpc, struct vx_call *call);
/* Bidi: asks for the next message; it comes through the arrivals mailbox. */
void vx_rpc_receive(struct vx_rpc *rpc, struct vx_call *call);
/* ModelStreamInfer: requests of one stream that are under way, those whose answer waits for
 * its turn among them.  More than a batch holds, so that one client can fill a device; the
 * next message stays in the network. */
#define VX_STREAM_REQUESTS_MAX 64
/* Ends a stream OK. */
void vx_rpc_finish(struct vx_rpc *rpc, struct vx_call **call);

/* Ends calls whose client has been too slow: it holds a turn for receiving, or the arena's
 * memory that its answer lies in.  Called every second or so. */
void vx_rpc_cut_slow(struct vx_rpc *rpc, i64 now_ns);

void vx_rpc_release_gone(struct vx_rpc *rpc, struct vx_call *call);

/* New inferences are refused UNAVAILABLE with Triton's sentence; the port stays open and
 * the small questions are answered, so that health tells the truth while the server
 * drains. */
void vx_rpc_refuse(struct vx_rpc *rpc);
/* Listeners close, clients get GOAWAY, calls in flight go on. */
void vx_rpc_stop_accepting(struct vx_rpc *rpc);
/* Ends every call that is left, those in the mailboxes too, joins the threads, frees all.
 * Slots of requests the loop had taken are the loop's to give back. */
void vx_rpc_close(struct vx_rpc **rpc);

#endif
