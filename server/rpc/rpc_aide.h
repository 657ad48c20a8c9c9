/* rpc_aide - a thread that takes over records, one after another, for work that would keep another
 * thread too long: decoding a large message, writing a large answer.
 *
 *   vx_rpc_aide_init(&aide, take, context);
 *   VX_TRY(vx_rpc_aide_start(&aide));
 *   vx_rpc_aide_give(&aide, record);        take(context, record) on its thread
 *   vx_rpc_aide_close(&aide);
 *
 * Owner    of a record the aide, from give on; close ends behind the last one.
 * Thread   give: any.  init, start, close: the one that opens and closes rpc.
 * Limits   none: records have their links in them (vx_rpc_record.outgoing).
 * Fails    start: RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_AIDE_H
#define VX_SERVER_RPC_AIDE_H

#include "engine/base/memory/mailbox.h"
#include "engine/base/status.h"

#include <pthread.h>

struct vx_rpc_record;

struct vx_rpc_aide {
    void (*take)(void *context, struct vx_rpc_record *record);
    void *context;
    struct vx_mailbox mail; /* `stop` is the last */
    struct vx_link stop;
    pthread_t thread;
    bool running;
};

void vx_rpc_aide_init(struct vx_rpc_aide *aide,
                      void (*take)(void *context, struct vx_rpc_record *record),
                      void *context);
VX_MUST_USE vx_status vx_rpc_aide_start(struct vx_rpc_aide *aide);
void vx_rpc_aide_give(struct vx_rpc_aide *aide, struct vx_rpc_record *record);
/* Also one that was never started. */
void vx_rpc_aide_close(struct vx_rpc_aide *aide);

#endif
