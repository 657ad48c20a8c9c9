/* governor_rig - a governor with connections that nothing else reads: socket pairs; the
 * governor reads our end, and the test writes to their end as a client.
 *
 * Owner    the test, one governor at a time.
 * Thread   the test's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_GOVERNOR_RIG_H
#define VX_TESTS_UNIT_GOVERNOR_RIG_H

#include "server/rpc/rpc_private.h"

#define RIG_CONNECTIONS_MAX   1024
#define RIG_RECEIVE_BYTES_MAX (1 << 20)
/* Each connection is read into buffers of this size, one after the other, as gRPC does. */
#define RIG_BUFFER_BYTES 65536

extern struct vx_rpc_governor *rig_governor;
extern int rig_ours[RIG_CONNECTIONS_MAX], rig_theirs[RIG_CONNECTIONS_MAX];
extern i32 rig_count;

void rig_open(u64 arena_bytes);
void rig_close(void);
/* The number of a new connection. */
i32 rig_connect(void);
i32 rig_connect_from(u16 origin);
/* No time limit gives its bytes back within RIG_HELD_NS, however slow the test is. */
#define RIG_HELD_NS (30 * VX_NS_PER_S)
void rig_hold_time(i32 i);
struct vx_rpc_place rig_place(i32 i);
bool rig_is_closed(i32 i);
/* Ends it, as the accept thread does with one that is closed.  Its number stays. */
void rig_end(i32 i);
bool rig_has_ended(i32 i);
/* Reads as gRPC does, until nothing is left or nothing may be read now.  Large messages that are whole
 * are received then, as a thread of the server does; unless the server lags. */
void rig_read_all(i32 i);
extern bool rig_lags;
void rig_receive(i32 i);
/* Bytes that were written and not yet read. */
i32 rig_unread(i32 i);
void rig_greet(i32 i);
/* Sends the headers of a call. */
void rig_call(i32 i, u32 id);
/* A call with a message of 32 MiB, of which as much is sent as is read; returns the
 * bytes read. */
i64 rig_fill_with_half(i32 i);

#endif
