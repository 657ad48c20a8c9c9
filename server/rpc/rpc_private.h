/* rpc_private - what the files of rpc share; no other file includes it.
 *
 * A record is one RPC: the vx_call that the loop sees, and what gRPC needs for it.  All
 * records come from one pool that is made at open: for calls_max calls, for streams, for
 * the calls that are armed (waiting for a client), and a few for calls that are refused.
 * When the pool is empty, gRPC queues new calls until a record returns.
 *
 * Life of a record, by `owner`:
 *   POOL     -> RPC       vx_rpc_call_arm         given to gRPC to fill
 *   RPC      -> LOOP      decoded                 given to the arrivals mailbox
 *   RPC      -> ANSWERED  refused or failed       on the queue's thread
 *   LOOP     -> ANSWERED  vx_rpc_reply* and kin   on the loop
 *   ANSWERED -> POOL      last reference dropped  every tag is back, `gone` is released
 *
 * ModelStreamInfer: the call's record is the parent, and RPC stays its owner.  Each
 * message takes a child record.  A child has no gRPC call of its own but lives as above:
 * it is decoded, given to the loop, answered.  The parent queues its children in the
 * order of their messages; whichever thread sees that the first child is answered sends
 * that answer.  A child leaves the queue when that is sent, or when the stream is over.
 *
 * Owner    references: one for the owner RPC or LOOP, one for each batch in progress, one
 *          for `gone` while it is in its mailbox, one for each stream message that is in
 *          the arrivals mailbox, one for each child.
 * Thread   all tags of a call come back on the thread of its queue.  Fields marked (lock)
 *          are guarded by rpc->lock.  It is held briefly and never while calling gRPC,
 *          because gRPC gives lent slots back from inside its functions.
 * Fails    open: RESOURCE_EXHAUSTED.  A call that fails ends with a status on the wire.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_PRIVATE_H
#define VX_SERVER_RPC_PRIVATE_H

#include "engine/base/process/check.h"
#include "server/call/call_tensors.h"
#include "server/govern/rpc_govern.h"
#include "server/rpc/rpc.h"
#include "server/rpc/rpc_aide.h"
#include "server/rpc/rpc_crew.h"
#include "server/rpc/rpc_queue.h"
#include "server/rpc/rpc_read.h"
#include "server/rpc/rpc_tag.h"
#include "server/rpc/rpc_turn.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>

#include <pthread.h>
#include <stdatomic.h>

/* Calls armed per method and queue: as many as may arrive in one read of a busy
 * connection without waiting for the next iteration of the queue's thread. */
#define VX_RPC_ARMED_BIG   8
#define VX_RPC_ARMED_SMALL 2
/* Records for calls that are being refused, until their status is sent. */
#define VX_RPC_REFUSALS_MAX 64
/* Places beyond calls_max (rpc_share.c): a probe is answered while inference is full. */
#define VX_RPC_SMALL_RESERVED 64
/* Stands for the generic call, which takes every method that is not registered. */
#define VX_RPC_METHOD_UNKNOWN VX_METHODS_COUNT

/* What the call is waiting for its client to do; CUT: to read, though it was ended. */
enum vx_rpc_wire { VX_RPC_IDLE, VX_RPC_RECEIVING, VX_RPC_SENDING, VX_RPC_CUT };

enum vx_rpc_owner { VX_RPC_POOL, VX_RPC_RPC, VX_RPC_LOOP, VX_RPC_ANSWERED };

/* Messages of the loop for a stream.  They are sent one at a time: gRPC takes one
 * SEND_MESSAGE per call. */
struct vx_rpc_outbox {
    grpc_byte_buffer *ring[VX_STREAM_SENDS_MAX];
    i32 first, count;
    bool busy;   /* a send batch is in progress; rpc_reply.c */
    bool broken; /* a send has failed: no message is sent any more */
    bool ending; /* the status goes out when the ring is empty */
};

/* State of a parent.  All fields are (lock), except `strict`, which is set before the
 * stream starts. */
