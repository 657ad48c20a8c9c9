/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/transport.h"

#include "clients/c/client.h"
#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>

/* gRPC passes a call from the thread that starts it to the thread that ends it under its
 * own locks.  ThreadSanitizer cannot see these (gRPC is not built with it), so the macros
 * tell it. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define HANDED_OVER(call) __tsan_release(call)
#define TAKEN_OVER(call)  __tsan_acquire(call)
#else
#define HANDED_OVER(call) ((void)(call))
#define TAKEN_OVER(call)  ((void)(call))
#endif

/* The interval between checks of calls whose pieces gRPC still holds; a check also lets
 * gRPC do I/O. */
#define DRAIN_US 1000
/* A year: nobody waits longer, and its nanoseconds fit 64 bits. */
#define TIMEOUT_US_MAX (INT64_C(365) * 86400 * 1000000)
/* The longest sleep of a poll before it checks again whether anything is in flight. */
#define POLL_SLICE_US 100000

int64_t voxel_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static gpr_timespec time_from_now(int64_t us)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_micros(us, GPR_TIMESPAN));
}

/* Runs when gRPC drops one piece, on any thread of gRPC.  The call may be freed as soon
 * as the count is 0. */
static void on_piece_dropped(void *context)
{
    struct voxel_call *call = context;
    TAKEN_OVER(call);
    atomic_fetch_sub_explicit(&call->borrowed, 1, memory_order_acq_rel);
}

static grpc_byte_buffer *call_pack(struct voxel_call *call)
{
    grpc_slice few[8];
    grpc_slice *slices = few;
    if (call->pieces_count > 8)
        slices = voxel_memory_take(call->pieces_count, sizeof *slices);
    if (!slices) return NULL;
    atomic_store_explicit(&call->borrowed, call->pieces_count, memory_order_release);
    for (size_t i = 0; i < call->pieces_count; i++)
        slices[i] =
            grpc_slice_new_with_user_data((void *)(uintptr_t)call->pieces[i].data,
                                          call->pieces[i].bytes, on_piece_dropped, call);
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(slices, call->pieces_count);
    for (size_t i = 0; i < call->pieces_count; i++) grpc_slice_unref(slices[i]);
    if (slices != few) voxel_memory_give(slices);
    return buffer;
}

/* The headers that the call has, with copied values.  Returns how many. */
#define HEADERS_MAX 3
static size_t headers_make(const struct voxel_client *client,
                           const struct voxel_call *call,
                           grpc_metadata headers[HEADERS_MAX])
{
    const struct {
        const char *key, *value;
    } rows[HEADERS_MAX] = {{"x-voxel-geometry", call->geometry},
                           {"traceparent", call->traceparent},
                           {"authorization", client->authorization}};
    size_t count = 0;
    for (size_t i = 0; i < HEADERS_MAX; i++)
        if (rows[i].value && rows[i].value[0])
            headers[count++] =
                (grpc_metadata){.key = grpc_slice_from_static_string(rows[i].key),
                                .value = grpc_slice_from_copied_string(rows[i].value)};
    return count;
}

/* Starts a unary call as one batch, so that one event ends it. */
static enum voxel_code call_begin(struct voxel_client *client, struct voxel_call *call,
                                  grpc_completion_queue *queue)
{
    grpc_byte_buffer *message = call_pack(call);
    if (!message)
        return voxel_error_memory(&call->error, "a request", call->pieces_count);
    int64_t us = call->deadline_us ? call->deadline_us : client->options.deadline_us;
    gpr_timespec deadline = us ? time_from_now(us) : gpr_inf_future(GPR_CLOCK_MONOTONIC);
    grpc_slice method = grpc_slice_from_static_string(call->method);
    call->deadline_us = us;
    call->rpc = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                         queue, method, NULL, deadline, NULL);
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    call->details = grpc_empty_slice();
    uint32_t wait = GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                    GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET;
    grpc_metadata headers[HEADERS_MAX];
    size_t headers_count = headers_make(client, call, headers);
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA,
         .flags = client->options.wait_for_ready ? wait : 0,
         .data.send_initial_metadata = {headers_count, headers, {0}}},
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
    HANDED_OVER(call);
    grpc_call_error refused = grpc_call_start_batch(call->rpc, ops, 6, call, NULL);
    grpc_byte_buffer_destroy(message);
    for (size_t i = 0; i < headers_count; i++) grpc_slice_unref(headers[i].value);
    if (refused == GRPC_CALL_OK) return VOXEL_OK;
    voxel_error_set(&call->error, VOXEL_INTERNAL, "gRPC refused the call (%d)",
                    (int)refused);
    return VOXEL_INTERNAL;
}

