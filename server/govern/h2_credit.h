/* h2_credit - what a client may still send: the windows of its connection and of each stream.
 *
 * gRPC only ends a stream whose client breaks its window.  A break says more: this is no client of gRPC's.
 *
 *   vx_h2_credit_add(&meter, stream, more);     a DATA frame has come (negative), or a held window is open
 *   vx_h2_credit_update(&meter, id, more);      we have sent a WINDOW_UPDATE; id 0 = the connection
 *   vx_h2_credit_settle(&meter);                the client has confirmed our SETTINGS
 *   if (meter.window < 0 || meter.overdrawn) ...
 *
 * Owner    the caller, of the meter: `window`, `overdrawn`, `stream_window`, `settled`, and `credit` of its
 *          streams.
 * Thread   one at a time.  Pure: no clock, no allocation, no system call.
 * Cost     settle: one step for each stream of the connection, once.
 * Source   RFC 9113, sections 5.2 and 6.9.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_H2_CREDIT_H
#define VX_SERVER_H2_CREDIT_H

#include "server/govern/h2_meter.h"

void vx_h2_credit_add(struct vx_h2_meter *meter, struct vx_h2_stream *stream, i64 more);
void vx_h2_credit_update(struct vx_h2_meter *meter, u32 id, i64 more);
void vx_h2_credit_settle(struct vx_h2_meter *meter);

#endif