struct vx_rpc_stream {
    /* Requests in the order they came, linked by `next`. */
    struct vx_rpc_record *first, **last;
    i32 count;
    bool open;     /* counted in rpc->streams */
    bool started;  /* it has begun to read */
    bool heard;    /* its first message has come; queue's thread only */
    bool unheard;  /* counted in VX_RPC_SHARE_UNHEARD */
    bool reading;  /* a receive is in progress, or its message waits for its turn */
    bool read_end; /* no more messages: half-closed, or the server closes */
    bool sending;  /* the first request's answer is being sent */
    bool over;     /* no answer is sent any more */
    bool ended;    /* the status is being sent */
    bool strict; /* triton_grpc_error: the first error ends the stream with its status */
    bool served; /* a request of it was answered, with no error */
    i64 active_ns; /* when one last was, or the stream began: a refused one is no activity */
    struct vx_rpc_record *spare; /* for the next request, whose message is asked for */
};

struct vx_rpc_record {
    struct vx_call call;
    struct vx_rpc *rpc;
    i32 queue;
    struct vx_rpc_record *next; /* (lock) in the pool or in a queue */
    atomic_int references;
    atomic_int owner;
    atomic_int wire;
    _Atomic i64 wire_since_ns;
    i64 read_since_ns, read_ns; /* loop only: rpc_slow.c */
    u64 read;

    struct vx_rpc_tag arrive, close, receive, send;
    struct vx_link outgoing; /* in a sender's or a reader's mailbox */
    /* Of a message that a reader decoded; the sentence is in `end_text`. */
    struct vx_rpc_tag read_back;
    vx_status read_status;
    grpc_byte_buffer *answer; /* for a sender, or a child's until it is sent */
    grpc_call *grpc;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details; /* unknown methods only */
    grpc_byte_buffer *payload;
    grpc_slice flat;   /* a message that came in several slices, joined */
    int cancelled_out; /* written by gRPC; valid once `close` is back */

    i32 descriptor; /* names the connection for gRPC: vx_rpc_place */
    bool cancelled; /* queue's thread only */
    bool waiting;   /* (lock) for a spare record */
    bool awaits;    /* (lock) its message is not here, or it may stay idle: await_share */
    u64 tensors_bytes;  /* of the arena, counted for its connection */
    u64 answer_bytes;   /* of the heap, counted for its connection */
    bool counted;       /* (lock) counted in in_flight */
    bool beyond;        /* (lock) beyond calls_max, when it was counted */
    bool refused;       /* (lock) counted in VX_RPC_SHARE_REFUSED */
    bool ended;         /* counted in VX_RPC_SHARE_ENDED */
    bool arrived;       /* counted in VX_RPC_SHARE_ARRIVED */
    bool metadata_sent; /* used only by the thread that may send */
    bool message_holds; /* the stream message in the arrivals mailbox holds a reference */
    struct vx_rpc_outbox outbox; /* (lock) */
    struct vx_rpc_stream stream;
    struct vx_rpc_record *parent; /* of a child; NULL: a gRPC call of its own */
    bool answered;                /* (lock) a child: `answer` is set, or only end_code */
    grpc_status_code end_code;
    char end_text[VX_WHY_BYTES];
};

struct vx_rpc_queue {
    struct vx_rpc *rpc;
    grpc_completion_queue *cq;
    pthread_t thread;
    bool running;
    i32 owed[VX_METHODS_COUNT + 1]; /* (lock) calls to arm when records return */
    i32 records;                    /* (lock) armed calls of it, and calls that arrived */
    atomic_int armed[VX_METHODS_COUNT + 1];
    /* Used by the queue's thread only. */
    bool joined; /* the crew, and has armed its calls */
    struct vx_rpc_watch watch;
    int schedstat; /* the system's account of the thread; -1: none */
    struct vx_rpc_turn turn;
    struct vx_rpc_desk desk;
};

/* A slot that gRPC reads from; given back when gRPC drops the slice. */
struct vx_rpc_lend {
    struct vx_rpc *rpc;
    struct vx_place slot;
    struct vx_rpc_lend *next;
};

struct vx_rpc {
    struct vx_rpc_options options;
    grpc_server *server;
    struct vx_rpc_accept *accept;
    void *registered[VX_METHODS_COUNT];
    struct vx_rpc_queue *queues;
    struct vx_rpc_aide *senders; /* as many as queues, as */
    struct vx_rpc_reader *readers;
    atomic_int answers_coming; /* set by vx_rpc_answers_coming */
    size_t spans_max;
    struct vx_rpc_tag shutdown;
    bool started, stopped; /* loop only */
    u64 lacked;            /* loop only: of the slots, at the last look */
    i64 lacked_ns;         /* loop only: when that had grown; 0 = never */
    atomic_bool refusing;
    atomic_bool closing; /* nothing goes into the mailboxes any more */
    atomic_int handing;  /* threads between vx_rpc_hand_begin and vx_rpc_hand_end */

