/* health - grpc.health.v1 and reflection: the streams beside the inference service.
 *
 * Health knows "" (the whole server), "inference.GRPCInferenceService", and each model by
 * name.  A Watch stream gets a message on every change; a Watch of an unknown name gets
 * SERVICE_UNKNOWN and stays open.
 *
 *   vx_health_on_call(health, call)      Check, List, Watch, reflection streams
 *   vx_health_on_gone(health, call)      the peer of an open stream left
 *   vx_health_step(health, view)         tells watchers what changed, ends whose token
 *                                        is gone; once per iteration
 *
 * Owner    the loop; Watch calls belong to health until they end.
 * Thread   loop.
 * Limits   a Watch stream is a call and counts as one; a request has at most 1,024 bytes.
 * Fails    INVALID_ARGUMENT for a longer request.  Check: NOT_FOUND for an unknown name.
 *          A stream ends RESOURCE_EXHAUSTED when its client sends more messages and does
 *          not read the answers, UNAUTHENTICATED or PERMISSION_DENIED within a second
 *          when its token ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HEALTH_H
#define VX_SERVER_HEALTH_H

#include "server/rpc/rpc.h"

struct vx_health;
struct vx_front_view;

VX_MUST_USE vx_status vx_health_open(struct vx_rpc *rpc, struct vx_health **health);
void vx_health_close(struct vx_health **health); /* ends every stream */
/* Takes the call and returns true if its method belongs to health or reflection.  Called
 * for every arrival of such a method, including stream messages. */
bool vx_health_on_call(struct vx_health *health, const struct vx_front_view *view,
                       struct vx_call *call, struct vx_arena *scratch);
void vx_health_on_gone(struct vx_health *health, struct vx_call *call);
/* Open streams: Watch and reflection. */
i32 vx_health_streams(const struct vx_health *health);
void vx_health_step(struct vx_health *health, const struct vx_front_view *view);

#endif
