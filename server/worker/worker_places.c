/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "server/worker/worker_private.h"

#include <string.h>

static struct vx_worker_batch *batch_find(struct vx_worker *worker, u64 serial)
{
    for (i32 i = 0; i < VX_ENGINE_BATCHES_MAX; i++)
        if (worker->batches[i].head.serial == serial) return &worker->batches[i];
    return NULL;
}

void vx_worker_say_sizes(struct vx_worker *worker)
{
    struct vx_asked asked;
    while (vx_engine_asked(worker->engine, &asked)) {
        struct vx_message_sizes *out = &worker->out.sizes;
        out->head = VX_CONTAINER(asked.batch, struct vx_worker_batch, batch)->head;
        out->head.kind = VX_MESSAGE_SIZES;
        out->items_count = asked.count;
        for (i32 i = 0; i < asked.count; i++) {
            out->items[i].item = asked.items[i];
            memcpy(out->items[i].rows, asked.batch->items[asked.items[i]].rows,
                   sizeof out->items[i].rows);
        }
        vx_worker_say(worker, &out->head, vx_message_sizes_bytes(out->items_count));
    }
}

/* The addresses of the outputs for which an item asked.  If a region is gone, the item's
 * status says so; it did run. */
static void item_place(struct vx_worker *worker, struct vx_worker_batch *batch,
                       const struct vx_places_item *places)
{
    struct vx_item *item = &batch->items[places->item];
    struct vx_worker_uses *uses = &batch->uses[places->item];
    const struct vx_signature *signature =
        vx_model_signature(worker->models[batch->head.instance]);
    bool refused = uses->refused;
    for (i32 o = 0; o < signature->outputs_count; o++) {
        if (!(item->asks >> o & 1)) continue;
        const struct vx_output *output = &signature->outputs[o];
        size_t element = vx_dtype_bytes(output->dtype);
        const struct vx_worker_tensor out = {
            item->rows[o] * output->channels * (i64)element, element, VX_ITEM_OUTPUT(o)};
        item->outputs[o] = vx_worker_at(worker, &places->outputs[o], &out, item, uses);
    }
    uses->refused = refused;
}

static void item_refuse(struct vx_item *item)
{
    item->status = vx_status_of_code(VX_CODE_CANCELLED);
    vx_why_set(&item->why, "its outputs have no places");
}

/* A batch may have ended meanwhile only because its items were refused here. */
void vx_worker_on_places(struct vx_worker *worker,
                         const struct vx_message_places *message)
{
    struct vx_worker_batch *batch = batch_find(worker, message->head.serial);
    if (!batch) return;
    for (i32 i = 0; i < message->items_count; i++) {
        const struct vx_places_item *places = &message->items[i];
        VX_ASSERT(places->item < batch->batch.items_count);
        struct vx_item *item = &batch->items[places->item];
        if (item->asking != VX_ASKING_TOLD) continue;
        if (places->refused)
            item_refuse(item);
        else
            item_place(worker, batch, places);
        vx_engine_place(worker->engine, &batch->batch, places->item);
    }
}

void vx_worker_refuse_places(struct vx_worker *worker)
{
    for (i32 b = 0; b < VX_ENGINE_BATCHES_MAX; b++) {
        struct vx_worker_batch *batch = &worker->batches[b];
        if (!batch->head.serial || batch->held) continue;
        for (i32 i = 0; i < batch->batch.items_count; i++) {
            if (batch->items[i].asking != VX_ASKING_TOLD) continue;
            item_refuse(&batch->items[i]);
            vx_engine_place(worker->engine, &batch->batch, i);
        }
    }
}