    pthread_mutex_t lock;
    pthread_cond_t idle; /* a record or a lend came back, or the server has shut down */
    struct vx_rpc_record *records;
    i32 records_count;
    struct vx_rpc_record *free; /* (lock) */
    i32 free_count;             /* (lock) */
    i32 in_flight;              /* (lock) */
    i32 in_flight_spare; /* (lock) requests of streams beyond calls_max, of these */
    i32 owed_count;      /* (lock) sum over the queues */
    i32 receiving;       /* (lock) messages gRPC was asked for */
    i32 streams;         /* (lock) */
    struct vx_rpc_record *lean_first, **lean_last; /* (lock) streams that need a spare */
    struct vx_rpc_lend *lends, *lends_free;        /* (lock) */
    i32 lends_count, lends_out;                    /* (lock) */
    bool arming_over;          /* (lock) no more calls are asked for */
    atomic_int crew;           /* (lock, to write) the first queues, which take calls */
    pthread_cond_t crew_joins; /* for the threads of the others */
    struct vx_rpc_watch watch; /* (lock) of all threads */
    bool shut_down;            /* (lock) the shutdown tag is back */
    _Atomic u64 calls[VX_METHODS_COUNT];
    _Atomic u64 refused_full, refused_bad, refused_draining, unknown_methods;
    _Atomic u64 cut_receiving, cut_sending, bytes_in, bytes_out;
};

static inline struct vx_rpc_place vx_rpc_place_of(const struct vx_rpc_record *record)
{
    return (struct vx_rpc_place){record->descriptor, record->call.peer.connection};
}

static inline struct vx_rpc_record *vx_rpc_record_of(struct vx_call *call)
{
    struct vx_rpc_record *record = VX_CONTAINER(call, struct vx_rpc_record, call);
    VX_ASSERT(call->magic == VX_CALL_MAGIC);
    return record;
}

/* rpc_listen.c: the server with its settings, and the sockets it listens on. */

/* Listening sockets.  A host name with several addresses needs one for each. */
#define VX_RPC_LISTENERS_MAX 16
#define VX_RPC_ADDRESS_BYTES 300 /* a DNS name of 253, brackets, a port; with NUL */

struct vx_rpc_listener {
    char address[VX_RPC_ADDRESS_BYTES]; /* as configured */
    int fd;                             /* -1 = closed */
    bool is_unix;
    bool is_handed; /* the service manager's too: never shut down */
    i32 port;       /* TCP, as bound */
    char path[108]; /* to unlink at the end, if it is still this file: */
    u64 device, inode;
};
struct vx_rpc_listeners {
    i32 count;
    bool hears_handed; /* accepts from the service manager's sockets, too */
    struct vx_rpc_listener list[VX_RPC_LISTENERS_MAX];
};

static inline struct vx_call_memory
vx_rpc_call_memory(const struct vx_rpc_options *options)
{
    return (struct vx_call_memory){options->slots, options->regions,
                                   options->coords_in_place, options->voxels_most};
}

static inline struct vx_rpc_governor_options
vx_rpc_governor_settings(const struct vx_rpc_options *options, i32 connections_max,
                         void (*wakeup)(void *context), void *context)
{
    return (struct vx_rpc_governor_options){
        .connections_max = connections_max,
        .message_bytes_max = options->message_bytes_max,
        .receive_bytes_max = options->receive_bytes_max,
        .receive_ns_max = options->receive_ns_max,
        .arena_bytes = options->arena_bytes,
        .wakeup = wakeup,
        .context = context,
    };
}

grpc_server *vx_rpc_server_make(const struct vx_rpc_options *options);
/* Binds all addresses.  After a failure the caller closes those that are open. */
VX_MUST_USE vx_status vx_rpc_listen(const char *addresses,
                                    struct vx_rpc_listeners *listeners,
                                    struct vx_why *why);
/* Nobody can connect any more; the descriptors stay until close.  May be called twice. */
void vx_rpc_listeners_stop(struct vx_rpc_listeners *listeners);
void vx_rpc_listeners_close(struct vx_rpc_listeners *listeners);
/* The next connection and its peer; -1 and errno when there is none. */
int vx_rpc_listener_accept(const struct vx_rpc_listener *listener, struct vx_peer *peer);
/* A listener in the accept thread's epoll set: + its index; below: a connection's index. */
#define VX_RPC_LISTENER_ID (UINT64_C(1) << 32)
/* epoll_ctl with the operation for each open listener; false if one failed. */
bool vx_rpc_listeners_watch(const struct vx_rpc_listeners *listeners, int epoll,
                            int operation, u32 events);
