/* rpc_read - readers: threads that decode large messages, so that no queue's thread need.
 *
 * A message of 480 MB takes a second and more, in which every small request of the same queue
 * would wait.
 *
 *   if (vx_rpc_reader_wanted(record)) vx_rpc_reader_give(record, on_read);
 *   on_read: status = vx_rpc_reader_outcome(record, &why);      on the queue's thread
 *
 * Owner    rpc: as many readers as queues.
 * Thread   give: the queue's, which goes on with the record in `on` alone; nobody else does
 *          meanwhile, but for on_close, which only notes that the client has left.
 * Fails    open and start: RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_READ_H
#define VX_SERVER_RPC_READ_H

#include "engine/base/memory/arena.h"
#include "engine/base/status.h"

struct vx_rpc;
struct vx_rpc_record;
struct vx_span;

/* What decodes messages, one at a time. */
struct vx_rpc_desk {
    struct vx_span *spans;
    void *scratch_block;
    struct vx_arena scratch;
};
VX_MUST_USE vx_status vx_rpc_desk_open(struct vx_rpc_desk *desk, size_t spans_max);
void vx_rpc_desk_close(struct vx_rpc_desk *desk);
/* rpc_infer.c: decodes the payload into the call, takes what its tensors need, and drops the
 * payload. */
VX_MUST_USE vx_status vx_rpc_infer_read(struct vx_rpc_record *record,
                                        struct vx_rpc_desk *desk, struct vx_why *why);

VX_MUST_USE vx_status vx_rpc_readers_open(struct vx_rpc *rpc);
VX_MUST_USE vx_status vx_rpc_readers_start(struct vx_rpc *rpc);
/* Behind the last call. */
void vx_rpc_readers_close(struct vx_rpc *rpc);
/* Whether the record's message should be decoded by a reader. */
bool vx_rpc_reader_wanted(const struct vx_rpc_record *record);
/* Decodes it, and then calls `on` on the thread of the record's queue.  The caller keeps a reference
 * to the record, and to its parent, until then. */
void vx_rpc_reader_give(struct vx_rpc_record *record, void (*on)(void *record, bool ok));
/* In `on`: the outcome. */
VX_MUST_USE vx_status vx_rpc_reader_outcome(struct vx_rpc_record *record,
                                            struct vx_why *why);

#endif
