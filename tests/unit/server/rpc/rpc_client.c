/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/rpc/rpc_harness.h"

#include "tests/support/wait.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/compression.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rpc_result_clear(struct rpc_result *result)
{
    gpr_free(result->bytes);
    *result = (struct rpc_result){0};
}

static grpc_channel *channel_open(const char *target, grpc_compression_algorithm packing)
{
    grpc_arg args[] = {
        {GRPC_ARG_INTEGER, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, {.integer = -1}},
        {GRPC_ARG_INTEGER,
         GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM,
         {.integer = packing}},
        {GRPC_ARG_INTEGER, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, {.integer = 1}},
    };
    grpc_channel_args channel_args = {VX_COUNT(args), args};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(target, plain, &channel_args);
    grpc_channel_credentials_release(plain);
    ck_assert_ptr_nonnull(channel);
    return channel;
}

grpc_channel *rpc_channel_open(struct rpc_server *server)
{
    char target[256];
    rpc_server_target(server, target, sizeof target);
    return channel_open(target, GRPC_COMPRESS_NONE);
}

grpc_channel *rpc_channel_to(const char *target)
{
    return channel_open(target, GRPC_COMPRESS_NONE);
}

grpc_channel *rpc_channel_open_gzip(struct rpc_server *server)
{
    char target[256];
    rpc_server_target(server, target, sizeof target);
    return channel_open(target, GRPC_COMPRESS_GZIP);
}

const char *rpc_traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

static bool client_batch(struct rpc_client *client, const grpc_op *ops, size_t ops_count)
{
    ck_assert_int_eq(grpc_call_start_batch(client->call, ops, ops_count, client, NULL),
                     0);
    gpr_timespec limit =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_seconds(VX_WAIT_SECONDS, GPR_TIMESPAN));
    grpc_event event = grpc_completion_queue_next(client->cq, limit, NULL);
    ck_assert_msg(event.type == GRPC_OP_COMPLETE,
                  "a step of the call did not end in %d s", VX_WAIT_SECONDS);
    return event.success;
}

static void client_open(struct rpc_client *client, grpc_channel *channel,
                        const char *path, i64 deadline_ms, bool strict)
{
    *client = (struct rpc_client){.cq = grpc_completion_queue_create_for_next(NULL)};
    grpc_metadata_array_init(&client->initial);
    grpc_metadata_array_init(&client->trailing);
    gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    if (deadline_ms)
        deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
    grpc_slice method = grpc_slice_from_copied_string(path);
    client->call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                            client->cq, method, NULL, deadline, NULL);
    grpc_slice_unref(method);
    grpc_metadata pairs[] = {{.key = grpc_slice_from_static_string("traceparent"),
                              .value = grpc_slice_from_static_string(rpc_traceparent)},
                             {.key = grpc_slice_from_static_string("triton_grpc_error"),
                              .value = grpc_slice_from_static_string("true")}};
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    op.data.send_initial_metadata.count = strict ? 2 : 1;
    op.data.send_initial_metadata.metadata = pairs;
    client_batch(client, &op, 1);
}

void rpc_client_open(struct rpc_client *client, grpc_channel *channel, const char *path,
                     i64 deadline_ms)
{
    client_open(client, channel, path, deadline_ms, false);
}

void rpc_client_open_strict(struct rpc_client *client, grpc_channel *channel)
{
    client_open(client, channel, RPC_STREAM, 0, true);
}

bool rpc_client_send(struct rpc_client *client, const void *body, size_t length)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(body, length);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = message;
    bool sent = client_batch(client, &op, 1);
    grpc_byte_buffer_destroy(message);
    return sent;
}

bool rpc_client_half_close(struct rpc_client *client)
{
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    return client_batch(client, &op, 1);
}