/* Of the first that is TCP; 0 when none is. */
i32 vx_rpc_listeners_port(const struct vx_rpc_listeners *listeners);
void vx_rpc_listeners_log(const struct vx_rpc_listeners *listeners);

/* rpc_peer.c */
/* A peer that the kernel does not report counts as remote. */
struct vx_peer vx_rpc_peer_of(int fd, bool is_unix);
/* N of "fd:N", as gRPC names a peer; -1 for anything else. */
i32 vx_rpc_descriptor_of(const char *peer);
/* Whether the process that opened the Unix connection has that supplementary group. */
bool vx_rpc_peer_in_group(int fd, u32 gid);
/* "192.0.2.7:50312" or "unix uid 1000", for the log. */
#define VX_RPC_PEER_BYTES 64
void vx_rpc_peer_name(int fd, const struct vx_peer *peer, char name[VX_RPC_PEER_BYTES]);

/* rpc_window.c */
struct vx_rpc_window {
    i32 first, count, next;
    struct vx_peer *peers; /* by number - first; the window's user guards it and: */
    i32 *rows;             /* the connection's index in its user's table */
};
/* *connections: connections_max, or fewer if there are not enough descriptors. */
VX_MUST_USE vx_status vx_rpc_window_open(struct vx_rpc_window *window,
                                         i32 connections_max, i32 *connections);
void vx_rpc_window_close(struct vx_rpc_window *window);
/* Duplicates fd to a number that no connection has; -1 when there is none. */
int vx_rpc_window_take(struct vx_rpc_window *window, int fd);

/* rpc_memory.c */
struct vx_rpc_memory {
    u64 seen, given;
    i32 quiet; /* checks in a row */
    i64 look_ns;
};
/* Gives free memory back; returns when to call it again.  Thread: accept. */
i64 vx_rpc_memory_turn(struct vx_rpc_memory *memory, struct vx_rpc_governor *governor,
                       i64 now_ns);
/* Gives back most of what a large message took.  Thread: the arena's. */
void vx_rpc_memory_give_scratch(struct vx_arena *scratch);

/* rpc_cut.c */
struct vx_rpc_cuts {
    _Atomic u64 counts[VX_RPC_CUTS_COUNT];
    i32 lines_left, unsaid;
    i64 since_ns;
};
/* A connection has ended: counts and logs why, if we closed it.  Thread: accept. */
void vx_rpc_cut_note(struct vx_rpc_cuts *cuts, const char *peer, u64 connection,
                     enum vx_rpc_cut why);

/* rpc_accept.c */
struct vx_rpc_accept;
/* Listens; connections are accepted after start. */
VX_MUST_USE vx_status vx_rpc_accept_open(const struct vx_rpc_options *options,
                                         struct vx_why *why,
                                         struct vx_rpc_accept **accept);
VX_MUST_USE vx_status vx_rpc_accept_start(struct vx_rpc_accept *accept,
                                          grpc_server *server);
/* vx_rpc_hear_handed; at first they are not listened to. */
void vx_rpc_accept_hear_handed(struct vx_rpc_accept *accept, bool wanted);
/* After this no connection is given to gRPC.  Called before its server shuts down. */
void vx_rpc_accept_stop(struct vx_rpc_accept *accept);
/* Ends the connections that are left, each with on_disconnected.  Called while the server
 * still exists. */
void vx_rpc_accept_close(struct vx_rpc_accept **accept);
i32 vx_rpc_accept_port(const struct vx_rpc_accept *accept);
void vx_rpc_accept_count(struct vx_rpc_accept *accept, struct vx_rpc_counters *counters);
/* The peer of the call, with its connection, and the descriptor by which gRPC names that
 * connection.  The peer is all zeros when the connection has ended.  Any thread. */
struct vx_peer vx_rpc_accept_peer(struct vx_rpc_accept *accept, grpc_call *call,
                                  i32 *descriptor);
bool vx_rpc_accept_has(struct vx_rpc_accept *accept, u64 connection);
/* Who the connection's client is, by its certificate; false: it has shown none. */
bool vx_rpc_accept_name(struct vx_rpc_accept *accept, struct vx_rpc_place place,
                        struct vx_tls_name *name);
