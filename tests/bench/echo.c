/* echo - the lower bound for the daemon's times: gRPC C core and nothing else.
 *
 *   bench_echo serve --port 0                  prints "port N", serves until it is killed
 *   bench_echo load --port N --bytes-in 8000 --bytes-out 3200 --requests 4000
 * --concurrency 1
 *
 * The server does what any server must: it receives the message, walks its slices, copies
 * them once into a buffer that has been touched before, and answers with bytes that are
 * not copied. The client is the voxel library's own transport and load loop, so that the
 * two measurements differ in the server only.  The first 8 bytes of a request say how
 * long the answer shall be.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "clients/c/memory.h"
#include "clients/c/transport.h"
#include "clients/cli/load.h"
#include "clients/cli/options.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>

#define METHOD "/voxel.Echo/Echo"
/* Calls that the server is ready to accept at the same time. */
#define CALLS            64
#define ANSWER_BYTES_MAX ((size_t)1 << 30)

/* Received bodies are many slices of 64 KiB: without this glibc returns their pages to
 * the kernel after each request and faults them in again. */
static void tune_malloc(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
}

/* The server. */

enum echo_step { STEP_WAIT, STEP_RECEIVE, STEP_ANSWER };

struct echo_server {
    grpc_server *server;
    grpc_completion_queue *queue;
    void *method;
    uint8_t *answer; /* the bytes of every answer */
    size_t answer_bytes;
};

struct echo_call {
    struct echo_server *echo;
    enum echo_step step;
    grpc_call *call;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_byte_buffer *message;
    int cancelled;
    uint8_t *slot; /* where the body is copied; grows, then is reused */
    size_t slot_bytes;
};

static bool echo_wait(struct echo_call *call)
{
    call->step = STEP_WAIT;
    call->message = NULL;
    grpc_metadata_array_init(&call->metadata);
    return grpc_server_request_registered_call(call->echo->server, call->echo->method,
                                               &call->call, &call->deadline,
                                               &call->metadata, NULL, call->echo->queue,
                                               call->echo->queue, call) == GRPC_CALL_OK;
}

/* Memory of `bytes` at least, every page of it written once. */
static bool grow_touched(uint8_t **memory, size_t *have, size_t bytes)
{
    if (bytes <= *have) return true;
    voxel_memory_give(*memory);
    *memory = voxel_memory_take_bytes(bytes);
    *have = *memory ? bytes : 0;
    if (*memory) memset(*memory, 1, bytes);
    return *memory;
}

/* Makes the one copy.  Returns how long the answer shall be. */
static size_t echo_copy(struct echo_call *call)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;
    uint64_t wanted = 0;
    size_t used = 0;
    if (!call->message) return 0;
    if (!grow_touched(&call->slot, &call->slot_bytes,
                      grpc_byte_buffer_length(call->message)))
        return 0;
    if (!grpc_byte_buffer_reader_init(&reader, call->message)) return 0;
    while (grpc_byte_buffer_reader_peek(&reader, &slice)) {
        memcpy(call->slot + used, GRPC_SLICE_START_PTR(*slice),
               GRPC_SLICE_LENGTH(*slice));
        used += GRPC_SLICE_LENGTH(*slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(call->message);
    call->message = NULL;
    if (used >= sizeof wanted) memcpy(&wanted, call->slot, sizeof wanted);
    return wanted <= ANSWER_BYTES_MAX ? (size_t)wanted : 0;
}

static void on_slice_dropped(void *context)
{
    (void)context; /* the answer's bytes live as long as the server */
}

static bool echo_answer(struct echo_call *call)
{
    size_t bytes = echo_copy(call);
    struct echo_server *echo = call->echo;
    /* Growing while an older answer is still being sent would pull its bytes away. */
    if (bytes > echo->answer_bytes) bytes = echo->answer_bytes;
    grpc_slice slice =
        grpc_slice_new_with_user_data(echo->answer, bytes, on_slice_dropped, NULL);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
         .data.send_status_from_server = {.status = GRPC_STATUS_OK}},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
         .data.recv_close_on_server = {.cancelled = &call->cancelled}},
    };
    call->step = STEP_ANSWER;
    grpc_call_error refused = grpc_call_start_batch(call->call, ops, 4, call, NULL);
    grpc_byte_buffer_destroy(message);
    return refused == GRPC_CALL_OK;
}

