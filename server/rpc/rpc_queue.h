/* rpc_queue - the threads of the completion queues: what they do, and how many take calls.
 *
 * A thread is in the crew, and arms calls of its queue; or it has left, and ends the calls it
 * has; or it waits outside gRPC.  The first is always in the crew.
 *
 *   status = vx_thread_open(&queue->thread, VX_ROLE_RPC, vx_rpc_queue_run, queue);
 *   vx_rpc_crew_begin(rpc);        the first arms its calls
 *   vx_rpc_crew_end(rpc);          none is armed any more; all wait for their queue's end
 *
 * Owner    rpc: struct vx_rpc_queue in rpc_private.h.
 * Thread   as each function says.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_QUEUE_H
#define VX_SERVER_RPC_QUEUE_H

#include "engine/base/types.h"

#include <grpc/support/time.h>

struct vx_rpc;
struct vx_rpc_queue;

/* The thread, until its queue has shut down and is empty. */
void vx_rpc_queue_run(void *context); /* the queue */
/* One event, or a message of one stream; false when the queue has shut down and is empty.
 * The queue's thread, or any if it has none. */
bool vx_rpc_queue_turn(struct vx_rpc_queue *queue, gpr_timespec until);
/* Under rpc's lock: how many more calls of `method` are to be armed on it; 0 and less: none. */
i32 vx_rpc_queue_missing(const struct vx_rpc_queue *queue, i32 method);
/* A call that was armed has come: others are armed in its place.  The queue's thread. */
void vx_rpc_queue_arrived(struct vx_rpc_queue *queue, i32 method);

/* The loop's. */
void vx_rpc_crew_begin(struct vx_rpc *rpc);
void vx_rpc_crew_end(struct vx_rpc *rpc);
/* A message of so many bytes is decoded next: if it is large, all join, so that others need
 * not wait for it.  A queue's thread. */
void vx_rpc_crew_large(struct vx_rpc *rpc, size_t bytes);

#endif
