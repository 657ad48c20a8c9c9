/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/server/rpc/rpc_harness.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"
#include "tests/support/wait.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Slots of one size in reserved address space: memory is used only for those that are
 * taken. */
#define SLOTS_COUNT 384
#define SLOT_BYTES  ((u64)(32 << 20))

struct rpc_server {
    struct rpc_server_options options;
    struct vx_rpc *rpc;
    struct vx_mailbox arrivals, gone;
    struct vx_slots slots;
    u8 *memory;
    bool slot_out[SLOTS_COUNT];
    i32 slots_out, slots_ever;
    u64 lacked;
    pthread_mutex_t slots_lock;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool rung, opened, stop;
    i32 told;
    void (*command)(struct rpc_server *);
    void *command_argument;
    i32 port;
    vx_status status;
    struct vx_why why;

    /* Used on the loop only. */
    bool holding;
    struct rpc_seen seen;
    struct vx_call *held[RPC_HELD_MAX];
};

static bool slot_take(void *context, size_t bytes, struct vx_place *slot)
{
    struct rpc_server *server = context;
    *slot = (struct vx_place){.kind = VX_PLACE_ARENA};
    if (!bytes) return true; /* no slot */
    if (server->options.on_slot) server->options.on_slot(bytes);
    i32 found = -1;
    pthread_mutex_lock(&server->slots_lock);
    for (i32 i = 0; i < SLOTS_COUNT && found < 0 && bytes <= SLOT_BYTES; i++)
        if (!server->slot_out[i]) found = i;
    if (found >= 0) {
        server->slot_out[found] = true;
        server->slots_out++;
        server->slots_ever++;
    }
    pthread_mutex_unlock(&server->slots_lock);
    if (found < 0) return false;
    slot->offset = (u64)found * SLOT_BYTES;
    slot->bytes = bytes;
    return true;
}

static void slot_give(void *context, struct vx_place *slot)
{
    struct rpc_server *server = context;
    pthread_mutex_lock(&server->slots_lock);
    bool *out = &server->slot_out[slot->offset / SLOT_BYTES];
    VX_ASSERT(*out);
    *out = false;
    server->slots_out--;
    pthread_mutex_unlock(&server->slots_lock);
    slot->bytes = 0;
}

static u64 slots_lacked(void *context)
{
    struct rpc_server *server = context;
    pthread_mutex_lock(&server->slots_lock);
    u64 lacked = server->lacked;
    pthread_mutex_unlock(&server->slots_lock);
    return lacked;
}

static u8 *slot_memory(void *context, const struct vx_place *slot)
{
    return ((struct rpc_server *)context)->memory + slot->offset;
}

