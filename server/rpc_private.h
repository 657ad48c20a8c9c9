/* rpc_private - what the files of rpc share; nobody else includes it.
 *
 * A record is one RPC: the vx_call the loop sees, and around it what gRPC needs.  Records
 * come from one pool that is made at open: calls_max calls, those that are armed (waiting
 * for a client), and a few for the calls that are refused.  When the pool is empty a method
 * stays unarmed until a record returns; gRPC keeps new calls waiting for that moment.
 *
 *   rpc.c          open, threads, arming, stop, close
 *   rpc_listen.c   the address and the channel's settings
 *   rpc_pool.c     records, the line for receiving, lent slots
 *   rpc_call.c     from arrival to the loop
 *   rpc_reply.c    from the loop to the wire
 *   rpc_send.c     threads that write answers to sockets
 *   rpc_slow.c     clients that are too slow
 *
 * Life of a record, by `owner`:
 *   POOL     -> RPC       vx_rpc_call_arm         given to gRPC to fill
 *   RPC      -> LOOP      decoded                 given to the arrivals mailbox
 *   RPC      -> ANSWERED  refused or failed       on the queue's thread
 *   LOOP     -> ANSWERED  vx_rpc_reply* and kin   on the loop
 *   ANSWERED -> POOL      the last reference: every tag is back, `gone` is released
 *
 * Owner    references: one for being RPC's or the loop's, one per batch that is out, one
 *          for `gone` while it is in its mailbox, one for each stream message that is in
 *          the arrivals mailbox.
 * Thread   all tags of a call come back on the one thread of its queue.  Fields marked
 *          (lock) are under rpc->lock, which is held for a few instructions and never
 *          while calling gRPC: gRPC gives lent slots back from inside of its functions.
 * Fails    open: RESOURCE_EXHAUSTED.  Nothing of a call fails upwards: it ends with a
 *          status on the wire.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_PRIVATE_H
#define VX_SERVER_RPC_PRIVATE_H

#include "engine/base/check.h"
#include "server/rpc.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>

#include <pthread.h>
#include <stdatomic.h>

/* Calls armed per method and queue: as many as may arrive in one read of a busy
 * connection without waiting for the next turn of the queue's thread. */
#define VX_RPC_ARMED_BIG   8
#define VX_RPC_ARMED_SMALL 2
/* Records for calls that are being refused: their status must still travel. */
#define VX_RPC_REFUSALS_MAX 64
/* Small calls beyond calls_max: a probe is answered while inference is full. */
#define VX_RPC_SMALL_RESERVED 64
/* The generic call that catches what is not registered. */
#define VX_RPC_METHOD_UNKNOWN VX_METHODS_COUNT

/* libgrpc is not instrumented: ThreadSanitizer must be told that what was written before
 * a tag was handed to gRPC is visible to who gets it back. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define VX_RPC_TAG_GIVE(tag_) __tsan_release(tag_)
#define VX_RPC_TAG_TAKE(tag_) __tsan_acquire(tag_)
#else
#define VX_RPC_TAG_GIVE(tag_) ((void)(tag_))
#define VX_RPC_TAG_TAKE(tag_) ((void)(tag_))
#endif

/* What gRPC gives back; the queue's loop is one indirect call. */
struct vx_rpc_tag {
    void (*on)(void *context, bool ok);
    void *context;
};

/* What a call waits for its client for. */
enum vx_rpc_wire { VX_RPC_IDLE, VX_RPC_RECEIVING, VX_RPC_SENDING };

enum vx_rpc_owner { VX_RPC_POOL, VX_RPC_RPC, VX_RPC_LOOP, VX_RPC_ANSWERED };

/* What leaves on a stream, one message at a time: gRPC takes one SEND_MESSAGE per
 * call. */
struct vx_rpc_outbox {
    grpc_byte_buffer *ring[VX_STREAM_SENDS_MAX];
    i32 first, count;
    bool busy;   /* a batch of sends is out; who clears it may start the next */
    bool broken; /* the peer does not take any more */
    bool ending; /* the status goes out when the ring is empty */
};

