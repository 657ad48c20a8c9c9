/* rpc_harness - a server of vx_rpc with a tiny loop, and a gRPC C core client for it.
 *
 * Everything starts inside a test: Check forks, and gRPC must not have been used before.
 *
 *   struct rpc_server *server = rpc_server_open(&options);
 *   grpc_channel *channel = rpc_channel_open(server);
 *   struct rpc_result result;
 *   rpc_unary(channel, RPC_LIVE, body, length, &result);
 *   ck_assert_int_eq(result.code, GRPC_STATUS_OK);
 *   rpc_result_clear(&result);
 *   grpc_channel_destroy(channel);
 *   rpc_server_close(server);          asserts that no slot and no call is left
 *
 * The loop echoes: a small question's answer is its message, an inference's outputs are its
 * inputs.
 *
 * Owner    the test.
 * Thread   the test's own; several clients are fine, each with its own channel or not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_RPC_HARNESS_H
#define VX_TESTS_UNIT_RPC_HARNESS_H

#include "engine/base/types.h"
#include "server/rpc/rpc.h"

#include <grpc/grpc.h>

#define RPC_LIVE       "/inference.GRPCInferenceService/ServerLive"
#define RPC_INFER      "/inference.GRPCInferenceService/ModelInfer"
#define RPC_STREAM     "/inference.GRPCInferenceService/ModelStreamInfer"
#define RPC_WATCH      "/grpc.health.v1.Health/Watch"
#define RPC_REFLECTION "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"

struct rpc_server;

struct rpc_server_options {
    const char *address; /* NULL: 127.0.0.1, any port */
    i32 threads;         /* 0: two */
    i32 calls_max, streams_max, connections_max;
    i64 message_bytes_max, receive_bytes_max;
    size_t reader_bytes; /* 0 = as set by itself */
    i64 receive_ns_max, send_ns_max;
    u64 arena_bytes;               /* that connections share; 0: they share nothing */
    void (*on_slot)(size_t bytes); /* before a tensor gets its slot; any thread */
    void (*on_disconnected)(void *server, u64 connection); /* any thread */
    void (*on_refused)(void *server, const struct vx_rpc_refusal *refusal); /* the same */
    /* Called on the loop instead of the echo; NULL echoes every call. */
    void (*on_call)(struct rpc_server *server, struct vx_call *call);
    void (*on_gone)(struct rpc_server *server, struct vx_call *call);
};

/* What the loop has seen; read it with rpc_server_seen, which runs on the loop. */
#define RPC_HELD_MAX 64
struct rpc_seen {
    i32 arrivals, infers, gone, message_ends;
    char traceparent[VX_TRACEPARENT_BYTES];
    i64 deadline_left_ns; /* of the last call when it came */
    i32 held;
};

struct rpc_server *rpc_server_open(const struct rpc_server_options *options);
void rpc_server_close(struct rpc_server *server);
void rpc_server_target(struct rpc_server *server, char *target, size_t room);
i32 rpc_server_port(struct rpc_server *server);
struct vx_rpc *rpc_server_rpc(struct rpc_server *server);
/* Runs `run` on the loop and waits for it. */
void rpc_server_do(struct rpc_server *server, void (*run)(struct rpc_server *));
void rpc_server_seen(struct rpc_server *server, struct rpc_seen *seen);
/* From now on the loop keeps inferences unanswered; release answers them. */
void rpc_server_hold(struct rpc_server *server);
void rpc_server_release(struct rpc_server *server);
/* Answers one call now: for on_call, or for calls that a test has kept. */
void rpc_server_echo(struct rpc_server *server, struct vx_call *call);
/* How often rpc has reported that a call ended: it does so only while the server
 * stops. */
i32 rpc_server_told(struct rpc_server *server);
/* For calls that a test fails itself. */
void rpc_server_slot_give(struct rpc_server *server, struct vx_place *slot);
i32 rpc_server_slots_out(struct rpc_server *server);
/* How many were ever taken. */
i32 rpc_server_slots_ever(struct rpc_server *server);
/* Somebody found no room for a tensor. */
void rpc_server_lack(struct rpc_server *server);
/* Waits until nothing is in flight and no slot is taken. */
void rpc_server_wait_idle(struct rpc_server *server);

/* Waits until the loop has seen exactly this many inferences and departures. */
void rpc_wait_seen(struct rpc_server *server, i32 infers, i32 gone);
void rpc_wait_in_flight(struct rpc_server *server, i32 in_flight);
/* Lets other threads run, for a random time or for a while in which nothing may
 * happen; never to wait for something to happen: tests/support/wait.h does that. */
void rpc_sleep_ms(i64 ms);

struct rpc_result {
    grpc_status_code code;
    char text[512];
    u8 *bytes; /* of the reply; gpr_malloc */
    size_t length;
};
void rpc_result_clear(struct rpc_result *result);

grpc_channel *rpc_channel_open(struct rpc_server *server);
/* The same, to one of several addresses. */
grpc_channel *rpc_channel_to(const char *target);
/* A channel that compresses what it sends. */
grpc_channel *rpc_channel_open_gzip(struct rpc_server *server);
void rpc_unary(grpc_channel *channel, const char *path, const void *body, size_t length,
               struct rpc_result *result);

/* One call in its steps.  Each step waits until it is done, except begin. */
struct rpc_client {
    grpc_completion_queue *cq;
    grpc_call *call;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice text;
    bool status_out, initial_out;
};
/* What each call sends; the test may change it. */
extern const char *rpc_traceparent;
void rpc_client_open(struct rpc_client *client, grpc_channel *channel, const char *path,
                     i64 deadline_ms);
/* A ModelStreamInfer whose first error ends it with a status: triton_grpc_error. */
void rpc_client_open_strict(struct rpc_client *client, grpc_channel *channel);
bool rpc_client_send(struct rpc_client *client, const void *body, size_t length);
bool rpc_client_half_close(struct rpc_client *client);
/* False at the end of the stream. */
bool rpc_client_receive(struct rpc_client *client, struct rpc_result *result);
void rpc_client_cancel(struct rpc_client *client);
/* Waits for the status, fills it in, and frees the call. */
void rpc_client_close(struct rpc_client *client, struct rpc_result *result);

/* A ModelInferRequest with one UINT8 tensor "bytes" of `tensor_bytes` bytes; returns
 * its length. */
size_t rpc_infer_body(u8 *out, size_t room, const void *tensor, size_t tensor_bytes);
/* The same with another id, which has less than 128 characters. */
size_t rpc_infer_body_of(u8 *out, size_t room, const char *id, const void *tensor,
                         size_t tensor_bytes);
/* The tensor of a ModelInferResponse: false when there is not exactly one raw entry. */
bool rpc_infer_tensor(const struct rpc_result *result, const u8 **tensor,
                      size_t *tensor_bytes);
/* Fills in bytes that depend on `seed` alone. */
void rpc_fill(u8 *bytes, size_t count, u32 seed);
/* One good inference of `bytes` bytes; fails the test when the echo differs. */
void rpc_infer_echo(grpc_channel *channel, size_t bytes, u32 seed);

#endif
