/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <stdio.h>

/* A message from this size on is decoded by a reader: it takes 10 ms and more, on a busy machine a
 * second, in which small requests of the same queue would wait.  Smaller ones are decoded faster
 * than two threads tell each other. */
#define READER_BYTES (32 << 20)

struct vx_rpc_reader {
    struct vx_rpc_aide aide;
    struct vx_rpc_desk desk;
};

vx_status vx_rpc_desk_open(struct vx_rpc_desk *desk, size_t spans_max)
{
    desk->spans = vx_alloc(spans_max * sizeof *desk->spans);
    desk->scratch_block = vx_alloc(VX_INFER_SCRATCH_BYTES);
    VX_ENSURE(desk->spans && desk->scratch_block, RESOURCE_EXHAUSTED,
              "no memory to decode requests in");
    vx_arena_init(&desk->scratch, desk->scratch_block, VX_INFER_SCRATCH_BYTES);
    return VX_OK;
}

void vx_rpc_desk_close(struct vx_rpc_desk *desk)
{
    vx_free(desk->spans);
    vx_free(desk->scratch_block);
}

/* The call to gRPC that a record belongs to. */
static struct vx_rpc_record *record_of_call(struct vx_rpc_record *record)
{
    return record->parent ? record->parent : record;
}

/* A batch of nothing is done at once: its tag comes to the call's queue. */
static void reader_take(void *context, struct vx_rpc_record *record)
{
    struct vx_rpc_reader *reader = context;
    struct vx_why why = {{0}};
    record->read_status = vx_rpc_infer_read(record, &reader->desk, &why);
    snprintf(record->end_text, sizeof record->end_text, "%s", why.text);
    vx_rpc_batch_start(record_of_call(record), NULL, 0, &record->read_back);
}

vx_status vx_rpc_readers_open(struct vx_rpc *rpc)
{
    const i32 threads = rpc->options.threads;
    rpc->readers = vx_alloc_zero((size_t)threads * sizeof *rpc->readers);
    VX_ENSURE(rpc->readers, RESOURCE_EXHAUSTED, "no memory for the readers");
    for (i32 i = 0; i < threads; i++)
        vx_rpc_aide_init(&rpc->readers[i].aide, reader_take, &rpc->readers[i]);
    for (i32 i = 0; i < threads; i++)
        VX_TRY(vx_rpc_desk_open(&rpc->readers[i].desk, rpc->spans_max));
    return VX_OK;
}

vx_status vx_rpc_readers_start(struct vx_rpc *rpc)
{
    for (i32 i = 0; i < rpc->options.threads; i++)
        VX_TRY(vx_rpc_aide_start(&rpc->readers[i].aide));
    return VX_OK;
}

void vx_rpc_readers_close(struct vx_rpc *rpc)
{
    for (i32 i = 0; rpc->readers && i < rpc->options.threads; i++) {
        vx_rpc_aide_close(&rpc->readers[i].aide);
        vx_rpc_desk_close(&rpc->readers[i].desk);
    }
    vx_free(rpc->readers);
    rpc->readers = NULL;
}

bool vx_rpc_reader_wanted(const struct vx_rpc_record *record)
{
    const size_t set = record->rpc->options.reader_bytes;
    return record->payload &&
           grpc_byte_buffer_length(record->payload) >= (set ? set : READER_BYTES);
}

void vx_rpc_reader_give(struct vx_rpc_record *record, void (*on)(void *record, bool ok))
{
    record->read_back = (struct vx_rpc_tag){on, record};
    vx_rpc_aide_give(&record->rpc->readers[record->queue].aide, record);
}

vx_status vx_rpc_reader_outcome(struct vx_rpc_record *record, struct vx_why *why)
{
    *why = (struct vx_why){{0}};
    snprintf(why->text, sizeof why->text, "%s", record->end_text);
    vx_rpc_record_unref(record_of_call(record)); /* of the batch; another one is there */
    return record->read_status;
}