static void wakeup(void *context)
{
    struct rpc_server *server = context;
    pthread_mutex_lock(&server->lock);
    server->rung = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

static void on_ended(void *context)
{
    struct rpc_server *server = context;
    pthread_mutex_lock(&server->lock);
    server->told++;
    pthread_mutex_unlock(&server->lock);
}

static void echo_infer(struct rpc_server *server, struct vx_call *call)
{
    struct vx_reply reply = {.version = 1, .outputs_count = call->request.inputs_count};
    struct vx_place outputs[VX_REQUEST_OUTPUTS_MAX];
    memcpy(reply.model, call->request.model, sizeof reply.model);
    memcpy(reply.id, call->request.id, sizeof reply.id);
    for (i32 i = 0; i < reply.outputs_count; i++) {
        const struct vx_request_tensor *input = &call->request.inputs[i];
        struct vx_reply_tensor *output = &reply.outputs[i];
        memcpy(output->name, input->name, sizeof output->name);
        memcpy(output->shape, input->shape, sizeof output->shape);
        output->type = input->type;
        output->rank = input->rank;
        output->bytes = input->place.bytes;
        outputs[i] = input->place;
    }
    call->answered = true;
    vx_rpc_reply_infer(server->rpc, &call, &reply, outputs);
}

void rpc_server_echo(struct rpc_server *server, struct vx_call *call)
{
    switch (vx_method_get(call->method)->kind) {
    case VX_METHOD_INFER_STREAM:
    case VX_METHOD_UNARY_BIG: echo_infer(server, call); return;
    case VX_METHOD_UNARY:
        call->answered = true;
        vx_rpc_reply(server->rpc, &call, call->message.data, call->message.bytes);
        return;
    case VX_METHOD_SERVER_STREAM:
    case VX_METHOD_BIDI: break;
    }
    if (!call->message_end)
        VX_ASSERT(
            vx_rpc_send(server->rpc, call, call->message.data, call->message.bytes));
    if (!call->message_end && vx_method_get(call->method)->kind == VX_METHOD_BIDI) {
        vx_rpc_receive(server->rpc, call);
        return;
    }
    call->answered = true;
    vx_rpc_finish(server->rpc, &call);
}

static bool is_infer(const struct vx_call *call)
{
    enum vx_method_kind kind = vx_method_get(call->method)->kind;
    return kind == VX_METHOD_UNARY_BIG || kind == VX_METHOD_INFER_STREAM;
}

static void loop_on_call(struct rpc_server *server, struct vx_call *call)
{
    struct rpc_seen *seen = &server->seen;
    enum vx_method_kind kind = vx_method_get(call->method)->kind;
    if (kind == VX_METHOD_BIDI && !vx_rpc_take_message(server->rpc, call)) return;
    seen->arrivals++;
    seen->message_ends += call->message_end;
    seen->deadline_left_ns =
        call->deadline_ns == VX_NEVER ? VX_NEVER : call->deadline_ns - vx_clock_ns();
    memcpy(seen->traceparent, call->traceparent, sizeof seen->traceparent);
    if (is_infer(call)) {
        seen->infers++;
        if (server->holding) {
            VX_ASSERT(seen->held < RPC_HELD_MAX);
            server->held[seen->held++] = call;
            return;
        }
    }
    if (server->options.on_call)
        server->options.on_call(server, call);
    else
        rpc_server_echo(server, call);
}

static void loop_on_gone(struct rpc_server *server, struct vx_call *call)
{
    server->seen.gone++;
    VX_ASSERT(!call->is_gone); /* once for a call */
    call->is_gone = true;
    if (server->options.on_gone) {
        server->options.on_gone(server, call);
    } else if (!call->answered && !is_infer(call)) {
        struct vx_call *ended = call;
        call->answered = true;
        vx_rpc_finish(server->rpc, &ended);
    }
    vx_rpc_release_gone(server->rpc, call);
}

/* `gone` is taken before `arrivals` and processed after it: the arrival of a call in
 * `gone` is then always known. */
static void loop_take_mail(struct rpc_server *server)
{
    struct vx_link *gone = vx_mailbox_take_all(&server->gone), *next;
    for (struct vx_link *link = vx_mailbox_take_all(&server->arrivals); link;
         link = next) {
        next = link->next;
        loop_on_call(server, VX_CONTAINER(link, struct vx_call, arrival));
    }
    for (struct vx_link *link = gone; link; link = next) {
        next = link->next;
        loop_on_gone(server, VX_CONTAINER(link, struct vx_call, gone));
    }
}

static void loop_open(struct rpc_server *server)
{
    struct vx_rpc_options options = {
        .addresses = server->options.address ? server->options.address : "127.0.0.1:0",
        .connections_max =
            server->options.connections_max ? server->options.connections_max : 1024,
        .threads = server->options.threads ? server->options.threads : 2,
        .calls_max = server->options.calls_max ? server->options.calls_max : 64,
        .receive_bytes_max = server->options.receive_bytes_max
                                 ? server->options.receive_bytes_max
                                 : 48 << 20,
        .streams_max = server->options.streams_max ? server->options.streams_max : 16,
        .reader_bytes = server->options.reader_bytes,
        .message_bytes_max = server->options.message_bytes_max
                                 ? server->options.message_bytes_max
                                 : 64 << 20,
        .receive_ns_max = server->options.receive_ns_max,
        .send_ns_max = server->options.send_ns_max,
        .slots = &server->slots,
        .arena_bytes = server->options.arena_bytes,
        .arrivals = &server->arrivals,
        .gone = &server->gone,
        .on_ended = on_ended,
        .on_refused = server->options.on_refused,
        .on_disconnected = server->options.on_disconnected,
        .context = server,
    };
    server->status = vx_rpc_open(&options, &server->why, &server->rpc);
    if (!server->status.fault) server->status = vx_rpc_start(server->rpc, &server->why);
    if (!server->status.fault) server->port = vx_rpc_port(server->rpc);
}

static void loop_run(void *context)
{
    struct rpc_server *server = context;
    loop_open(server);
    pthread_mutex_lock(&server->lock);
    server->opened = true;
    pthread_cond_broadcast(&server->changed);
    while (!server->stop && !server->status.fault) {
        while (!server->rung && !server->command && !server->stop)
            pthread_cond_wait(&server->changed, &server->lock);
        server->rung = false;
        void (*command)(struct rpc_server *) = server->command;
        pthread_mutex_unlock(&server->lock);
        loop_take_mail(server);
        if (command) command(server);
        pthread_mutex_lock(&server->lock);
        if (!command) continue;
        server->command = NULL;
        pthread_cond_broadcast(&server->changed);
    }
    pthread_mutex_unlock(&server->lock);
    vx_rpc_close(&server->rpc);
}

struct rpc_server *rpc_server_open(const struct rpc_server_options *options)
{
    struct rpc_server *server = calloc(1, sizeof *server);
    ck_assert_ptr_nonnull(server);
    server->options = *options;
    server->memory = mmap(NULL, SLOTS_COUNT * SLOT_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(server->memory, MAP_FAILED);
    server->slots = (struct vx_slots){.take = slot_take,
                                      .give = slot_give,
                                      .memory = slot_memory,
                                      .context = server,
                                      .lacked = slots_lacked};
    pthread_mutex_init(&server->slots_lock, NULL);
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    vx_mailbox_init(&server->arrivals, wakeup, server);
    vx_mailbox_init(&server->gone, wakeup, server);
    ck_assert_ptr_null(
        vx_thread_open(&server->thread, VX_ROLE_LOOP, loop_run, server).fault);
    pthread_mutex_lock(&server->lock);
    while (!server->opened) pthread_cond_wait(&server->changed, &server->lock);
    pthread_mutex_unlock(&server->lock);
    ck_assert_msg(!server->status.fault, "%s",
                  vx_status_text(server->status, &server->why));
    grpc_init(); /* the client's own */
    return server;
}

void rpc_server_close(struct rpc_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->stop = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    pthread_join(server->thread, NULL);
    /* The client side of gRPC ends with the process: its threads may sleep for 10 s
     * more. */
    ck_assert_int_eq(server->slots_out, 0);
    vx_mailbox_fini(&server->arrivals); /* asserts that they are empty */
    vx_mailbox_fini(&server->gone);
    munmap(server->memory, SLOTS_COUNT * SLOT_BYTES);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    pthread_mutex_destroy(&server->slots_lock);
    free(server);
}

void rpc_server_target(struct rpc_server *server, char *target, size_t room)
{
    if (server->port)
        snprintf(target, room, "127.0.0.1:%d", server->port);
    else
        snprintf(target, room, "%s", server->options.address);
}

i32 rpc_server_port(struct rpc_server *server)
{
    return server->port;
}

struct vx_rpc *rpc_server_rpc(struct rpc_server *server)
{
    return server->rpc;
}

void rpc_server_do(struct rpc_server *server, void (*run)(struct rpc_server *))
{
    pthread_mutex_lock(&server->lock);
    while (server->command) pthread_cond_wait(&server->changed, &server->lock);
    server->command = run;
    pthread_cond_broadcast(&server->changed);
    while (server->command) pthread_cond_wait(&server->changed, &server->lock);
    pthread_mutex_unlock(&server->lock);
}

static void do_seen(struct rpc_server *server)
{
    *(struct rpc_seen *)server->command_argument = server->seen;
}

void rpc_server_seen(struct rpc_server *server, struct rpc_seen *seen)
{
    server->command_argument = seen;
    rpc_server_do(server, do_seen);
}

static void do_hold(struct rpc_server *server)
{
    server->holding = true;
}

void rpc_server_hold(struct rpc_server *server)
{
    rpc_server_do(server, do_hold);
}

static void do_release(struct rpc_server *server)
{
    server->holding = false;
    for (i32 i = 0; i < server->seen.held; i++) echo_infer(server, server->held[i]);
    server->seen.held = 0;
}

void rpc_server_release(struct rpc_server *server)
{
    rpc_server_do(server, do_release);
}

i32 rpc_server_told(struct rpc_server *server)
{
    pthread_mutex_lock(&server->lock);
    i32 told = server->told;
    pthread_mutex_unlock(&server->lock);
    return told;
}

void rpc_server_slot_give(struct rpc_server *server, struct vx_place *slot)
{
    if (slot->bytes) slot_give(server, slot);
}

i32 rpc_server_slots_ever(struct rpc_server *server)
{
    pthread_mutex_lock(&server->slots_lock);
    i32 slots_ever = server->slots_ever;
    pthread_mutex_unlock(&server->slots_lock);
    return slots_ever;
}

void rpc_server_lack(struct rpc_server *server)
{
    pthread_mutex_lock(&server->slots_lock);
    server->lacked++;
    pthread_mutex_unlock(&server->slots_lock);
}

i32 rpc_server_slots_out(struct rpc_server *server)
{
    pthread_mutex_lock(&server->slots_lock);
    i32 out = server->slots_out;
    pthread_mutex_unlock(&server->slots_lock);
    return out;
}

static bool is_idle(struct rpc_server *server, struct vx_rpc_counters *counters)
{
    vx_rpc_counters_get(server->rpc, counters);
    return !counters->in_flight && !counters->receiving && !counters->streams &&
           !rpc_server_slots_out(server);
}

void rpc_server_wait_idle(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    VX_WAIT_UNTIL_MSG(is_idle(server, &counters),
                      "still in flight %d, receiving %d, streams %d, slots %d",
                      counters.in_flight, counters.receiving, counters.streams,
                      rpc_server_slots_out(server));
}

void rpc_sleep_ms(i64 ms)
{
    /* sleep: as long as the caller asks, see rpc_harness.h */
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * VX_NS_PER_MS}, NULL);
}

/* Waits until the loop has seen `infers` inferences and `gone` departures. */
void rpc_wait_seen(struct rpc_server *server, i32 infers, i32 gone)
{
    struct rpc_seen seen;
    VX_WAIT_UNTIL_MSG(
        (rpc_server_seen(server, &seen), seen.infers >= infers && seen.gone >= gone),
        "seen %d of %d inferences, %d of %d departures", seen.infers, infers, seen.gone,
        gone);
    ck_assert_int_eq(seen.infers, infers);
    ck_assert_int_eq(seen.gone, gone);
}

void rpc_wait_in_flight(struct rpc_server *server, i32 in_flight)
{
    struct vx_rpc_counters counters;
    VX_WAIT_UNTIL_MSG((vx_rpc_counters_get(rpc_server_rpc(server), &counters),
                       counters.in_flight == in_flight),
                      "%d calls are in flight, expected %d", counters.in_flight,
                      in_flight);
}
