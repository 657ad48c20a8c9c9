/* h2_meter - weighs the HTTP/2 frames of one client's connection.
 *
 * gRPC parses every frame and keeps what it makes of it, and says nothing of either.  The
 * meter walks the same bytes without keeping them: nine bytes of each frame, five of each
 * message.  It knows how many calls a connection has begun, how much work its frames were
 * beside that, and how many bytes lie in gRPC for messages that are not whole.  What is too
 * much is for others to say.
 *
 * A stream that we reset is over, and its client need not say so: gRPC's clients do not.  So
 * the meter walks what we send as well, for the resets in it.
 *
 *   vx_h2_meter_init(&meter, streams, VX_H2_STREAMS_MAX, message_bytes_max);
 *   vx_h2_meter_walk(&meter, bytes, count);      in any pieces, from the preface on
 *   vx_h2_meter_sent(&meter, bytes, count);      in any pieces: what the client was sent
 *   if (meter.fault) ...
 *
 * Owner    the caller's, with the rows of its streams.
 * Thread   one at a time.  Pure: no clock, no memory, no system.
 * Limits   VX_H2_BLOCK_BYTES_MAX a header block; as many open streams as there are rows.
 * Fails    `fault` says which limit was passed; from then on nothing is walked.  Bytes that
 *          are no HTTP/2 are gRPC's to refuse: the meter only has to survive them.
 * Source   RFC 9113, sections 4 and 6; gRPC over HTTP/2, "Length-Prefixed-Message".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_H2_METER_H
#define VX_SERVER_H2_METER_H

#include "engine/base/types.h"

#define VX_H2_PREFACE_BYTES 24
#define VX_H2_HEAD_BYTES    9
#define VX_H2_PREFIX_BYTES  5 /* gRPC's, before each message: a flag and its length */
/* gRPC takes 8 KiB of metadata, spelt out; on the wire that is never so much. */
#define VX_H2_BLOCK_BYTES_MAX 65536
/* Streams that a client may have open as far as it has said; gRPC is told to allow half. */
#define VX_H2_STREAMS_MAX 4096
/* A frame is one unit of work, and one more for so many bytes that are no message's.  A
 * DATA frame of as many is free: its bytes are counted as such. */
#define VX_H2_UNIT_BYTES 256
/* Data of a stream that is gone costs hardly more than its reading: an honest client sends some
 * before it hears of it. */
#define VX_H2_WASTE_BYTES 4096
/* gRPC looks at a message's length when all of it is there.  So one that is too large by no
 * more than this gets its status, and a larger one ends its connection. */
#define VX_H2_MESSAGE_EXCESS (64 << 20)

struct vx_h2_stream {
    u32 id;
    u32 length, left; /* of the message under way, once its prefix is whole */
    u32 got;          /* bytes of it, prefix and all; 0 = none is under way */
    u8 have;          /* bytes of the prefix */
    bool spoke;       /* any byte of a message has come */
};

/* Where the walk of what we send stands. */
struct vx_h2_sent {
    u8 head[VX_H2_HEAD_BYTES];
    u32 have; /* bytes of it */
    u32 left; /* of the frame's payload */
};

enum vx_h2_fault {
    VX_H2_SOUND,
    VX_H2_BLOCK_LONG,    /* a header block of more than VX_H2_BLOCK_BYTES_MAX */
    VX_H2_STREAMS_MANY,  /* more open streams than there are rows */
    VX_H2_MESSAGE_LARGE, /* a message that is much larger than gRPC takes */
};

struct vx_h2_meter {
    /* What it found. */
    u64 calls;      /* streams that were begun, by odd ids: gRPC passes others over */
    u64 work;       /* units of all frames that are neither that nor messages */
    u64 bytes;      /* of messages */
    u64 finished;   /* messages that are whole */
    i64 held;       /* bytes of those that are not */
    i64 announced;  /* what they will be when they are */
    i32 unfinished; /* how many they are */
    i32 silent;     /* open streams that have sent no byte of a message */
    enum vx_h2_fault fault;

    /* Where it stands. */
    struct vx_h2_stream *streams; /* by id, ascending */
    i32 streams_max, streams_count;
    i64 message_bytes_max;
    u32 preface_left;
    u32 last_id; /* the highest that has begun */
    u32 block;   /* bytes of the header block under way */
    u8 head[VX_H2_HEAD_BYTES];
    u32 head_have;
    u32 left; /* of the frame's payload */
    u32 pad;  /* of it, behind the data */
    u32 id;
    i32 stream; /* DATA: the row it is for; -1 = none */
    u8 type, flags;
    bool pad_due; /* the next byte says how much padding there is */
    struct vx_h2_sent sent;
};

void vx_h2_meter_init(struct vx_h2_meter *meter, struct vx_h2_stream *streams,
                      i32 streams_max, i64 message_bytes_max);
void vx_h2_meter_walk(struct vx_h2_meter *meter, const u8 *bytes, size_t count);
void vx_h2_meter_sent(struct vx_h2_meter *meter, const u8 *bytes, size_t count);
/* Bytes of the message that the present DATA frame is of which have not come; 0 = the walk
 * stands anywhere else. */
i64 vx_h2_meter_left(const struct vx_h2_meter *meter);
/* Bytes of that frame which have not come. */
i64 vx_h2_meter_frame_left(const struct vx_h2_meter *meter);

#endif
