/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_access.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"

/* Reads `authorization` where gRPC has it: the token is not copied.  Of several values
 * the last one counts; a client that may write one may write all of them. */
static void arrival_read(const struct vx_rpc_record *record,
                         struct vx_access_arrival *arrival)
{
    for (size_t i = 0; i < record->metadata.count; i++) {
        const grpc_metadata *pair = &record->metadata.metadata[i];
        if (grpc_slice_str_cmp(pair->key, "authorization")) continue;
        arrival->authorization = (const char *)GRPC_SLICE_START_PTR(pair->value);
        arrival->authorization_length = GRPC_SLICE_LENGTH(pair->value);
    }
}

/* A limit that is used up is for the client to know, and for metrics. */
static void log_refusal(const struct vx_rpc_record *record, vx_status status,
                        const struct vx_why *why)
{
    const struct vx_call *call = &record->call;
    if (vx_status_code(status) == VX_CODE_RESOURCE_EXHAUSTED) return;
    static const char *const peers[] = {
        [VX_PEER_REMOTE] = "remote", [VX_PEER_LOCAL] = "local", [VX_PEER_UNIX] = "unix"};
    VX_LOG(TOKEN_REFUSED, VX_LOG_TEXT("code", vx_code_name(vx_status_code(status))),
           VX_LOG_TEXT("method", vx_access_method_name(call->method)),
           VX_LOG_TEXT("peer", peers[call->peer.kind]),
           VX_LOG_I64("connection", (i64)call->peer.connection),
           VX_LOG_TEXT("token", call->ticket.name),
           VX_LOG_TEXT("why", vx_status_text(status, why)));
}

bool vx_rpc_access_refuses(struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    struct vx_call *call = &record->call;
    struct vx_access *access = rpc->options.access;
    struct vx_why why = {""};
    if (!access) return false;
    struct vx_access_arrival arrival = {.method = call->method,
                                        .connection = call->peer.connection,
                                        .is_request = call->method !=
                                                      VX_METHOD_ID_MODEL_STREAM_INFER,
                                        .now_ns = call->arrived_ns};
    arrival_read(record, &arrival);
    struct vx_tls_name name;
    if (!arrival.authorization && vx_rpc_call_name(call, &name))
        arrival.certificate = name.subject;
    vx_status st = vx_access_enter(access, &arrival, &why, &call->ticket);
    if (call->ticket.adds && !vx_rpc_accept_has(rpc->accept, call->peer.connection))
        vx_access_gone(access, call->peer.connection);
    if (!st.fault) return false;
    log_refusal(record, st, &why);
    vx_rpc_call_refuse(record, vx_status_code(st), vx_status_text(st, &why));
    return true;
}

vx_status vx_rpc_access_pay(struct vx_rpc_record *record, vx_status bad,
                            struct vx_why *why)
{
    struct vx_access *access = record->rpc->options.access;
    const struct vx_access_cost cost = {
        .of = {[VX_ACCESS_REQUESTS] = record->parent != NULL,
               [VX_ACCESS_BYTES] = (i64)record->call.body_bytes}};
    struct vx_why refusal = {""};
    if (!access) return bad;
    vx_status st =
        vx_access_spend(access, &record->call.ticket, &cost, vx_clock_ns(), &refusal);
    if (!st.fault) return bad;
    *why = refusal;
    return st;
}

vx_status vx_rpc_access_stays(struct vx_rpc_record *record, struct vx_why *why)
{
    struct vx_access *access = record->rpc->options.access;
    struct vx_call *call = &record->call;
    if (!access) return VX_OK;
    vx_status st = vx_access_stays(access, &call->ticket, call->method, why);
    if (!st.fault || call->ticket.entry < 0) return st;
    return vx_rpc_access_pay(record, st, why);
}
