/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

/* With fewer free records, connections are looked for that keep some and read nothing. */
#define SCARCE (VX_RPC_REFUSALS_MAX / 2)

static vx_status pool_build_records(struct vx_rpc *rpc)
{
    i32 armed = 0;
    for (i32 i = 0; i <= VX_METHODS_COUNT; i++) armed += vx_rpc_armed(i);
    armed *= rpc->options.threads;
    i32 records = rpc->options.calls_max + VX_RPC_SMALL_RESERVED + armed +
                  VX_RPC_REFUSALS_MAX + 2 * rpc->options.streams_max;
    rpc->records = vx_alloc_zero((size_t)records * sizeof *rpc->records);
    VX_ENSURE(rpc->records, RESOURCE_EXHAUSTED, "no memory for the calls");
    rpc->records_count = records;
    for (i32 i = rpc->records_count - 1; i >= 0; i--) {
        struct vx_rpc_record *record = &rpc->records[i];
        record->rpc = rpc;
        record->next = rpc->free;
        rpc->free = record;
    }
    rpc->free_count = rpc->records_count;
    return VX_OK;
}

static vx_status pool_build_lends(struct vx_rpc *rpc)
{
    rpc->lends_count = rpc->options.calls_max * VX_REQUEST_OUTPUTS_MAX;
    rpc->lends = vx_alloc_zero((size_t)rpc->lends_count * sizeof *rpc->lends);
    VX_ENSURE(rpc->lends, RESOURCE_EXHAUSTED,
              "no memory for slots that are lent to gRPC");
    for (i32 i = rpc->lends_count - 1; i >= 0; i--) {
        rpc->lends[i] = (struct vx_rpc_lend){.rpc = rpc, .next = rpc->lends_free};
        rpc->lends_free = &rpc->lends[i];
    }
    return VX_OK;
}

vx_status vx_rpc_pool_open(struct vx_rpc *rpc)
{
    VX_TRY(pool_build_records(rpc));
    VX_TRY(pool_build_lends(rpc));
    rpc->lean_last = &rpc->lean_first;
    return VX_OK;
}

void vx_rpc_pool_close(struct vx_rpc *rpc)
{
    vx_free(rpc->lends);
    vx_free(rpc->records);
}

/* Under the lock: records were taken, or one came back. */
static struct vx_rpc_record *pool_take(struct vx_rpc *rpc)
{
    struct vx_rpc_record *record = rpc->free;
    rpc->free = record->next;
    if (rpc->free_count-- == SCARCE)
        vx_rpc_governor_scarce(vx_rpc_accept_governor(rpc->accept), true);
    return record;
}

static void pool_give(struct vx_rpc *rpc, struct vx_rpc_record *record)
{
    record->next = rpc->free;
    rpc->free = record;
    if (++rpc->free_count == SCARCE)
        vx_rpc_governor_scarce(vx_rpc_accept_governor(rpc->accept), false);
}

/* Under the lock: a record that is to be armed. */
static struct vx_rpc_record *pool_take_for(struct vx_rpc *rpc, i32 queue, i32 method)
{
    struct vx_rpc_record *record = pool_take(rpc);
    rpc->queues[queue].records++;
    atomic_fetch_add_explicit(&rpc->queues[queue].armed[method], 1, memory_order_relaxed);
    record->next = NULL;
    return record;
}

struct vx_rpc_record *vx_rpc_record_take(struct vx_rpc *rpc, i32 queue, i32 method)
{
    pthread_mutex_lock(&rpc->lock);
    struct vx_rpc_record *record = NULL;
    bool wanted = vx_rpc_queue_missing(&rpc->queues[queue], method) > 0;
    if (rpc->free && wanted) {
        record = pool_take_for(rpc, queue, method);
    } else if (wanted) {
        rpc->queues[queue].owed[method]++;
        rpc->owed_count++;
    }
    pthread_mutex_unlock(&rpc->lock);
    return record;
}

/* Finds a call whose arming was deferred.  They are unordered: each record that returns
 * serves any one of them. */
static bool pool_pay(struct vx_rpc *rpc, i32 *queue, i32 *method)
{
    if (!rpc->owed_count || rpc->arming_over) return false;
    for (*queue = 0; *queue < rpc->options.threads; ++*queue)
        for (*method = 0; *method <= VX_METHODS_COUNT; ++*method) {
            i32 *owed = &rpc->queues[*queue].owed[*method];
            if (!*owed) continue;
            --*owed;
            rpc->owed_count--;
            return true;
        }
    vx_panic(__FILE__, __LINE__, "owed_count is not the sum over the queues");
}

