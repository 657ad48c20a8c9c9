/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/load.h"

#include <stdio.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>

/* The longest of the short deadlines: about what a small request takes. */
#define EXPIRES_US 2000

bool load_call_start(struct load_call *call, int64_t deadline_us, bool wait_for_ready)
{
    const struct load_drive *drive = call->thread->drive;
    const struct load_channel *channel = &drive->channels[call->channel];
    gpr_timespec deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                         gpr_time_from_micros(deadline_us, GPR_TIMESPAN));
    /* gRPC empties the list of slices that it sends: the list is made anew, the bytes are not
     * copied. */
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(
        (grpc_slice *)(uintptr_t)call->body->slices, call->body->slices_count);
    call->rpc = grpc_channel_create_registered_call(
        channel->channel, NULL, GRPC_PROPAGATE_DEFAULTS, call->thread->queue,
        channel->method, deadline, NULL);
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    call->details = grpc_empty_slice();
    call->reply = NULL;
    uint32_t wait = GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                    GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET;
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA, .flags = wait_for_ready ? wait : 0},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &call->initial},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->reply},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &call->trailing,
                                        .status = &call->status,
                                        .status_details = &call->details}},
    };
    grpc_call *rpc = call->rpc; /* read before another thread may have the call */
    LOAD_TAG_GIVE(call);
    grpc_call_error refused = grpc_call_start_batch(rpc, ops, 6, call, NULL);
    grpc_byte_buffer_destroy(message);
    return refused == GRPC_CALL_OK;
}

/* Sends the request with its coords_ref instead of coords, when it has one. */
static void call_choose_body(struct load_call *call, struct load_stats *stats)
{
    const struct load_body *by_ref = NULL;
    if (call->thread->drive->options->refs) {
        by_ref = atomic_load_explicit(&call->request->by_ref, memory_order_acquire);
        if (by_ref)
            stats->refs_used++;
        else
            stats->refs_none++;
    }
    call->by_ref = by_ref;
    call->body = by_ref ? by_ref : &call->request->full;
}

static void call_draw(struct load_call *call, struct voxels_random *random,
                      struct load_stats *stats)
{
    struct load_work *work = call->thread->drive->work;
    double part = (double)(voxels_next(random) >> 11) / 9007199254740992.0;
    call->bad = LOAD_GOOD;
    call->resent = false;
    call->by_ref = false;
    if (part < work->options->bad)
        call->bad = (enum load_bad)(voxels_next(random) % LOAD_BADS);
    call->request = load_work_pick(work, random);
    if (call->bad == BAD_EMPTY) call->request = &work->empty;
    if (call->bad == LOAD_GOOD) {
        call_choose_body(call, stats);
    } else if (call->bad <= BAD_VANISHED || call->bad == BAD_EMPTY) {
        call->body = &call->request->full;
    } else {
        call->request = NULL;
        call->body = &work->bad[call->bad];
    }
}

/* Cancels some calls at once, some when another call of this thread ends. */
static void call_cancel(struct load_call *call, struct voxels_random *random)
{
    if (voxels_next(random) % 2) {
        grpc_call_cancel(call->rpc, NULL);
        return;
    }
    if (call->thread->to_cancel) grpc_call_cancel(call->thread->to_cancel->rpc, NULL);
    call->thread->to_cancel = call;
}

void load_call_next(struct load_call *call, struct voxels_random *random,
                    struct load_stats *stats)
{
    struct load_thread *thread = call->thread;
    const struct load_options *options = thread->drive->options;
    int64_t deadline_us = options->deadline_ms * 1000;
    call_draw(call, random, stats);
    while (call->bad == BAD_VANISHED) {
        sem_post(&thread->drive->to_vanish);
        call_draw(call, random, stats);
    }
    if (call->bad == BAD_EXPIRED)
        deadline_us = voxels_next(random) % 2 ? 1 : voxels_between(random, 1, EXPIRES_US);
    atomic_fetch_add_explicit(&thread->under_way, 1, memory_order_relaxed);
    /* The thread that ends calls must not see this one between its start and its entry in a
     * list. */
    bool locked = call->bad == BAD_CANCELLED;
    if (locked) pthread_mutex_lock(&thread->lock);
    bool started = load_call_start(call, deadline_us, false);
    if (started && locked) call_cancel(call, random);
    if (locked) pthread_mutex_unlock(&thread->lock);
    if (!started) {
        fprintf(stderr, "bench_load: gRPC refused a call\n");
        __builtin_trap();
    }
}