void vx_rpc_accept_reload(struct vx_rpc_accept *accept);
bool vx_rpc_accept_in_group(struct vx_rpc_accept *accept, u64 connection, u32 gid);

struct vx_rpc_governor *vx_rpc_accept_governor(struct vx_rpc_accept *accept);

/* rpc_pool.c */
VX_MUST_USE vx_status vx_rpc_pool_open(struct vx_rpc *rpc);
void vx_rpc_pool_close(struct vx_rpc *rpc);
/* NULL: arming is over, or no record is free; then the call is armed when one returns. */
struct vx_rpc_record *vx_rpc_record_take(struct vx_rpc *rpc, i32 queue, i32 method);
/* Gives back the slots and regions of a decoded request that will not run. */
void vx_rpc_inputs_give(struct vx_rpc_record *record);
void vx_rpc_record_ref(struct vx_rpc_record *record);
void vx_rpc_record_unref(struct vx_rpc_record *record);
/* Takes a reference to a record that may be returning to the pool; false when it is. */
bool vx_rpc_record_hold(struct vx_rpc_record *record);
/* Under the lock: takes a record for the stream's next request.  False: there are too many;
 * the stream waits until vx_rpc_stream_wake. */
bool vx_rpc_spare_take(struct vx_rpc_record *parent);
/* True: it was waiting for a record and no longer does. */
bool vx_rpc_spare_forgo(struct vx_rpc_record *parent);
/* Appends that record to the stream's queue and counts it in in_flight. */
struct vx_rpc_record *vx_rpc_child_make(struct vx_rpc_record *parent);
/* Makes a slice over the slot and takes over the slot.  False when no lend is free: the
 * slot stays with the caller. */
bool vx_rpc_lend_slot(struct vx_rpc *rpc, struct vx_place slot, grpc_slice *slice);

/* rpc_share.c */
/* Counts the call as in flight; false when there are too many.  It may end a call that
 * waits for its client, mostly one of the connection that has most of them. */
bool vx_rpc_record_admit(struct vx_rpc_record *record);
/* Under the lock: counts the call as in flight, or no longer. */
void vx_rpc_call_count(struct vx_rpc_record *record, bool counts);
/* Under the lock: counts a call that nothing else counts and that has not ended. */
void vx_rpc_refused_count(struct vx_rpc_record *record, bool counts);
/* Under the lock: counts the call as waiting for its client, or no longer (if it was). */
void vx_rpc_await_begin(struct vx_rpc_record *record);
void vx_rpc_await_end(struct vx_rpc_record *record);
/* From now on the call awaits its message; until it is here, or will never come. */
void vx_rpc_receive_begin(struct vx_rpc_record *record);
void vx_rpc_receive_end(struct vx_rpc_record *record);
/* Under no lock.  Ends the call, which makes room for another, and drops a reference. */
void vx_rpc_room_make(struct vx_rpc_record *going, const char *text);
/* A message comes with its call.  A call that has awaited its message for so long loses
 * its place even to a connection that has as many calls. */
#define VX_RPC_AWAIT_NS (VX_NS_PER_S / 4)

/* rpc_stream_room.c */
/* Counts the call as a stream; false when there are too many.  It may end an idle one. */
bool vx_rpc_stream_admit(struct vx_rpc_record *record);
/* Under the lock: the call is no longer counted as a stream, if it was. */
void vx_rpc_stream_uncount(struct vx_rpc_record *record);
/* Its first message is here, or the end. */
void vx_rpc_stream_heard(struct vx_rpc_record *record);
/* Under the lock: a request of it was answered well. */
void vx_rpc_stream_served(struct vx_rpc_record *record);

/* rpc_call.c: the owner is RPC until the loop is. */
extern const char vx_rpc_shutting_down[]; /* Triton's sentence: clients match on it */

VX_MUST_USE vx_status vx_rpc_message_missing(void); /* rpc_infer.c */

/* rpc_metadata.c: takes from the headers what the call needs of them. */
void vx_rpc_metadata_read(struct vx_rpc_record *record);
/* Nothing more is needed of the headers: their list, 96 bytes of each, need not last as long as the
 * call.  Their texts are gRPC's. */
