/* h2_meter - weighs the HTTP/2 frames of one client's connection.
 *
 * gRPC parses every frame and keeps what it makes of it, but reports neither.  The meter
 * reads the same bytes and keeps only nine bytes of each frame and five of each message.
 * It counts how many calls a connection has begun, how much work its other frames were,
 * how large their headers are when they are decoded, and how much memory gRPC holds for
 * messages.  Its caller decides what is too much.
 *
 * gRPC reads into buffers of 8 or 64 KiB, one after the other, and does not copy: a piece
 * of a message keeps the whole buffer, whatever else was in it.  So the caller says where
 * each buffer begins, and what is held is counted in buffers.
 *
 * A stream that we reset is over, and its client need not confirm that; gRPC's clients do
 * not.  So the meter also reads what we send, for the resets in it.
 *
 *   vx_h2_meter_init(&meter, streams, VX_H2_STREAMS_MAX, message_bytes_max);
 *   vx_h2_meter_buffer(&meter, bytes);           a buffer of that size begins
 *   vx_h2_meter_walk(&meter, bytes, count);      cut anywhere, from the preface on
 *   vx_h2_meter_taken(&meter);                   gRPC has given us a later message
 *   vx_h2_meter_sent(&meter, bytes, count);      cut anywhere: what the client was sent
 *   if (meter.fault) ...
 *
 * Owner    the caller owns the meter, 888 bytes, and the array of streams.
 * Thread   one at a time.  Pure: no clock, no allocation, no system call.
 * Limits   VX_H2_BLOCK_BYTES_MAX and VX_H2_BLOCK_DECODED_MAX a header block; streams_max
 *          open streams.
 * Fails    `fault` says which limit was exceeded; from then on nothing is read.  gRPC
 *          refuses bytes that are not HTTP/2; the meter only has to survive them.
 * Source   RFC 9113, sections 4 and 6; gRPC over HTTP/2, "Length-Prefixed-Message".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_H2_METER_H
#define VX_SERVER_H2_METER_H

#include "server/govern/h2_sent.h"
#include "server/govern/hpack_count.h"

#define VX_H2_PREFACE_BYTES 24
#define VX_H2_PREFIX_BYTES  5 /* gRPC's, before each message: a flag and its length */
/* So much metadata of a call gRPC takes, each field's texts and 32 bytes. */
#define VX_H2_METADATA_BYTES 16384
/* On the wire that is never more than this. */
#define VX_H2_BLOCK_BYTES_MAX VX_H2_METADATA_BYTES
/* By our count (VX_HPACK_FIELD_BYTES, 96 more for each field) it has at most 170 fields then: who
 * sends more and smaller ones is no client. */
#define VX_H2_BLOCK_DECODED_MAX 32768
/* The unit in which headers count that are kept until a message comes. */
#define VX_H2_HEAVY_BYTES 6144
/* Open streams, as far as the client's frames and our resets tell; gRPC is told to allow
 * half. */
#define VX_H2_STREAMS_MAX 4096
/* A frame is one unit of work, and one more for so many bytes that are not a message's.
 * A DATA frame of at least so many bytes is free: its bytes are counted as a
 * message's.  Of smaller ones that bring bytes of a message so many are a unit. */
#define VX_H2_UNIT_BYTES  256
#define VX_H2_UNIT_PIECES 8
/* What gRPC keeps of such a frame beside its buffer: a slice. */
#define VX_H2_PIECE_BYTES 32
/* DATA of a stream that has ended is one unit more for so many bytes: it costs hardly
 * more than reading it, and an honest client sends some before it learns of the end. */
#define VX_H2_WASTE_BYTES 4096
/* gRPC checks a message's length when all of it is there.  So one that is too large by no
 * more than this gets its status, and a larger one ends its connection. */
#define VX_H2_MESSAGE_EXCESS (64 << 20)
/* From this length on a message is large: only an inference's may be. */
#define VX_H2_MESSAGE_LONG (1 << 20)
/* A piece of a message in a frame with less than this left counts as all of its buffer; a
 * larger one as half of it at least, since others may lie beside it. */
#define VX_H2_PIECE_SMALL (4 << 10)

/* The window of a connection, and of each stream, before the first update of it (RFC 9113, 6.9.2). */
#define VX_H2_WINDOW_BYTES 65535
/* That of a stream, from when its client has confirmed gRPC's SETTINGS. */
#define VX_H2_STREAM_WINDOW_BYTES (128 << 10)

/* The window of a stream, beside the first one that any has: h2_windows.h. */
enum vx_h2_window {
    VX_H2_WINDOW_FIRST,
    VX_H2_WINDOW_OPEN,
    VX_H2_WINDOW_STILL, /* open, and it has brought little of late */
    VX_H2_WINDOW_HELD   /* what gRPC has opened is withheld */
};

struct vx_h2_stream {
    u32 id;
    u32 length, left; /* of the current message, once its prefix is complete */
    u32 got;          /* bytes of it, prefix included; 0 = there is none */
    u8 have;          /* bytes of the prefix */
    bool spoke;       /* a byte of a message has come */
    u8 heavy;         /* its headers, until a message is whole; in VX_H2_HEAVY_BYTES */
    bool later;       /* a message has ended: what comes now may wait in gRPC */
    u32 held;         /* by the current message, in buffers */
    u32 buffer;       /* the last one with a piece of it; 0 = none */
    u32 here, weight; /* its bytes there, and what they count as */
    bool ended;       /* by its client */
    bool answered;    /* we have ended our side */
    u32 whole; /* bytes of its last large message that is whole, until we have done with it */
    u8 window;    /* enum vx_h2_window, for the current message */
    u8 still;     /* looks in a row at which little of it had come */
    u32 fresh;    /* bytes of messages since the last look */
    u32 withheld; /* bytes of the window that gRPC has opened */
    u32 turn;     /* since when: the least has waited longest */
    i64 credit;   /* what its client may still send, as `window` of the connection */
    i32 waiting;  /* as in vx_h2_meter, its own */
    i64 waiting_came, waiting_held;
};