/* True for the texts with which a stopping gRPC server cancels the calls that are on
 * their way to it.  This client did not cancel them: for the caller the server is
 * unavailable. */
static bool text_is_grpc(const char *text, size_t bytes)
{
    static const char reset[] = "Received RST_STREAM";
    return (bytes == 9 && memcmp(text, "CANCELLED", 9) == 0) ||
           (bytes >= sizeof reset - 1 && memcmp(text, reset, sizeof reset - 1) == 0);
}

static void call_read_status(struct voxel_call *call)
{
    size_t bytes = GRPC_SLICE_LENGTH(call->details);
    const char *text = (const char *)GRPC_SLICE_START_PTR(call->details);
    enum voxel_code code = (enum voxel_code)call->status;
    if (code == VOXEL_OK && !call->reply)
        voxel_error_set(&call->error, VOXEL_INTERNAL,
                        "the server returned OK but no answer");
    else if (code == VOXEL_OK)
        voxel_error_clear(&call->error);
    else if (code == VOXEL_DEADLINE_EXCEEDED && bytes == 17 &&
             memcmp(text, "Deadline Exceeded", 17) == 0)
        voxel_error_set(&call->error, code, "no answer within %.3f ms",
                        (double)call->deadline_us / 1e3);
    else if (code == VOXEL_CANCELLED && call->taken_back)
        voxel_error_set(&call->error, code,
                        "the call was cancelled, since its client was closed");
    else if (code == VOXEL_CANCELLED && text_is_grpc(text, bytes))
        voxel_error_set(&call->error, VOXEL_UNAVAILABLE,
                        "the server ended the call without an answer; it is probably "
                        "stopping");
    else
        voxel_error_set(&call->error, code, "%.*s", (int)(bytes < 4096 ? bytes : 4096),
                        text);
}

/* Reads the result after the batch has come back, and releases the gRPC call. */
static void call_finish(struct voxel_client *client, struct voxel_call *call)
{
    TAKEN_OVER(call);
    call->end_ns = voxel_clock_ns();
    call_read_status(call);
    grpc_slice_unref(call->details);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_call_unref(call->rpc);
    call->rpc = NULL;
    if (call->error.code) voxel_connect_go_on(client);
}

static bool call_is_drained(struct voxel_call *call)
{
    return atomic_load_explicit(&call->borrowed, memory_order_acquire) == 0;
}

void voxel_call_run(struct voxel_client *client, struct voxel_call *call)
{
    call->begin_ns = voxel_clock_ns();
    struct voxel_queue *queue = voxel_queue_take(client);
    if (!queue) {
        voxel_error_memory(&call->error, "a completion queue", sizeof *queue);
        return;
    }
    if (call_begin(client, call, queue->queue) == VOXEL_OK) {
        gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
        grpc_completion_queue_pluck(queue->queue, call, never, NULL);
        call_finish(client, call);
    } else if (call->rpc) {
        grpc_call_unref(call->rpc);
    }
    /* A wait for a tag that never comes lets gRPC work for that time. */
    while (!call_is_drained(call))
        grpc_completion_queue_pluck(queue->queue, queue, time_from_now(DRAIN_US), NULL);
    voxel_queue_give(client, queue);
}

static void list_add(struct voxel_call **list, struct voxel_call *call)
{
    call->previous = NULL;
    call->next = *list;
    if (*list) (*list)->previous = call;
    *list = call;
}

static void list_remove(struct voxel_call **list, struct voxel_call *call)
{
    if (call->previous) call->previous->next = call->next;
    if (call->next) call->next->previous = call->previous;
    if (*list == call) *list = call->next;
    call->next = call->previous = NULL;
}

enum voxel_code voxel_call_start(struct voxel_client *client, struct voxel_call *call,
                                 struct voxel_error *error)
{
    call->begin_ns = voxel_clock_ns();
    atomic_fetch_add(&client->in_flight, 1);
    pthread_mutex_lock(&client->lock);
    /* Under the lock, so that voxel_client_close either sees the call and cancels it, or
     * has set `closing` before. */
    enum voxel_code code = VOXEL_CANCELLED;
    if (client->closing)
        voxel_error_set(&call->error, code, "the client is closing");
    else
        code = call_begin(client, call, client->queue);
    if (code == VOXEL_OK) list_add(&client->active, call);
    pthread_mutex_unlock(&client->lock);
    if (code == VOXEL_OK) return VOXEL_OK;
    if (call->rpc) grpc_call_unref(call->rpc);
    call->rpc = NULL;
    while (!call_is_drained(call)) {
        struct timespec pause = {.tv_nsec = DRAIN_US * 1000};
        nanosleep(&pause, NULL);
    }
    voxel_client_count_end(client);
    return voxel_error_set(error, code, "%s", call->error.text);
}

