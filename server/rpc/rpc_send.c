/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"

/* A single answer up to this size is written by the loop: writing it takes less time than
 * handing it to another thread. */
#define DIRECT_BYTES_MAX (256 << 10)
/* Of several answers, only those up to this size: the next answers wait for each
 * write. */
#define DIRECT_BYTES_MAX_CROWD (8 << 10)

static void sender_take(void *context, struct vx_rpc_record *record)
{
    (void)context;
    grpc_byte_buffer *message = record->answer;
    record->answer = NULL;
    if (record->stream.started)
        vx_rpc_stream_write(record);
    else
        vx_rpc_end_start(record, message);
}

vx_status vx_rpc_senders_open(struct vx_rpc *rpc)
{
    const i32 threads = rpc->options.threads;
    rpc->senders = vx_alloc_zero((size_t)threads * sizeof *rpc->senders);
    VX_ENSURE(rpc->senders, RESOURCE_EXHAUSTED, "no memory for the senders");
    for (i32 i = 0; i < threads; i++)
        vx_rpc_aide_init(&rpc->senders[i], sender_take, NULL);
    return VX_OK;
}

vx_status vx_rpc_senders_start(struct vx_rpc *rpc)
{
    for (i32 i = 0; i < rpc->options.threads; i++)
        VX_TRY(vx_rpc_aide_start(&rpc->senders[i]));
    return VX_OK;
}

void vx_rpc_senders_close(struct vx_rpc *rpc)
{
    for (i32 i = 0; rpc->senders && i < rpc->options.threads; i++)
        vx_rpc_aide_close(&rpc->senders[i]);
    vx_free(rpc->senders);
    rpc->senders = NULL;
}

void vx_rpc_answers_coming(struct vx_rpc *rpc, i32 count)
{
    VX_ON(LOOP);
    atomic_store_explicit(&rpc->answers_coming, count, memory_order_relaxed);
}

bool vx_rpc_sender_wanted(const struct vx_rpc *rpc, size_t bytes)
{
    bool crowd = atomic_load_explicit(&rpc->answers_coming, memory_order_relaxed) > 1;
    return bytes > (crowd ? DIRECT_BYTES_MAX_CROWD : DIRECT_BYTES_MAX);
}

/* Always the same sender for a call's queue: answers of one queue do not overtake each
 * other. */
void vx_rpc_sender_give(struct vx_rpc_record *record, grpc_byte_buffer *message)
{
    record->answer = message;
    vx_rpc_aide_give(&record->rpc->senders[record->queue], record);
}