enum vx_h2_fault {
    VX_H2_SOUND,
    VX_H2_BLOCK_LONG, /* a header block beyond VX_H2_BLOCK_BYTES_MAX or DECODED_MAX */
    /* A header block that no encoder makes, after which gRPC may go on, and reads what
     * follows otherwise than we do. */
    VX_H2_BLOCK_BROKEN,
    VX_H2_STREAMS_MANY,  /* more than streams_max streams that are not over */
    VX_H2_MESSAGE_LARGE, /* a message that is much larger than gRPC takes */
};

struct vx_h2_meter {
    /* Results. */
    u64 calls;     /* streams that were begun, with odd ids: gRPC skips others */
    u64 work;      /* units of all frames that neither begin calls nor carry messages */
    u64 call_work; /* the part of it that large headers of calls are */
    u64 pieces;    /* small DATA frames that bring bytes of messages */
    u64 bytes;     /* of messages */
    u64 finished;  /* complete messages */
    i64 came;      /* bytes that have come of unfinished messages */
    i64 held;      /* bytes of gRPC's buffers that they keep */
    i64 announced; /* bytes that these messages will have */
    i64 barred;    /* those to come of messages whose window is held */
    i64 whole;     /* bytes of messages that are whole, and with which we have not done */
    i64 orphaned; /* the part of that whose streams have ended: we may have the messages all the same */
    i32 orphans;    /* messages of which that is true */
    i32 withheld;   /* streams of which bytes of the window are withheld */
    u32 turns;      /* the last one of them that began to wait */
    i32 unfinished; /* unfinished messages */
    i32 large;      /* those of VX_H2_MESSAGE_LONG and more */
    i32 silent;     /* open streams that have sent no byte of a message, and may */
    i32 heavy;      /* headers of streams without a whole message, in VX_H2_HEAVY_BYTES */
    /* Of all streams, whole messages but the first of each, which gRPC has not given us.  They
     * wait for as long as the answers before them, or, where a call takes one message, until it
     * ends. */
    i32 waiting;
    i64 waiting_came, waiting_held;
    /* What the client may still send in DATA frames of all streams: negative when it has sent
     * more than we have let it, or when what let it is being sent right now. */
    i64 window;
    i32 overdrawn; /* streams of which that is true */
    bool wide; /* a message has begun that is longer than a connection's first window */
    enum vx_h2_fault fault;

    /* State. */
    struct vx_h2_stream *streams; /* by id, ascending */
    i32 streams_max, streams_count;
    i64 message_bytes_max, stream_window;
    u32 preface_left;
    u32 last_id;                 /* the highest id that has begun */
    u32 block;                   /* bytes of the current header block */
    struct vx_hpack_count hpack; /* its fields, and the connection's table of them */
    u32 buffers, buffer_bytes;   /* begun so far, from 1 on; the size of the last */
    u32 waiting_buffer;          /* the last one with a message that waits */
    u8 priority_left;            /* bytes of a HEADERS frame before its fields */
    bool settled;                /* the client has confirmed our SETTINGS */
    bool begun;      /* a frame has ended: gRPC takes any only after SETTINGS */
    bool block_open; /* the rest of a header block is to come */
    u8 head[VX_H2_HEAD_BYTES];
    u32 head_have;
    u32 left; /* of the frame's payload */
    u32 pad;  /* padding at its end */
    u32 id;
    i32 stream; /* DATA: the index of its stream; -1 = none */
    u8 type, flags;
    bool pad_due; /* the next byte says how much padding there is */
    struct vx_h2_sent sent;
};

void vx_h2_meter_init(struct vx_h2_meter *meter, struct vx_h2_stream *streams,
                      i32 streams_max, i64 message_bytes_max);
/* What is walked from here on lies in another buffer of gRPC's. */
void vx_h2_meter_buffer(struct vx_h2_meter *meter, size_t bytes);
void vx_h2_meter_walk(struct vx_h2_meter *meter, const u8 *bytes, size_t count);
void vx_h2_meter_sent(struct vx_h2_meter *meter, const u8 *bytes, size_t count);
/* NULL: it has ended, or never begun. */
struct vx_h2_stream *vx_h2_meter_stream(const struct vx_h2_meter *meter, u32 id);
/* The window of its current message is another now. */
void vx_h2_meter_window(struct vx_h2_meter *meter, struct vx_h2_stream *stream,
                        enum vx_h2_window window);
/* gRPC has given us a message that is not the first of its stream. */
void vx_h2_meter_taken(struct vx_h2_meter *meter);
/* What the messages that wait keep beside their own bytes. */
i64 vx_h2_meter_waste(const struct vx_h2_meter *meter);
/* Bytes still to come of the message that the current DATA frame belongs to; 0 = there is
 * no such frame. */
i64 vx_h2_meter_left(const struct vx_h2_meter *meter);
/* Bytes still to come of that frame. */
i64 vx_h2_meter_frame_left(const struct vx_h2_meter *meter);
/* Whether any frame may come next: the last one is whole, and so is its header block.  The first one
 * must be the client's SETTINGS. */
bool vx_h2_meter_between(const struct vx_h2_meter *meter);

#endif