static void record_clear(struct vx_rpc_record *record)
{
    vx_rpc_message_drop(record);
    struct vx_rpc_outbox *outbox = &record->outbox;
    for (; outbox->count; outbox->count--) {
        grpc_byte_buffer_destroy(outbox->ring[outbox->first]);
        outbox->first = (outbox->first + 1) % VX_STREAM_SENDS_MAX;
    }
    if (record->answer) grpc_byte_buffer_destroy(record->answer);
    record->answer = NULL;
    /* gRPC's call owns the elements of the metadata: the array is destroyed first. */
    grpc_metadata_array_destroy(&record->metadata);
    if (record->call.method == VX_RPC_METHOD_UNKNOWN)
        grpc_call_details_destroy(&record->details);
    if (record->grpc) grpc_call_unref(record->grpc);
    record->grpc = NULL;
    record->call.magic = 0;
}

void vx_rpc_inputs_give(struct vx_rpc_record *record)
{
    const struct vx_rpc_options *options = &record->rpc->options;
    vx_call_tensors_give(options->slots, options->regions, &record->call);
}

void vx_rpc_record_ref(struct vx_rpc_record *record)
{
    i32 before = atomic_fetch_add_explicit(&record->references, 1, memory_order_relaxed);
    VX_ASSERT(before > 0);
}