static bool echo_step(struct echo_call *call)
{
    if (call->step == STEP_WAIT) {
        grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE,
                           .data.recv_message = {.recv_message = &call->message}};
        call->step = STEP_RECEIVE;
        return grpc_call_start_batch(call->call, &receive, 1, call, NULL) == GRPC_CALL_OK;
    }
    if (call->step == STEP_RECEIVE) return echo_answer(call);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_unref(call->call);
    return echo_wait(call);
}

static bool echo_open(struct echo_server *echo, int64_t port, int *bound)
{
    grpc_arg unlimited = {.type = GRPC_ARG_INTEGER,
                          .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                          .value.integer = INT32_MAX};
    grpc_channel_args args = {1, &unlimited};
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", (int)port);
    echo->server = grpc_server_create(&args, NULL);
    echo->queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(echo->server, echo->queue, NULL);
    echo->method =
        grpc_server_register_method(echo->server, METHOD, NULL, GRPC_SRM_PAYLOAD_NONE, 0);
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    *bound = grpc_server_add_http2_port(echo->server, address, plain);
    grpc_server_credentials_release(plain);
    if (*bound == 0) return false;
    grpc_server_start(echo->server);
    return true;
}

static int command_serve(int argc, char **argv)
{
    int64_t port = 0;
    int64_t answer = 64 << 20;
    const struct option options[] = {
        {"port", 'p', "N", OPTION_INT, &port, {0, 65535}, "where to listen; 0 = any"},
        {"bytes-out-max", 0, "N", OPTION_INT, &answer, {0, 1 << 30}, "longest answer"},
    };
    const struct command command = {.name = "serve",
                                    .synopsis = "[--port N]",
                                    .about = "A bare gRPC C core echo server.",
                                    .options = options,
                                    .options_count = 2};
    int code;
    if (!options_parse(&command, argc, argv, &code)) return code;
    static struct echo_server echo;
    static struct echo_call calls[CALLS];
    int bound;
    tune_malloc();
    grpc_init();
    if (!grow_touched(&echo.answer, &echo.answer_bytes, (size_t)answer) ||
        !echo_open(&echo, port, &bound)) {
        fprintf(stderr, "bench_echo: cannot listen on port %d\n", (int)port);
        return CLI_REFUSED;
    }
    for (int i = 0; i < CALLS; i++) {
        calls[i].echo = &echo;
        if (!echo_wait(&calls[i])) return CLI_REFUSED;
    }
    printf("port %d\n", bound);
    fflush(stdout);
    for (;;) {
        gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
        grpc_event event = grpc_completion_queue_next(echo.queue, never, NULL);
        if (event.type != GRPC_OP_COMPLETE || !echo_step(event.tag)) return CLI_REFUSED;
    }
}

/* The client. */

struct echo_load {
    struct voxel_client *client;
    struct voxel_span body;
    size_t bytes_out;
};

/* The transport's call is the first field: from it the callback finds the others. */
struct echo_request {
    struct voxel_call call;
    struct load_ticket *ticket;
    size_t bytes_out;
};

static void on_echo_end(struct voxel_call *call)
{
    struct echo_request *request = (struct echo_request *)call;
    struct voxel_error error = call->error;
    struct voxel_spans spans;
    if (!error.code && voxel_call_spans(call, &spans)) {
        struct voxel_walk walk = voxel_walk_make(&spans);
        uint8_t *copy = voxel_memory_take_bytes(walk.left);
        if (walk.left != request->bytes_out || !copy) {
            error.code = VOXEL_INTERNAL;
            snprintf(error.text, sizeof error.text,
                     "the answer has %zu bytes, expected %zu", walk.left,
                     request->bytes_out);
        } else {
            voxel_walk_copy(&walk, copy, walk.left);
        }
        voxel_memory_give(copy);
    }
    struct load_ticket *ticket = request->ticket;
    voxel_call_fini(call);
    voxel_memory_give(request);
    load_finish(ticket, &error);
}

