/* h2_windows - which streams of a connection may send the rest of their messages.
 *
 * gRPC opens a stream's window for the message that it awaits there, whatever other streams have.  So 60
 * requests of 2 MB at once on one connection came side by side, and none ended before nearly all
 * 120 MB were here.  Now only as many windows are opened as there is room for, one at least: of the
 * others one byte is, and the rest when it is their turn.  Any client understands that: these are the
 * frames that gRPC sends, with other numbers.
 *
 *   vx_h2_windows_hold(&windows, &meter, pieces, count, room);   before gRPC's bytes are sent
 *   vx_h2_windows_sent(&windows, bytes);                         so many of them were
 *   while ((stream = vx_h2_windows_next(&meter, room))) {
 *       vx_h2_windows_frame(stream, frame);                      sent between two of gRPC's
 *       vx_h2_windows_opened(&meter, stream);                    if all of it was
 *   }
 *   vx_h2_windows_look(&meter);                                  now and then
 *
 * Owner    the caller, of the state and of the meter, whose streams have their windows.
 * Thread   one at a time.  Pure: no clock, no allocation, no system call.
 * Cost     a few steps for each frame that is sent; one for each stream of the connection while some
 *          are held.
 * Source   RFC 9113, section 6.9.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_H2_WINDOWS_H
#define VX_SERVER_H2_WINDOWS_H

#include "server/govern/h2_meter.h"

#include <sys/uio.h>

#define VX_H2_UPDATE_BYTES (VX_H2_HEAD_BYTES + 4)

/* Where it is in what gRPC sends. */
struct vx_h2_windows {
    struct vx_h2_sent at;
    size_t ahead; /* bytes that were looked at, and not sent */
};

/* Changes what is about to be sent, and follows on what was sent.  `room` is for the rest of messages
 * of streams with open windows. */
void vx_h2_windows_hold(struct vx_h2_windows *windows, struct vx_h2_meter *meter,
                        const struct iovec *pieces, size_t count, i64 room);
void vx_h2_windows_sent(struct vx_h2_windows *windows, size_t bytes);
/* A stream whose window may be opened now; NULL = none. */
struct vx_h2_stream *vx_h2_windows_next(const struct vx_h2_meter *meter, i64 room);
/* The frame that opens it; and it is open. */
void vx_h2_windows_frame(const struct vx_h2_stream *stream, u8 frame[VX_H2_UPDATE_BYTES]);
void vx_h2_windows_opened(struct vx_h2_meter *meter, struct vx_h2_stream *stream);
/* What has brought little at so many looks in a row counts no more until it brings more: who stands still
 * keeps nobody waiting. */
#define VX_H2_STILL_LOOKS 2
void vx_h2_windows_look(struct vx_h2_meter *meter);

#endif