bool rpc_client_receive(struct rpc_client *client, struct rpc_result *result)
{
    grpc_byte_buffer *message = NULL;
    grpc_op ops[2] = {{.op = GRPC_OP_RECV_MESSAGE},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    ops[0].data.recv_message.recv_message = &message;
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &client->initial;
    client_batch(client, ops, client->initial_out ? 1 : 2);
    client->initial_out = true;
    gpr_free(result->bytes);
    result->bytes = NULL;
    result->length = 0;
    if (!message) return false;
    grpc_byte_buffer_reader reader;
    ck_assert(grpc_byte_buffer_reader_init(&reader, message));
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    result->length = GRPC_SLICE_LENGTH(all);
    result->bytes = gpr_malloc(result->length + 1);
    memcpy(result->bytes, GRPC_SLICE_START_PTR(all), result->length);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(message);
    return true;
}

void rpc_client_cancel(struct rpc_client *client)
{
    grpc_call_cancel(client->call, NULL);
}

void rpc_client_close(struct rpc_client *client, struct rpc_result *result)
{
    struct rpc_result unread = {0}; /* the status comes after unread messages */
    while (rpc_client_receive(client, &unread)) {
    }
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = &client->trailing;
    op.data.recv_status_on_client.status = &client->code;
    op.data.recv_status_on_client.status_details = &client->text;
    client_batch(client, &op, 1);
    result->code = client->code;
    snprintf(result->text, sizeof result->text, "%.*s",
             (int)GRPC_SLICE_LENGTH(client->text),
             (const char *)GRPC_SLICE_START_PTR(client->text));
    grpc_slice_unref(client->text);
    grpc_metadata_array_destroy(&client->initial);
    grpc_metadata_array_destroy(&client->trailing);
    grpc_call_unref(client->call);
    grpc_completion_queue_shutdown(client->cq);
    while (
        grpc_completion_queue_next(client->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL)
            .type != GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(client->cq);
}

void rpc_unary(grpc_channel *channel, const char *path, const void *body, size_t length,
               struct rpc_result *result)
{
    struct rpc_client client;
    *result = (struct rpc_result){0};
    rpc_client_open(&client, channel, path, 0);
    /* Each may fail when the server has answered already; the status has the reason. */
    if (rpc_client_send(&client, body, length)) rpc_client_half_close(&client);
    rpc_client_receive(&client, result);
    rpc_client_close(&client, result);
}

static size_t put_varint(u8 *out, u64 value)
{
    size_t length = 0;
    for (; value > 127; value >>= 7) out[length++] = (u8)(value | 128);
    out[length++] = (u8)value;
    return length;
}

static size_t put_text(u8 *out, u8 tag, const char *text)
{
    out[0] = tag;
    out[1] = (u8)strlen(text);
    memcpy(out + 2, text, strlen(text));
    return 2 + strlen(text);
}

size_t rpc_infer_body(u8 *out, size_t room, const void *tensor, size_t tensor_bytes)
{
    return rpc_infer_body_of(out, room, "id-1", tensor, tensor_bytes);
}

size_t rpc_infer_body_of(u8 *out, size_t room, const char *id, const void *tensor,
                         size_t tensor_bytes)
{
    ck_assert_uint_ge(room, tensor_bytes + 128 + strlen(id));
    u8 input[64], shape[10];
    size_t input_length = put_text(input, 0x0a, "bytes");
    input_length += put_text(input + input_length, 0x12, "UINT8");
    size_t shape_length = put_varint(shape, tensor_bytes);
    input[input_length++] = 0x1a; /* shape, packed */
    input[input_length++] = (u8)shape_length;
    memcpy(input + input_length, shape, shape_length);
    input_length += shape_length;
    size_t at = put_text(out, 0x0a, "echo");
    at += put_text(out + at, 0x1a, id);
    out[at++] = 0x2a;
    out[at++] = (u8)input_length;
    memcpy(out + at, input, input_length);
    at += input_length;
    out[at++] = 0x3a; /* raw_input_contents */
    at += put_varint(out + at, tensor_bytes);
    if (tensor_bytes) memmove(out + at, tensor, tensor_bytes);
    return at + tensor_bytes;
}

bool rpc_infer_tensor(const struct rpc_result *result, const u8 **tensor,
                      size_t *tensor_bytes)
{
    i32 found = 0;
    for (size_t at = 0; at < result->length;) {
        u8 tag = result->bytes[at++];
        u64 length = 0;
        ck_assert_int_eq(tag & 7, 2); /* every field of the reply is length-delimited */
        for (u32 shift = 0;; shift += 7) {
            u8 byte = result->bytes[at++];
            length |= (u64)(byte & 127) << shift;
            if (byte < 128) break;
        }
        ck_assert_uint_le(length, result->length - at);
        if (tag == 0x32) {
            found++;
            *tensor = result->bytes + at;
            *tensor_bytes = length;
        }
        at += length;
    }
    return found == 1;
}

void rpc_fill(u8 *bytes, size_t count, u32 seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (u8)(seed >> 24);
    }
}

/* One good inference of `bytes` bytes; fails the test when the echo differs. */
void rpc_infer_echo(grpc_channel *channel, size_t bytes, u32 seed)
{
    u8 *tensor = malloc(bytes + 1), *body = malloc(bytes + 256);
    rpc_fill(tensor, bytes, seed);
    size_t length = rpc_infer_body(body, bytes + 256, tensor, bytes);
    struct rpc_result result;
    rpc_unary(channel, RPC_INFER, body, length, &result);
    ck_assert_msg(result.code == GRPC_STATUS_OK, "%d %s", result.code, result.text);
    const u8 *echo;
    size_t echo_bytes;
    ck_assert(rpc_infer_tensor(&result, &echo, &echo_bytes));
    ck_assert_uint_eq(echo_bytes, bytes);
    ck_assert(!memcmp(echo, tensor, bytes));
    rpc_result_clear(&result);
    free(tensor);
    free(body);
}