struct vx_rpc_record {
    struct vx_call call;
    struct vx_rpc *rpc;
    i32 queue;
    struct vx_rpc_record *next; /* (lock) in the pool, or in the line for receiving */
    atomic_int references;
    atomic_int owner;
    atomic_int wire;
    _Atomic i64 wire_since_ns;

    struct vx_rpc_tag arrive, close, receive, send;
    struct vx_link outgoing;  /* in a sender's mailbox */
    grpc_byte_buffer *answer; /* what the sender sends */
    grpc_call *grpc;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details; /* unknown methods only */
    grpc_byte_buffer *payload;
    grpc_slice flat;   /* a message that came in pieces, made one */
    int cancelled_out; /* written by gRPC; valid once `close` is back */

    bool cancelled;     /* the queue's thread */
    bool waiting;       /* (lock) in the line for receiving */
    bool counted;       /* (lock) one of in_flight */
    bool metadata_sent; /* who may send */
    bool message_holds; /* the stream message in the arrivals mailbox holds a reference */
    struct vx_rpc_outbox outbox; /* (lock) */
    grpc_status_code end_code;
    char end_text[VX_WHY_BYTES];
};

struct vx_rpc_queue {
    struct vx_rpc *rpc;
    grpc_completion_queue *cq;
    pthread_t thread;
    bool running;
    i32 owed[VX_METHODS_COUNT + 1]; /* (lock) to be armed when a record returns */
    /* The thread's own. */
    struct vx_span *spans;
    void *scratch_block;
    struct vx_arena scratch;
};

/* Writes answers to sockets, so that the loop does not: gRPC writes on the thread that
 * starts the batch, and 8 MB are a millisecond. */
struct vx_rpc_sender {
    struct vx_rpc *rpc;
    struct vx_mailbox mail; /* of vx_rpc_record.outgoing; `stop` is the last */
    struct vx_link stop;
    pthread_t thread;
    bool running;
};

/* A slot that gRPC reads from; given back when gRPC drops the slice. */
struct vx_rpc_lend {
    struct vx_rpc *rpc;
    struct vx_slot slot;
    struct vx_rpc_lend *next;
};

struct vx_rpc {
    struct vx_rpc_options options;
    grpc_server *server;
    i32 port;
    void *registered[VX_METHODS_COUNT];
    struct vx_rpc_queue *queues;
    struct vx_rpc_sender *senders; /* as many as queues */
    i32 answers_coming;            /* the loop's: vx_rpc_answers_coming */
    size_t spans_max;
    struct vx_rpc_tag shutdown;
    bool started, stopped; /* the loop's */
    atomic_bool refusing;
    atomic_bool closing; /* nothing goes into the mailboxes any more */
    atomic_int handing;  /* threads between reading `closing` and having given */

    pthread_mutex_t lock;
    pthread_cond_t
        idle; /* a record came back, a lend came back, or the server has shut down */
    struct vx_rpc_record *records;
    i32 records_count;
    struct vx_rpc_record *free;                    /* (lock) */
    i32 free_count;                                /* (lock) */
    i32 in_flight;                                 /* (lock) */
    i32 owed_count;                                /* (lock) sum over the queues */
    i32 receiving;                                 /* (lock) */
    struct vx_rpc_record *line_first, **line_last; /* (lock) */
    struct vx_rpc_lend *lends, *lends_free;        /* (lock) */
    i32 lends_count, lends_out;                    /* (lock) */
    bool arming_over; /* (lock) no more calls are asked for */
    bool shut_down;   /* (lock) the shutdown tag is back */

    _Atomic u64 calls[VX_METHODS_COUNT];
    _Atomic u64 refused_full, refused_bad, refused_draining, unknown_methods;
    _Atomic u64 cut_receiving, cut_sending;
    _Atomic u64 bytes_in, bytes_out;
};

static inline struct vx_rpc_record *vx_rpc_record_of(struct vx_call *call)
{
    struct vx_rpc_record *record = VX_CONTAINER(call, struct vx_rpc_record, call);
    VX_ASSERT(call->magic == VX_CALL_MAGIC);
    return record;
}

