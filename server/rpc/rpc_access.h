/* rpc_access - asks whether a call may come in, before its message is read.
 *
 * Thread   the queue's.
 * Fails    refuses: never, a call that may not is ended with a status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_ACCESS_H
#define VX_SERVER_RPC_ACCESS_H

#include "server/rpc/rpc_private.h"

/* True: the call was refused, and its end is on the way. */
bool vx_rpc_access_refuses(struct vx_rpc_record *record);

/* A message has come and could not be decoded, for the reason `bad`: its bytes are paid for
 * all the same, and a stream's is a request.  Returns `bad`, or why not even that may be. */
vx_status vx_rpc_access_pay(struct vx_rpc_record *record, vx_status bad,
                            struct vx_why *why);
/* A stream's message has come, whose token may have other permissions by now: whether it may. The
 * ticket, and so what is asked of the token later, is that of now. Pays if it may not. */
vx_status vx_rpc_access_stays(struct vx_rpc_record *record, struct vx_why *why);

#endif
