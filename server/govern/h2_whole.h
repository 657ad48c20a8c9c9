/* h2_whole - large messages of a connection that are whole, until we have done with them.
 *
 * gRPC keeps such a message until it gives it to a thread of ours, which decodes it and says so.  Whose it
 * is, gRPC does not tell: its length names it.  A stream may end before that, because its client resets
 * it while a thread has its message; then the message is an orphan.
 *
 *   vx_h2_whole_set(&meter, stream, bytes);   the meter: its message is whole
 *   vx_h2_whole_orphan(&meter, stream);       the meter: it ends
 *   vx_h2_whole_received(&meter, bytes);      we have done with one
 *   vx_h2_whole_orphans(&meter, most);        gRPC has dropped what has no call
 *
 * Owner    the caller, of the meter: `whole` of it and of its streams, `orphaned`, `orphans`.
 * Thread   one at a time.  Pure: no clock, no allocation, no system call.
 * Cost     received: one step for each stream of the connection.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_H2_WHOLE_H
#define VX_SERVER_H2_WHOLE_H

#include "server/govern/h2_meter.h"

/* From this length on a whole message that gRPC has not given us counts. */
#define VX_H2_MESSAGE_WHOLE (64 << 10)

void vx_h2_whole_set(struct vx_h2_meter *meter, struct vx_h2_stream *stream, u32 bytes);
void vx_h2_whole_orphan(struct vx_h2_meter *meter, struct vx_h2_stream *stream);
/* We have done with a message of so many bytes: any stream with such a one, or an orphan. */
void vx_h2_whole_received(struct vx_h2_meter *meter, size_t bytes);
/* No more than so many orphans are left: gRPC may have dropped the others.  Which is not known, so each
 * counts as the mean. */
void vx_h2_whole_orphans(struct vx_h2_meter *meter, i32 most);

#endif
