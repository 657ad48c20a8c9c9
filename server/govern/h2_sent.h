/* h2_sent - reads the frames of HTTP/2 that one side sends, cut anywhere.
 *
 *   while (count) {
 *       size_t taken = vx_h2_sent_take(&sent, bytes, count);
 *       bytes += taken, count -= taken;
 *       if (vx_h2_sent_ends(&sent)) ...   a whole frame: sent.head, and the end of its payload
 *   }
 *
 * Owner    the caller, of the state.
 * Thread   one at a time.  Pure: no clock, no allocation, no system call.
 * Source   RFC 9113, section 4.1.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_H2_SENT_H
#define VX_SERVER_H2_SENT_H

#include "engine/base/types.h"

#define VX_H2_HEAD_BYTES 9

struct vx_h2_sent {
    u8 head[VX_H2_HEAD_BYTES];
    u32 have;  /* bytes of the head */
    u32 left;  /* of the frame's payload */
    u32 value; /* the last four bytes of the payload so far */
};

/* Takes bytes to the end of a head or of a frame, or all; returns how many. */
size_t vx_h2_sent_take(struct vx_h2_sent *sent, const u8 *bytes, size_t count);
/* Whether that was a whole frame; the next one may come. */
bool vx_h2_sent_ends(struct vx_h2_sent *sent);
/* Bytes to come of a frame's payload; 0 within a head. */
u32 vx_h2_sent_due(const struct vx_h2_sent *sent);

/* A frame's head: `have` bytes of it are there; returns how many more were taken. */
u32 vx_h2_head_take(u8 *head, u32 *have, const u8 *bytes, u32 count);
/* The payload's length, and the stream. */
u32 vx_h2_length_of(const u8 *head);
u32 vx_h2_id_of(const u8 *head);

#endif