void vx_rpc_metadata_drop(struct vx_rpc_record *record);
/* Its headers are too large for a call that lasts as long as its client likes. */
bool vx_rpc_metadata_refuses(struct vx_rpc_record *record);
/* How many calls of `method` are armed on each queue. */
i32 vx_rpc_armed(i32 method);
/* Asks gRPC for one more call of `method`, now or when a record returns.  Any thread. */
void vx_rpc_call_arm(struct vx_rpc *rpc, i32 queue, i32 method);
/* The same with a record that was taken for it. */
void vx_rpc_record_arm(struct vx_rpc_record *record, i32 queue, i32 method);
/* The record may be gone when this returns, unless one of its batches is in progress. */
void vx_rpc_give_to_loop(struct vx_rpc_record *record);
/* Counts a request that could not be decoded, and ends it. */
void vx_rpc_refuse_bad(struct vx_rpc_record *record, vx_status status,
                       const struct vx_why *why);
/* Starts a batch that will come back as `tag`, which holds a reference until then. */
void vx_rpc_batch_start(struct vx_rpc_record *record, const grpc_op *ops,
                        size_t ops_count, struct vx_rpc_tag *tag);
/* Streams: asks for one more message. */
void vx_rpc_message_receive(struct vx_rpc_record *record);
void vx_rpc_message_drop(struct vx_rpc_record *record);
/* The same for a small call, whose message came with it: nobody else can be writing it.  Its answer
 * may wait for a client that does not read, for as long as that likes. */
void vx_rpc_question_drop(struct vx_rpc_record *record);
/* True: the caller gives to a mailbox and then calls vx_rpc_hand_end.  False: rpc is
 * closing. */
bool vx_rpc_hand_begin(struct vx_rpc *rpc);
void vx_rpc_hand_end(struct vx_rpc *rpc);

/* rpc_send.c: senders write answers to sockets, so that the loop need not: gRPC writes on the
 * thread that starts the batch, and 8 MB take a millisecond. */
VX_MUST_USE vx_status vx_rpc_senders_open(struct vx_rpc *rpc);
VX_MUST_USE vx_status vx_rpc_senders_start(struct vx_rpc *rpc);
/* When this returns, all messages that they were given have been handed to gRPC. */
void vx_rpc_senders_close(struct vx_rpc *rpc);
/* Whether an answer of that many bytes should be written by a sender. */
bool vx_rpc_sender_wanted(const struct vx_rpc *rpc, size_t bytes);
/* Takes over the message and the reference of the record's owner.  Of a stream it takes
 * neither: the stream's queue has both. */
void vx_rpc_sender_give(struct vx_rpc_record *record, grpc_byte_buffer *message);
/* rpc_reply.c: starts the last batch of a call; takes over the same two. */
void vx_rpc_end_start(struct vx_rpc_record *record, grpc_byte_buffer *message);

/* rpc_stream.c: the record is a parent, unless the comment names a child. */
void vx_rpc_stream_start(struct vx_rpc_record *parent);
/* Handles the message that has come.  Thread: the queue's. */
void vx_rpc_stream_hear(struct vx_call *call);
/* It has the record that it waited for.  Takes over the waiting's reference. */
void vx_rpc_stream_wake(struct vx_rpc_record *parent);
/* RECV_CLOSE_ON_SERVER has completed; the caller keeps the tag's reference. */
void vx_rpc_stream_on_close(struct vx_rpc_record *parent);
/* The server closes: stops reading.  Answers still go out, then the status. */
void vx_rpc_stream_stop(struct vx_rpc_record *record);
/* Writes the first request's answer.  Senders call it, too. */
void vx_rpc_stream_write(struct vx_rpc_record *parent);
/* Answers a child and takes over its owner's reference.  With message NULL, end_code says
 * why there is no answer. */
void vx_rpc_stream_answer(struct vx_rpc_record *child, grpc_byte_buffer *message);

/* rpc_slow.c: sets what the call is waiting for its client to do. */
void vx_rpc_wire_set(struct vx_rpc_record *record, enum vx_rpc_wire wire);

/* rpc_reply.c: ends a call, or a request of a stream, with a status; refuses it so before
 * the loop has it, and tells on_refused. */
void vx_rpc_call_end(struct vx_rpc_record *record, enum vx_code code, const char *text);
void vx_rpc_call_refuse(struct vx_rpc_record *record, enum vx_code code,
                        const char *text);
/* Only tells on_refused. */
void vx_rpc_refusal_tell(const struct vx_rpc_record *record, enum vx_code code,
                         const char *model, const char *text);

#endif