/* rpc_listen.c: the server with its settings, and its port. */
grpc_server *vx_rpc_server_make(const struct vx_rpc_options *options);
VX_MUST_USE vx_status vx_rpc_address_check(const char *address, struct vx_why *why);
VX_MUST_USE vx_status vx_rpc_listen(struct vx_rpc *rpc, struct vx_why *why);

/* rpc_pool.c */
VX_MUST_USE vx_status vx_rpc_pool_open(struct vx_rpc *rpc);
void vx_rpc_pool_close(struct vx_rpc *rpc);
/* NULL: arming is over, or none is free; then it is noted as owed and armed later. */
struct vx_rpc_record *vx_rpc_record_take(struct vx_rpc *rpc, i32 queue, i32 method);
/* Gives back the slots of a decoded request that nobody will run. */
void vx_rpc_inputs_give(struct vx_rpc_record *record);
void vx_rpc_record_ref(struct vx_rpc_record *record);
void vx_rpc_record_unref(struct vx_rpc_record *record);
/* Counts the call as in flight; false when there are too many. */
bool vx_rpc_record_admit(struct vx_rpc_record *record);
/* True: it may receive its body now.  False: it waits, and is started by who ends. */
bool vx_rpc_line_enter(struct vx_rpc_record *record);
/* True: it was waiting and is out of the line. */
bool vx_rpc_line_leave(struct vx_rpc_record *record);
/* One body is done; the next in line, which may receive now, or NULL. */
struct vx_rpc_record *vx_rpc_line_next(struct vx_rpc *rpc);
/* A slice over the slot; takes the slot.  False when no record is left: the slot
 * stays. */
bool vx_rpc_lend_slot(struct vx_rpc *rpc, struct vx_slot slot, grpc_slice *slice);

/* rpc_call.c: RPC is the owner here until the loop is. */
/* How many calls of `method` are armed on each queue. */
i32 vx_rpc_armed(i32 method);
/* Asks gRPC for one more call of `method`.  Any thread. */
void vx_rpc_call_arm(struct vx_rpc *rpc, i32 queue, i32 method);
/* Starts a batch that will come back as `tag`, which holds a reference until then. */
void vx_rpc_batch_start(struct vx_rpc_record *record, const grpc_op *ops,
                        size_t ops_count, struct vx_rpc_tag *tag);
/* Streams: asks for one more message. */
void vx_rpc_message_receive(struct vx_rpc_record *record);
void vx_rpc_message_drop(struct vx_rpc_record *record);
/* True: the caller gives to a mailbox and then says vx_rpc_hand_end.  False: rpc
 * closes. */
bool vx_rpc_hand_begin(struct vx_rpc *rpc);
void vx_rpc_hand_end(struct vx_rpc *rpc);

/* rpc_send.c */
VX_MUST_USE vx_status vx_rpc_senders_open(struct vx_rpc *rpc);
VX_MUST_USE vx_status vx_rpc_senders_start(struct vx_rpc *rpc);
/* All they were given is on its way when this returns. */
void vx_rpc_senders_close(struct vx_rpc *rpc);
/* Whether an answer of that many bytes is better written by a sender. */
bool vx_rpc_sender_wanted(const struct vx_rpc *rpc, size_t bytes);
/* Takes the message and the reference of who owned the record. */
void vx_rpc_sender_give(struct vx_rpc_record *record, grpc_byte_buffer *message);
/* rpc_reply.c: the last batch of a call; takes the same. */
void vx_rpc_end_start(struct vx_rpc_record *record, grpc_byte_buffer *message);

/* rpc_slow.c: from now on the call waits for its client, or no longer. */
void vx_rpc_wire_set(struct vx_rpc_record *record, enum vx_rpc_wire wire);

/* rpc_reply.c: ends a call that is not the loop's. */
void vx_rpc_call_end(struct vx_rpc_record *record, enum vx_code code, const char *text);

#endif
