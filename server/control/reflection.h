/* reflection - answers what tools such as grpcurl ask: which services, in which files?
 *
 * Bytes in, bytes out, one message of a stream.  The two versions of the protocol, v1 and
 * v1alpha, have the same messages under two names, so one answer serves both.  A name
 * that is not found is answered with an error in the message, and the stream continues.
 *
 *   VX_TRY(vx_reflection_answer(call->message, scratch, &why, &answer));
 *
 * Thread   loop.
 * Limits   VX_REFLECTION_BYTES_MAX in, VX_ANSWER_BYTES_MAX out.
 * Fails    INVALID_ARGUMENT for a longer message and for bytes that are not one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REFLECTION_H
#define VX_SERVER_REFLECTION_H

#include "server/control/control.h"

/* A message is a name, and the answer repeats it. */
#define VX_REFLECTION_BYTES_MAX 4096
/* Open streams.  A tool has one, for a moment.  On each, VX_STREAM_SENDS_MAX answers of
 * up to 50 KB may wait to be read. */
#define VX_REFLECTIONS_MAX 16

VX_MUST_USE vx_status vx_reflection_answer(struct vx_span message,
                                           struct vx_arena *scratch, struct vx_why *why,
                                           struct vx_control_answer *answer);

/* Which stream ends when there is one too many; `all` has the newest first, which is the one
 * that has come.  It is of the origin that has most, so never of one that has fewer than the
 * newcomer's; there of the connection that has most, and its oldest. */
struct vx_call *vx_reflection_least(struct vx_call *const *all, i32 count);

#endif