bool vx_rpc_record_hold(struct vx_rpc_record *record)
{
    i32 held = atomic_load_explicit(&record->references, memory_order_relaxed);
    while (held > 0)
        if (atomic_compare_exchange_weak_explicit(&record->references, &held, held + 1,
                                                  memory_order_acq_rel,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* Under the lock.  A stream without a request in progress has a place for one whatever is in
 * flight.  One more it gets only while less than half of calls_max are. */
static bool spare_may(const struct vx_rpc_record *parent)
{
    const struct vx_rpc *rpc = parent->rpc;
    bool few = rpc->in_flight < rpc->options.calls_max / 2;
    return rpc->free && (!parent->stream.count || few);
}

/* The message is asked for when this is sure: a whole message that waited for it here was in
 * no sum, 16 MB on each of 60 streams. */
bool vx_rpc_spare_take(struct vx_rpc_record *parent)
{
    struct vx_rpc *rpc = parent->rpc;
    if (parent->waiting) return false;
    if (parent->stream.spare) return true;
    if (spare_may(parent)) {
        parent->stream.spare = pool_take(rpc);
        return true;
    }
    vx_rpc_record_ref(parent);
    parent->waiting = true;
    parent->next = NULL;
    *rpc->lean_last = parent;
    rpc->lean_last = &parent->next;
    return false;
}

/* Under the lock: it no longer waits. */
static void lean_remove(struct vx_rpc *rpc, struct vx_rpc_record **at)
{
    struct vx_rpc_record *parent = *at;
    *at = parent->next;
    if (rpc->lean_last == &parent->next) rpc->lean_last = at;
    parent->waiting = false;
}

bool vx_rpc_spare_forgo(struct vx_rpc_record *parent)
{
    struct vx_rpc *rpc = parent->rpc;
    pthread_mutex_lock(&rpc->lock);
    const bool waited = parent->waiting;
    struct vx_rpc_record **at = &rpc->lean_first;
    while (waited && *at != parent) at = &(*at)->next;
    if (waited) lean_remove(rpc, at);
    pthread_mutex_unlock(&rpc->lock);
    return waited;
}

struct vx_rpc_record *vx_rpc_child_make(struct vx_rpc_record *parent)
{
    struct vx_rpc *rpc = parent->rpc;
    struct vx_rpc_stream *stream = &parent->stream;
    pthread_mutex_lock(&rpc->lock);
    struct vx_rpc_record *child = stream->spare;
    VX_ASSERT(child);
    stream->spare = NULL;
    child->answered = false;
    child->parent = parent;
    child->descriptor = parent->descriptor; /* counted for the parent's connection */
    child->call.peer = parent->call.peer;
    /* Before it counts: who looks for a call that makes room reads this of all that do. */
    atomic_store_explicit(&child->wire, VX_RPC_IDLE, memory_order_relaxed);
    vx_rpc_call_count(child, true);
    vx_rpc_record_ref(parent);
    atomic_store_explicit(&child->references, 1, memory_order_relaxed);
    atomic_store_explicit(&child->owner, VX_RPC_RPC, memory_order_relaxed);
    child->next = NULL;
    *stream->last = child;
    stream->last = &child->next;
    stream->count++;
    pthread_mutex_unlock(&rpc->lock);
    return child;
}

/* Under the lock: gives a record to the stream that has waited longest among those that may
 * have one; NULL when there is none. */
static struct vx_rpc_record *spare_grant(struct vx_rpc *rpc)
{
    struct vx_rpc_record **at = &rpc->lean_first;
    while (*at && !spare_may(*at)) at = &(*at)->next;
    struct vx_rpc_record *parent = *at;
    if (!parent) return NULL;
    lean_remove(rpc, at);
    parent->stream.spare = pool_take(rpc);
    return parent;
}

/* All that may: a stream that is woken may have no message, and nothing else wakes the next
 * one.  Its reference keeps rpc until the next one is here. */
static void streams_wake(struct vx_rpc_record *lean)
{
    while (lean) {
        struct vx_rpc *rpc = lean->rpc;
        pthread_mutex_lock(&rpc->lock);
        struct vx_rpc_record *next = spare_grant(rpc);
        pthread_mutex_unlock(&rpc->lock);
        vx_rpc_stream_wake(lean);
        lean = next;
    }
}

void vx_rpc_record_unref(struct vx_rpc_record *record)
{
    i32 before = atomic_fetch_sub_explicit(&record->references, 1, memory_order_acq_rel);
    VX_ASSERT(before > 0);
    if (before > 1) return;
    struct vx_rpc *rpc = record->rpc;
    record_clear(record);
    struct vx_rpc_record *of = record->parent, *lean, *paid[2] = {NULL};
    atomic_store_explicit(&record->owner, VX_RPC_POOL, memory_order_relaxed);
    i32 queues[2], methods[2];
    pthread_mutex_lock(&rpc->lock);
    bool tell = record->counted && rpc->arming_over && rpc->options.on_ended;
    vx_rpc_await_end(record);
    vx_rpc_call_count(record, false);
    record->parent = NULL;
    vx_rpc_refused_count(record, false);
    if (record->arrived)
        vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_ARRIVED, -1);
    record->arrived = false;
    if (record->ended)
        vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_ENDED, -1);
    record->ended = false;
    vx_rpc_govern_give(vx_rpc_place_of(record), record->tensors_bytes);
    record->tensors_bytes = 0;
    vx_rpc_govern_answer_give(vx_rpc_place_of(record), record->answer_bytes);
    record->answer_bytes = 0;
    vx_rpc_stream_uncount(record);
    if (record->stream.spare) pool_give(rpc, record->stream.spare);
    record->stream = (struct vx_rpc_stream){0};
    pool_give(rpc, record);
    if (!of) rpc->queues[record->queue].records--;
    for (i32 i = 0; i < 2 && rpc->free && pool_pay(rpc, &queues[i], &methods[i]); i++)
        paid[i] = pool_take_for(rpc, queues[i], methods[i]);
    lean = spare_grant(rpc);
    /* Both under the lock: once vx_rpc_close gets the lock, it destroys the condition
     * variable, and the receiver of on_ended is destroyed after that. */
    pthread_cond_signal(&rpc->idle);
    if (tell) rpc->options.on_ended(rpc->options.context);
    pthread_mutex_unlock(&rpc->lock);
    for (i32 i = 0; i < 2 && paid[i]; i++)
        vx_rpc_record_arm(paid[i], queues[i], methods[i]);
    streams_wake(lean);
    if (of) vx_rpc_record_unref(of);
}

/* Runs inside gRPC, on any thread: it must be short and call no gRPC function. */
static void on_slice_dropped(void *context)
{
    struct vx_rpc_lend *lend = context;
    VX_RPC_TAG_TAKE(lend);
    struct vx_rpc *rpc = lend->rpc;
    const struct vx_slots *slots = rpc->options.slots;
    slots->give(slots->context, &lend->slot);
    pthread_mutex_lock(&rpc->lock);
    lend->next = rpc->lends_free;
    rpc->lends_free = lend;
    rpc->lends_out--;
    pthread_cond_signal(&rpc->idle);
    pthread_mutex_unlock(&rpc->lock);
}

bool vx_rpc_lend_slot(struct vx_rpc *rpc, struct vx_place slot, grpc_slice *slice)
{
    pthread_mutex_lock(&rpc->lock);
    struct vx_rpc_lend *lend = rpc->lends_free;
    if (lend) {
        rpc->lends_free = lend->next;
        rpc->lends_out++;
    }
    pthread_mutex_unlock(&rpc->lock);
    if (!lend) return false;
    lend->slot = slot;
    const struct vx_slots *slots = rpc->options.slots;
    u8 *memory = slots->memory(slots->context, &slot);
    VX_RPC_TAG_GIVE(lend);
    *slice = grpc_slice_new_with_user_data(memory, slot.bytes, on_slice_dropped, lend);
    return true;
}