static enum voxel_code submit(void *context, struct load_ticket *ticket,
                              struct voxel_error *error)
{
    struct echo_load *load = context;
    struct echo_request *request = voxel_memory_take(1, sizeof *request);
    if (!request) return VOXEL_RESOURCE_EXHAUSTED;
    request->call.method = METHOD;
    request->call.pieces = &load->body;
    request->call.pieces_count = 1;
    request->call.on_end = on_echo_end;
    request->ticket = ticket;
    request->bytes_out = load->bytes_out;
    enum voxel_code code = voxel_call_start(load->client, &request->call, error);
    if (code) {
        voxel_call_fini(&request->call);
        voxel_memory_give(request);
    }
    return code;
}

static int run_load(struct echo_load *load, const struct load_plan *plan, bool json)
{
    struct load_result result;
    struct voxel_error error;
    const struct load_target target = {load->client, load, NULL, submit};
    if (load_run(plan, &target, &result, &error)) {
        fprintf(stderr, "bench_echo: %s: %s\n", voxel_code_name(error.code), error.text);
        return CLI_REFUSED;
    }
    double per_s = (double)result.answered / result.seconds;
    double in = per_s * (double)load->body.bytes / 1e9;
    double out = per_s * (double)load->bytes_out / 1e9;
    if (json) {
        printf("{\"bytes_in\":%zu,\"bytes_out\":%zu,\"concurrency\":%" PRId64
               ",\"gb_s_in\":%.4f,\"gb_s_out\":%.4f,",
               load->body.bytes, load->bytes_out, plan->concurrency, in, out);
        load_print_json(&result, stdout);
        printf("}\n");
    } else {
        load_print(&result, stdout);
        printf("%.3f GB/s in, %.3f GB/s out\n", in, out);
    }
    int code = load_errors(&result) ? CLI_REFUSED : CLI_DONE;
    load_result_fini(&result);
    return code;
}

static int command_load(int argc, char **argv)
{
    int64_t port = 0, in = 8000, out = 3200, requests = 1000, concurrency = 1;
    bool json = false;
    const struct option options[] = {
        {"port", 'p', "N", OPTION_INT, &port, {1, 65535}, "the server's (needed)"},
        {"bytes-in", 0, "N", OPTION_INT, &in, {8, 1 << 30}, "of a request"},
        {"bytes-out", 0, "N", OPTION_INT, &out, {0, 1 << 30}, "of an answer"},
        {"requests", 0, "N", OPTION_INT, &requests, {1, 1e9}, "how many"},
        {"concurrency",
         'c',
         "N",
         OPTION_INT,
         &concurrency,
         {1, 1024},
         "under way at once"},
        {"json", 0, NULL, OPTION_FLAG, &json, {0, 0}, "one line of JSON"},
    };
    const struct command command = {.name = "load",
                                    .synopsis = "--port N [options]",
                                    .about = "Measures a bench_echo server.",
                                    .options = options,
                                    .options_count = sizeof options / sizeof *options};
    int code;
    if (!options_parse(&command, argc, argv, &code)) return code;
    char address[32];
    struct voxel_error error;
    struct echo_load load = {.bytes_out = (size_t)out};
    snprintf(address, sizeof address, "127.0.0.1:%d", (int)port);
    tune_malloc();
    uint8_t *body = NULL;
    size_t bytes = 0;
    if (!grow_touched(&body, &bytes, (size_t)in)) return CLI_REFUSED;
    uint64_t wanted = (uint64_t)out;
    memcpy(body, &wanted, sizeof wanted);
    load.body = (struct voxel_span){body, bytes};
    if (voxel_client_open(address, NULL, &load.client, &error)) {
        fprintf(stderr, "bench_echo: %s\n", error.text);
        return CLI_USAGE;
    }
    const struct load_plan plan = {
        .concurrency = concurrency, .requests = requests, .warmup = 20};
    code = run_load(&load, &plan, json);
    voxel_client_close(load.client);
    voxel_memory_give(body);
    return code;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "serve") == 0)
        return command_serve(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "load") == 0)
        return command_load(argc - 1, argv + 1);
    fprintf(stderr, "usage: bench_echo serve|load [options]; --help has them\n");
    return CLI_USAGE;
}