static void note_failure(struct load_call *call, struct load_stats *stats,
                         const char *what)
{
    if (stats->first_failure[0]) return;
    int bytes = (int)GRPC_SLICE_LENGTH(call->details);
    const char *bad = call->bad == LOAD_GOOD ? "a good" : load_bad_names[call->bad];
    snprintf(stats->first_failure, sizeof stats->first_failure,
             "%s: %s request, status %s: %.*s", what, bad,
             voxel_code_name((enum voxel_code)call->status), bytes < 160 ? bytes : 160,
             (const char *)GRPC_SLICE_START_PTR(call->details));
    for (char *c = stats->first_failure; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = ' ';
}

/* An answer with status OK. The first answer to a request, which runs alone, is the one that later
 * answers must equal. */
static bool answer_check(struct load_call *call, struct load_answer *answer)
{
    struct load_work *work = call->thread->drive->work;
    bool is_infer = work->requests[0].voxels > 0;
    const struct load_request *request = call->request;
    if (!request || !call->reply ||
        !load_answer_read(call->reply, is_infer, &call->thread->spans, answer))
        return false;
    if (call->by_itself) {
        struct load_request *own = (struct load_request *)(uintptr_t)request;
        own->hash = answer->hash;
        own->answer_bytes = answer->bytes;
    }
    if (work->options->refs && !call->by_ref && request != &work->empty)
        load_work_learn(work, request, answer->ref);
    return answer->hash == request->hash;
}

static void count_good(struct load_call *call, struct load_stats *stats,
                       const struct load_answer *answer)
{
    int64_t now = load_clock_ns();
    struct load_drive *drive = call->thread->drive;
    if (now < drive->count_from_ns) return;
    if (atomic_exchange(&drive->counted, true) && now > drive->count_to_ns) return;
    load_stats_time(stats, now - call->intended_ns);
    stats->answered++;
    stats->voxels += call->request->voxels;
    stats->bytes_in += (int64_t)call->body->bytes;
    stats->bytes_out += (int64_t)answer->bytes;
    stats->last_ns = now;
}

static void call_check(struct load_call *call)
{
    struct load_stats *stats = &call->thread->stats;
    struct load_drive *drive = call->thread->drive;
    uint32_t code = (uint32_t)call->status < LOAD_CODES ? (uint32_t)call->status : 2;
    uint32_t right = drive->allowed;
    struct load_answer answer = {0};
    right |= call->bad == LOAD_GOOD ? 1u << VOXEL_OK : load_bad_codes[call->bad];
    if (call->bad == LOAD_GOOD)
        stats->codes[code]++;
    else
        stats->bads[call->bad][code]++;
    if (!(right >> code & 1)) {
        stats->unexpected++;
        note_failure(call, stats, "not what is right");
    } else if (code == VOXEL_OK) {
        if (!answer_check(call, &answer)) {
            stats->wrong++;
            note_failure(call, stats,
                         call->reply ? "another answer than alone" : "no answer");
        } else if (call->bad == LOAD_GOOD) {
            count_good(call, stats, &answer);
        }
    }
}

/* A call that has ended is not cancelled any more, and a call that was to be cancelled at this
 * moment is. */
static void call_forget(struct load_call *call)
{
    struct load_thread *thread = call->thread;
    if (thread->drive->options->bad <= 0) return;
    pthread_mutex_lock(&thread->lock);
    struct load_call *other = thread->to_cancel;
    if (other && other != call) grpc_call_cancel(other->rpc, NULL);
    thread->to_cancel = NULL;
    pthread_mutex_unlock(&thread->lock);
}

bool load_call_finish(struct load_call *call)
{
    struct load_thread *thread = call->thread;
    call_forget(call);
    bool again = call->by_ref && call->status == GRPC_STATUS_FAILED_PRECONDITION;
    if (!again) call_check(call);
    if (call->reply) grpc_byte_buffer_destroy(call->reply);
    grpc_slice_unref(call->details);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_call_unref(call->rpc);
    call->rpc = NULL;
    if (again) {
        thread->stats.refs_resent++;
        call->by_ref = false;
        call->body = &call->request->full;
        if (load_call_start(call, thread->drive->options->deadline_ms * 1000, false))
            return false;
        __builtin_trap();
    }
    atomic_fetch_sub_explicit(&thread->under_way, 1, memory_order_relaxed);
    return true;
}