/* Ends the calls whose last piece gRPC has dropped; returns how many. */
static int32_t run_drained(struct voxel_client *client)
{
    int32_t ran = 0;
    while (atomic_load_explicit(&client->draining_count, memory_order_acquire) > 0) {
        pthread_mutex_lock(&client->lock);
        struct voxel_call *call = client->draining;
        while (call && !call_is_drained(call)) call = call->next;
        if (call) {
            list_remove(&client->draining, call);
            atomic_fetch_sub(&client->draining_count, 1);
        }
        pthread_mutex_unlock(&client->lock);
        if (!call) break;
        call->on_end(call);
        voxel_client_count_end(client);
        ran++;
    }
    return ran;
}

/* Handles one event of the shared queue.  Returns 1 if it ended the call, 0 if the call
 * must drain first. */
static int32_t run_event(struct voxel_client *client, struct voxel_call *call)
{
    pthread_mutex_lock(&client->lock);
    list_remove(&client->active, call);
    pthread_mutex_unlock(&client->lock);
    call_finish(client, call);
    if (!call_is_drained(call)) {
        pthread_mutex_lock(&client->lock);
        list_add(&client->draining, call);
        atomic_fetch_add(&client->draining_count, 1);
        pthread_mutex_unlock(&client->lock);
        return 0;
    }
    call->on_end(call);
    voxel_client_count_end(client);
    return 1;
}

bool voxel_client_serve(struct voxel_client *client, int64_t timeout_us, int32_t *ran)
{
    int64_t wait = timeout_us;
    *ran = run_drained(client);
    if (*ran) wait = 0;
    if (atomic_load(&client->draining_count) > 0 && (wait < 0 || wait > DRAIN_US))
        wait = DRAIN_US;
    gpr_timespec until =
        wait < 0 ? gpr_inf_future(GPR_CLOCK_MONOTONIC) : time_from_now(wait);
    grpc_event event = grpc_completion_queue_next(client->queue, until, NULL);
    if (event.type == GRPC_OP_COMPLETE) *ran += run_event(client, event.tag);
    return event.type != GRPC_QUEUE_SHUTDOWN;
}

int32_t voxel_client_poll(struct voxel_client *client, int64_t timeout_us)
{
    if (client->options.threads > 0) return 0;
    if (timeout_us > TIMEOUT_US_MAX) timeout_us = TIMEOUT_US_MAX;
    int64_t end_ns = timeout_us < 0 ? INT64_MAX : voxel_clock_ns() + timeout_us * 1000;
    int32_t total = 0;
    while (atomic_load(&client->in_flight) > 0) {
        int64_t left_us =
            timeout_us < 0 ? POLL_SLICE_US : (end_ns - voxel_clock_ns()) / 1000;
        if (left_us > POLL_SLICE_US) left_us = POLL_SLICE_US;
        bool last = left_us <= 0 && timeout_us >= 0;
        int32_t ran;
        bool alive = voxel_client_serve(client, total || last ? 0 : left_us, &ran);
        if (!alive || (ran == 0 && (total || last))) return total + ran;
        total += ran;
    }
    return total;
}

bool voxel_call_spans(struct voxel_call *call, struct voxel_spans *spans)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;
    size_t count = 0;
    *spans = (struct voxel_spans){call->inside, 0};
    if (!call->reply || !grpc_byte_buffer_reader_init(&reader, call->reply)) return true;
    while (grpc_byte_buffer_reader_peek(&reader, &slice)) count++;
    grpc_byte_buffer_reader_destroy(&reader);
    struct voxel_span *list = call->inside;
    if (count > VOXEL_CALL_SPANS) {
        voxel_memory_give(call->outside);
        list = call->outside = voxel_memory_take(count, sizeof *list);
        if (!list) return false;
    }
    if (!grpc_byte_buffer_reader_init(&reader, call->reply)) return false;
    for (size_t i = 0; i < count && grpc_byte_buffer_reader_peek(&reader, &slice); i++)
        list[i] =
            (struct voxel_span){GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice)};
    grpc_byte_buffer_reader_destroy(&reader);
    *spans = (struct voxel_spans){list, count};
    return true;
}

void voxel_call_fini(struct voxel_call *call)
{
    if (call->reply) grpc_byte_buffer_destroy(call->reply);
    voxel_memory_give(call->outside);
    call->reply = NULL;
    call->outside = NULL;
}
