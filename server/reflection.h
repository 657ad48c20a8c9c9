/* reflection - answers what tools such as grpcurl ask: which services, in which files?
 *
 * Bytes in, bytes out, one message of a stream.  The two versions of the protocol, v1 and
 * v1alpha, have the same messages under two names, so one answer serves both.  What is not
 * found is an answer too: the stream goes on.
 *
 *   VX_TRY(vx_reflection_answer(call->message, scratch, &why, &answer));
 *
 * Thread   loop.
 * Limits   VX_CONTROL_BYTES_MAX in and out.
 * Fails    INVALID_ARGUMENT for bytes that are not a request.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REFLECTION_H
#define VX_SERVER_REFLECTION_H

#include "server/control.h"

VX_MUST_USE vx_status vx_reflection_answer(struct vx_span message,
                                           struct vx_arena *scratch, struct vx_why *why,
                                           struct vx_control_answer *answer);

#endif
